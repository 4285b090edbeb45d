"""What the final response must say: phrases, patterns, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.evidence import Evidence
from evalkit.checks.reader import ExpectationReader, Phrases, check_references, read_phrases
from evalkit.checks.reasons import build_failure, build_failures, build_pass, build_reason
from evalkit.errors import KeyPath, did_you_mean, format_path
from evalkit.model.template import TemplateError
from evalkit.model.verdict import CheckResult, Reason
from evalkit.operators.base import Matcher, Mismatch
from evalkit.operators.compile import OperatorProblems, compile_value
from evalkit.text.format import TEXT_LIMIT, format_value

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


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
        reason = build_reason(code, message, phrase.place, expected=phrase.text, actual=value)
        reasons.append(replace(reason, call=call))
    return build_failures(key, reasons)


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
            return build_failure(self.key, "unresolved_reference", str(error), format_path(self.path))
        excludes = self.key == "response_excludes"
        if not response and not excludes:
            message = f"the response is empty, expected it to contain {phrases.format_list()}"
            return build_failure(self.key, "text_missing", message, format_path(self.path))
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
                return build_failure(self.key, "unresolved_reference", str(error), place)
            for mismatch in bound_pattern.explain(response):
                message = f"response: {mismatch.message}"
                reasons.append(build_reason("text_missing", message, place, expected=mismatch.expected))
        return build_failures(self.key, reasons) if reasons else build_pass(self.key, "found in the response")


class ResponseJson(Struct, frozen=True):
    """`response_json`, as values and operators: partial over keys, equal on leaves."""

    matcher: Matcher
    path: KeyPath

    key = "response_json"

    def judge(self, evidence: Evidence) -> CheckResult:
        value, wrong = parse_response(evidence.transcript.response)
        if wrong:
            return build_failure(self.key, "response_mismatch", wrong, format_path(self.path))
        try:
            matcher = self.matcher.bind(evidence.resolve) if self.matcher.has_templates else self.matcher
        except TemplateError as error:
            return build_failure(self.key, "unresolved_reference", str(error), format_path(self.path))
        if matcher.is_match(value):
            return build_pass(self.key, "the response is as expected")
        return build_failures(
            self.key, [self._build_reason(mismatch) for mismatch in matcher.explain(value, ("response",))]
        )

    def _build_reason(self, mismatch: Mismatch) -> Reason:
        inside = mismatch.path[1:]
        detail = {"path": inside, "expected": mismatch.expected, "actual": mismatch.actual}
        return build_reason("response_mismatch", str(mismatch), format_path((*self.path, *inside)), **detail)


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
            patterns.append((format_path(at), matcher))
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


# `response_json` as a JSON Schema: checked and compiled once, and never a schema that accepts anything by accident.

_NAMING = ("$schema", "$id", "$ref", "$defs", "$anchor", "$dynamicRef", "$dynamicAnchor", "$comment", "$vocabulary")
# Words that describe and demand nothing; `format` is a note too, unless a validator is told otherwise.
_ANNOTATIONS = (
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment",
    "$defs", "definitions", "format", "contentEncoding", "contentMediaType", "contentSchema",
)  # fmt: skip
_SUBSCHEMA_MAP_KEYWORDS = (
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
)  # name -> schema
_SUBSCHEMA_KEYWORDS = (
    "items", "additionalItems", "contains", "additionalProperties", "unevaluatedProperties", "unevaluatedItems",
    "propertyNames", "not", "if", "then", "else",
)  # fmt: skip
_SUBSCHEMA_LIST_KEYWORDS = ("allOf", "anyOf", "oneOf", "prefixItems")
KEYWORDS = frozenset(
    {
        *_NAMING, *_ANNOTATIONS, *_SUBSCHEMA_MAP_KEYWORDS, *_SUBSCHEMA_KEYWORDS, *_SUBSCHEMA_LIST_KEYWORDS,
        "type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
        "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains",
        "minContains", "maxProperties", "minProperties", "required", "dependentRequired", "dependencies",
    }
)  # fmt: skip
_VALUES_ADVICE = "to compare with values, write {$eq: ...} around them"


class ResponseSchema(Struct, frozen=True):
    """`response_json`: the response is JSON that satisfies this schema."""

    schema: str  # as JSON; the validator is compiled once per process
    path: KeyPath

    key = "response_json"

    def judge(self, evidence: Evidence) -> CheckResult:
        value, wrong = parse_response(evidence.transcript.response)
        if wrong:
            return build_failure(self.key, "response_mismatch", wrong, format_path(self.path))
        reasons = list(self._find_reasons(value))
        return (
            build_failures(self.key, reasons) if reasons else build_pass(self.key, "the response satisfies the schema")
        )

    def _find_reasons(self, value: Any) -> Iterator[Reason]:
        errors = sorted(
            compile_schema(self.schema).iter_errors(value), key=lambda error: list(map(str, error.absolute_path))
        )
        for error in errors:
            at = tuple(error.absolute_path)
            schema_path = tuple(error.absolute_schema_path)
            message = f"{format_path(('response', *at))}: {error.message} (schema: {format_path(schema_path)})"
            place = format_path((*self.path, *schema_path))
            yield build_reason("response_mismatch", message, place, path=at, actual=error.instance)


@lru_cache(maxsize=256)
def compile_schema(schema: str) -> Validator:
    """The validator of a schema given as JSON. References outside of it are never fetched."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    loaded = json.loads(schema)
    chosen = validator_for(loaded, default=Draft202012Validator)
    return chosen(loaded, registry=Registry())


def read_response_json(reader: ExpectationReader, path: KeyPath, value: Any) -> ResponseJson | ResponseSchema | None:
    """A JSON Schema, an operator, or values with operators in them; which of these is decided by the keys."""
    if isinstance(value, bool) or value == {}:
        reader.report_wrong(path, value, "a JSON Schema such as {type: object}, or values to compare with", "")
        return None
    if not _is_schema(value):
        misspelled = _find_misspelled(value)
        if misspelled:
            hint = f"; did you mean '{misspelled[1]}'? To compare with values, write {{$eq: ...}} around them"
            reader.report_unknown_key(path, misspelled[0], (), hint)
            return None
        check_references(reader, path, value)
        matcher = reader.read_matcher(path, value, "partial")
        return ResponseJson(matcher, path) if matcher else None
    if not value.keys() - _ANNOTATIONS:
        reader.add_problem(
            path, f"{reader.format_place(path)} is a JSON Schema that accepts anything; {_VALUES_ADVICE}"
        )
        return None
    before = len(reader.problems)
    for at, word in _find_unknown_words(value, path):
        reader.report_unknown_key(
            at, word, KEYWORDS, f"{did_you_mean(word, KEYWORDS)} (a JSON Schema; {_VALUES_ADVICE})"
        )
    for at, target in _find_references(value, path):
        if not _can_resolve(value, target):
            reader.add_problem(
                at, f"{reader.format_place(at)}: $ref '{target}' leads nowhere; only parts of this schema can be meant"
            )
    _check_schema(reader, path, value)
    return ResponseSchema(json.dumps(value), path) if len(reader.problems) == before else None


def _is_schema(value: Any) -> bool:
    """Whether a mapping uses a word of JSON Schema. One that is all operators does not."""
    return isinstance(value, dict) and any(key in KEYWORDS for key in value)


def _find_misspelled(value: Any) -> tuple[str, str] | None:
    """A key that is almost a word of JSON Schema, and that word."""
    from difflib import get_close_matches

    words = [word for word in KEYWORDS if not word.startswith("$")]
    for key in value if isinstance(value, dict) else ():
        plain = isinstance(key, str) and not key.startswith("$")
        matches = get_close_matches(key, words, 1, 0.85) if plain else []
        if matches:
            return key, matches[0]
    return None


def _walk_subschemas(schema: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    """The schema and every schema inside it, each with its path."""
    pending = [(path, schema)]
    while pending:
        at, item = pending.pop()
        if not isinstance(item, dict):
            continue
        yield at, item
        for word, inner in item.items():
            if word in _SUBSCHEMA_MAP_KEYWORDS and isinstance(inner, dict):
                pending += [((*at, word, name), part) for name, part in inner.items()]
            elif word in _SUBSCHEMA_KEYWORDS:
                pending.append(((*at, word), inner))
            if word in (*_SUBSCHEMA_LIST_KEYWORDS, "items") and isinstance(inner, list):
                pending += [((*at, word, index), part) for index, part in enumerate(inner)]


def _find_unknown_words(schema: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    for at, item in _walk_subschemas(schema, path):
        yield from ((at, word) for word in item if word not in KEYWORDS)


def _find_references(schema: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    for at, item in _walk_subschemas(schema, path):
        if isinstance(item.get("$ref"), str):
            yield (*at, "$ref"), item["$ref"]


def _can_resolve(schema: Any, target: str) -> bool:
    """Whether a reference leads to a part of the schema itself. Anchors are left to the validator."""
    from urllib.parse import unquote

    if not target.startswith("#"):
        return False
    if target != "#" and not target.startswith("#/"):
        return any(item.get("$anchor") == target[1:] for _, item in _walk_subschemas(schema, ()))
    value = schema
    for step in target.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return False
    return True


def _check_schema(reader: ExpectationReader, path: KeyPath, value: Any) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(value, default=Draft202012Validator).check_schema(value)
    except SchemaError as error:
        at = (*path, *error.absolute_path)
        reader.add_problem(at, f"{reader.format_place(at)} is not valid JSON Schema: {error.message}; {_VALUES_ADVICE}")
