"""What the final response must say: phrases, patterns, JSON."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.evidence import Evidence
from evalkit.checks.phrases import Phrases, read_phrases
from evalkit.checks.reading import ExpectationReader, KeyPath
from evalkit.checks.reasons import build_failure, build_pass, build_run_failure, build_run_reason, format_place
from evalkit.checks.references import check_references
from evalkit.model.template import TemplateError
from evalkit.model.verdict import CheckResult, Reason
from evalkit.operators.compile import OperatorProblems, compile_value
from evalkit.operators.matcher import Matcher, Mismatch
from evalkit.operators.shown import TEXT_LIMIT, format_value


def judge_phrases(
    key: str, subject: str, phrases: Phrases, excludes: bool, value: Any, texts: list[str], call: int | None = None
) -> CheckResult:
    """The result of looking for phrases in the texts of `subject`."""
    wrong = phrases.find_present(texts) if excludes else phrases.find_missing(texts)
    if not wrong:
        count = len(phrases.items)
        verb = "contains none of" if excludes else "contains"
        return build_pass(key, f"{subject} {verb} {count} phrase{'' if count == 1 else 's'}")
    verb, code = ("contains", "text_forbidden") if excludes else ("does not contain", "text_missing")
    reasons = []
    for phrase in wrong:
        message = f"{subject} {verb} {format_value(phrase.text)}"
        reason = build_run_reason(code, message, phrase.place, expected=phrase.text, actual=value)
        reasons.append(replace(reason, call=call))
    return build_failure(key, reasons)


class ResponseText(Struct, frozen=True):
    """`response_contains` and `response_excludes`."""

    key: str
    phrases: Phrases
    path: KeyPath

    def judge(self, evidence: Evidence) -> CheckResult:
        response = evidence.transcript.response
        try:
            phrases = self.phrases.bind(evidence.resolve) if self.phrases.has_templates else self.phrases
        except TemplateError as error:
            return build_run_failure(self.key, "unresolved_reference", str(error), format_place(self.path))
        excludes = self.key == "response_excludes"
        if not response and not excludes:
            message = f"the response is empty, expected it to contain {phrases.format_list()}"
            return build_run_failure(self.key, "text_missing", message, format_place(self.path))
        return judge_phrases(self.key, "response", phrases, excludes, response, evidence.fold_texts(response))


class ResponseMatches(Struct, frozen=True):
    """`response_matches`: each pattern is found somewhere in the response."""

    patterns: tuple[tuple[str, Matcher], ...]
    path: KeyPath

    key = "response_matches"

    def judge(self, evidence: Evidence) -> CheckResult:
        response = evidence.transcript.response
        reasons = []
        for place, pattern in self.patterns:
            try:
                bound_pattern = pattern.bind(evidence.resolve) if pattern.has_templates else pattern
            except TemplateError as error:
                return build_run_failure(self.key, "unresolved_reference", str(error), place)
            for mismatch in bound_pattern.explain(response):
                message = f"response: {mismatch.message}"
                reasons.append(build_run_reason("text_missing", message, place, expected=mismatch.expected))
        return build_failure(self.key, reasons) if reasons else build_pass(self.key, "found in the response")


class ResponseJson(Struct, frozen=True):
    """`response_json`, as values and operators: partial over keys, equal on leaves."""

    matcher: Matcher
    path: KeyPath

    key = "response_json"

    def judge(self, evidence: Evidence) -> CheckResult:
        value, wrong = parse_response(evidence.transcript.response)
        if wrong:
            return build_run_failure(self.key, "response_mismatch", wrong, format_place(self.path))
        try:
            matcher = self.matcher.bind(evidence.resolve) if self.matcher.has_templates else self.matcher
        except TemplateError as error:
            return build_run_failure(self.key, "unresolved_reference", str(error), format_place(self.path))
        if matcher.is_match(value):
            return build_pass(self.key, "the response is as expected")
        return build_failure(
            self.key, [self._build_reason(mismatch) for mismatch in matcher.explain(value, ("response",))]
        )

    def _build_reason(self, mismatch: Mismatch) -> Reason:
        inside = mismatch.path[1:]
        detail = {"path": inside, "expected": mismatch.expected, "actual": mismatch.actual}
        return build_run_reason("response_mismatch", str(mismatch), format_place((*self.path, *inside)), **detail)


def parse_response(response: str) -> tuple[Any, str]:
    """The response as JSON, or why it is none. Strict: no comments, no NaN, nothing around it."""
    import json

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(response, parse_constant=refuse), ""
    except RecursionError:
        return None, "the response is not JSON that can be read: it is nested too deep"
    except ValueError as error:
        hint = "; it stands in a fenced code block" if response.lstrip().startswith("```") else ""
        why = "it is empty" if not response.strip() else str(error)
        return None, f"the response is not JSON ({why}){hint}: {format_value(response, TEXT_LIMIT)}"


def read_response_text(reader: ExpectationReader, path: KeyPath, value: Any) -> ResponseText | None:
    phrases = read_phrases(reader, path, value)
    check_references(reader, path, value)
    return ResponseText(str(path[-1]), phrases, path) if phrases else None


def read_response_matches(reader: ExpectationReader, path: KeyPath, value: Any) -> ResponseMatches | None:
    """One pattern or a list of patterns. The operators' engine compiles them, with its time limit."""
    items = value if isinstance(value, list) else [value]
    if not items:
        reader.report_wrong(path, value, "a pattern or a list of patterns")
    patterns: list[tuple[str, Matcher]] = []
    for index, item in enumerate(items):
        at = (*path, index) if isinstance(value, list) else path
        matcher = _compile_pattern(reader, at, item)
        if matcher is not None:
            patterns.append((format_place(at), matcher))
    check_references(reader, path, value)
    return ResponseMatches(tuple(patterns), path)


def _compile_pattern(reader: ExpectationReader, path: KeyPath, value: Any) -> Matcher | None:
    if not isinstance(value, str) or not value:
        reader.report_wrong(path, value, "a pattern", "quote it" if isinstance(value, (int, float)) else "")
        return None
    try:
        return compile_value({"$search": value}, mode="equal")
    except OperatorProblems as problems:
        for problem in problems.problems:
            reader.add_problem(path, f"{reader.format_place(path)}: {problem.message.removeprefix('$search ')}")
        return None
