"""Demands on one call: each key of an expected call is a frozen check, which actual calls meet or fail."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.evidence import Evidence
from evalkit.checks.reader import Phrase, Phrases
from evalkit.checks.reasons import (
    build_failure,
    build_failures,
    build_pass,
    build_reason,
    describe_call,
    format_quantity,
)
from evalkit.errors import KeyPath, format_path
from evalkit.jsonvalue import ARRAY, OBJECT, STRING, get_kind, is_json_equal, is_string
from evalkit.model.template import TemplateError
from evalkit.model.transcript import MOCK, FunctionCall
from evalkit.model.verdict import CheckResult, Reason
from evalkit.operators.base import WRONG, Matcher, Mismatch, Resolve, holds_judge
from evalkit.operators.judged import record_questions
from evalkit.operators.phrases import has_phrase
from evalkit.operators.values import Equal, MappingMatcher
from evalkit.text.format import describe_type, format_value

CONTAINED_NOTE = "contained, not equal"
_ARGUMENT_CODES = {"wrong": "wrong_argument", "missing": "missing_argument", "unexpected": "unexpected_argument"}


class CallCheck(Protocol):
    """A demand on a call."""

    @property
    def key(self) -> str:
        """The key in the case, e.g. `body_contains`."""

    @property
    def path(self) -> KeyPath:
        """The place in the case."""

    @property
    def on_arguments(self) -> bool:
        """True if it counts towards argument accuracy."""

    @property
    def size(self) -> int:
        """The number of demands on arguments that it makes."""

    @property
    def has_templates(self) -> bool:
        """True if it must be bound before it can be met."""

    def bind(self, resolve: Resolve) -> CallCheck:
        """Render the templates. Raises TemplateError."""

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        """Return whether `call` meets the demand."""

    def report_pass(self, call: FunctionCall) -> CheckResult:
        """Build the result for a call that meets it."""

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        """Build the result for a call that does not meet it, with every reason."""

    def count_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        """Return how many of its demands are met, and how many there are."""


CheckT = TypeVar("CheckT", bound=CallCheck)


def get_arguments(call: FunctionCall) -> Any:
    """Return the call's arguments; null means none."""
    return {} if call.arguments is None else call.arguments


class ValuesCheck(Struct, frozen=True):
    """`arguments`, `arguments_contain` or `result_contains`: a value against a compiled one."""

    key: str
    matcher: Matcher
    path: KeyPath  # in the case
    names: tuple[str, ...] = ()  # the keys it lists
    source: object = None  # what stands at `path`, for the places of reasons

    @property
    def on_arguments(self) -> bool:
        """True if arguments are compared, False for the result."""
        return self.key != "result_contains"

    @property
    def size(self) -> int:
        return len(self.names) if self.on_arguments else 0

    @property
    def has_templates(self) -> bool:
        return self.matcher.has_templates

    def bind(self, resolve: Resolve) -> ValuesCheck:
        return replace(self, matcher=self.matcher.bind(resolve))

    def get_actual(self, call: FunctionCall) -> Any:
        """Return what the call has to show."""
        return call.result if self.key == "result_contains" else get_arguments(call)

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        return self.matcher.is_match(self.get_actual(call))

    def report_pass(self, call: FunctionCall) -> CheckResult:
        root: KeyPath = ("arguments",) if self.on_arguments else ("result",)
        record_questions(self.matcher, self.get_actual(call), root, f"{describe_call(call)}: ")
        if self.key == "arguments":
            return build_pass(self.key, "arguments equal")
        if self.key == "result_contains":
            return build_pass(self.key, "found in the result")
        note = "" if self.matcher.is_equal(get_arguments(call)) else CONTAINED_NOTE
        return build_pass(self.key, "arguments contained", note)

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        actual = self.get_actual(call)
        root: KeyPath = ("arguments",) if self.on_arguments else ("result",)
        mismatches = self.matcher.explain(actual, root)
        if self.key == "result_contains":
            mismatches = [replace(item, message=f"{item.message}{_hint_part(item)}") for item in mismatches]
        reasons = []
        for mismatch in mismatches:
            # An argument is missing or unexpected as a whole; a difference inside makes it wrong.
            code = "result_mismatch" if not self.on_arguments else "wrong_argument"
            if self.on_arguments and len(mismatch.path) <= 2:
                absent = isinstance(mismatch.expected, Mapping) and set(mismatch.expected) == {"$absent"}
                code = "unexpected_argument" if absent else _ARGUMENT_CODES[mismatch.code]
            place = self.path
            if mismatch.code != "unexpected":
                place = (*place, *_cut_to_source(self.source, mismatch.path[1:]))
            reasons.append(build_mismatch_reason(code, mismatch, format_path(place), call))
        return build_failures(self.key, reasons, call=call)

    def count_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        return count_met_keys(self.matcher, self.get_actual(call), self.names)


def build_mismatch_reason(code: str, mismatch: Mismatch, place: str, call: FunctionCall | None = None) -> Reason:
    """Build the reason for a value that differs; its code is `judge_failed` where a model's grade decided that."""
    is_graded = mismatch.code == WRONG and holds_judge(mismatch.expected)
    return build_reason(
        "judge_failed" if is_graded else code,
        str(mismatch),
        place,
        call=call,
        path=mismatch.path[1:],
        expected=mismatch.expected,
        actual=mismatch.actual,
    )


def _hint_part(mismatch: Mismatch) -> str:
    """Word how to look for a part of a text: `result_contains` compares texts as a whole."""
    expected, actual = mismatch.expected, mismatch.actual
    if is_string(expected) and is_string(actual) and expected != actual and has_phrase(actual, expected):
        return f" (texts in results are compared as a whole; for a part write {{$icontains: {format_value(expected)}}})"
    return ""


def _cut_to_source(value: object, path: KeyPath) -> KeyPath:
    """Return the part of `path` that exists in `value`, the mapping in the case: operators and templates end it."""
    for length, step in enumerate(path):
        parts = dict(enumerate(value)) if isinstance(value, list) else value
        if not isinstance(parts, dict) or step not in parts:
            return path[:length]
        value = parts[step]
    return path


def count_met_keys(matcher: Matcher, actual: Any, names: Sequence[str]) -> tuple[int, int]:
    """Return how many of the keys that a matcher lists (or rules out) are as expected, and how many there are.

    Nothing is explained here: every pair that might be the best explanation comes through.
    """
    if isinstance(matcher, Equal) and type(matcher.value) is dict:
        if type(actual) is not dict:
            return 0, len(matcher.value) or 1
        met = present = 0
        for key, value in matcher.value.items():
            if key in actual:
                present += 1
                if is_json_equal(value, actual[key]):
                    met += 1
        return met, len(matcher.value) + len(actual) - present
    if isinstance(matcher, MappingMatcher):
        if type(actual) is not dict:
            return 0, len(matcher.items) or 1
        listed = dict(matcher.items)
        met = sum(item.is_match(actual[key]) if key in actual else item.accepts_absence for key, item in matcher.items)
        return met, len(listed) + (sum(key not in listed for key in actual) if matcher.closed else 0)
    return int(matcher.is_match(actual)), max(len(names), 1)


class AbsentCheck(Struct, frozen=True):
    """`arguments_absent`: names that must not be sent."""

    arguments_absent: tuple[str, ...]
    path: KeyPath

    key: ClassVar[str] = "arguments_absent"
    on_arguments: ClassVar[bool] = True
    has_templates: ClassVar[bool] = False

    @property
    def size(self) -> int:
        return len(self.arguments_absent)

    def bind(self, resolve: Resolve) -> AbsentCheck:
        return self

    def _find_sent(self, call: FunctionCall) -> list[str]:
        arguments = get_arguments(call)
        return [name for name in self.arguments_absent if isinstance(arguments, dict) and name in arguments]

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        return not self._find_sent(call)

    def report_pass(self, call: FunctionCall) -> CheckResult:
        return build_pass(self.key, "not sent")

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        reasons, place = [], format_path(self.path)
        for name in self._find_sent(call):
            value = call.arguments[name]
            message = f"arguments.{name}: must not be sent, got {format_value(value)}"
            reasons.append(build_reason("unexpected_argument", message, place, call=call, path=(name,), actual=value))
        return build_failures(self.key, reasons, call=call)

    def count_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        return len(self.arguments_absent) - len(self._find_sent(call)), len(self.arguments_absent)


class UnresolvedCheck(Struct, frozen=True):
    """The substitute of a check whose template leads nowhere: no call meets it."""

    key: str
    message: str
    path: KeyPath

    on_arguments: ClassVar[bool] = True
    has_templates: ClassVar[bool] = False
    size: ClassVar[int] = 1

    def bind(self, resolve: Resolve) -> UnresolvedCheck:
        return self

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        return False

    def report_pass(self, call: FunctionCall) -> CheckResult:
        return build_pass(self.key, "")

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        return build_failure(self.key, "unresolved_reference", self.message, format_path(self.path), call=call)

    def count_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        return 0, 1


def bind_check(check: CheckT, resolve: Resolve) -> CheckT | UnresolvedCheck:
    """Render the templates of a check; where one leads nowhere, return the check that says so."""
    if not check.has_templates:
        return check
    try:
        return check.bind(resolve)  # type: ignore[return-value]  # a check binds to one of its kind
    except TemplateError as error:
        return UnresolvedCheck(check.key, str(error), check.path)


TEXT_ONLY = frozenset({STRING})
_DECLARE_HINTS = {kind: f" (its texts are searched where the function declares an {kind})" for kind in (ARRAY, OBJECT)}


class TextCheck(Struct, frozen=True):
    """`<argument>_contains` and `<argument>_excludes`: phrases in the text of one argument."""

    argument: str
    phrases: Phrases
    excludes: bool
    path: KeyPath
    kinds: frozenset[str] = TEXT_ONLY  # JSON types of the argument that may be searched

    on_arguments: ClassVar[bool] = True

    @property
    def key(self) -> str:
        """The key in the case."""
        return f"{self.argument}_{'excludes' if self.excludes else 'contains'}"

    @property
    def size(self) -> int:
        return len(self.phrases.items)

    @property
    def has_templates(self) -> bool:
        return self.phrases.has_templates

    def bind(self, resolve: Resolve) -> TextCheck:
        return replace(self, phrases=self.phrases.bind(resolve))

    def _find_wrong(self, value: object, evidence: Evidence) -> list[Phrase]:
        """Return the phrases that are missing, or excluded and present; all of them where there is no text."""
        if get_kind(value) not in self.kinds:
            return list(self.phrases.items)
        texts = evidence.fold_texts(value)
        return self.phrases.find_present(texts) if self.excludes else self.phrases.find_missing(texts)

    def _get_value(self, call: FunctionCall) -> object:
        arguments = get_arguments(call)
        return arguments.get(self.argument) if isinstance(arguments, dict) else None

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        return not self._find_wrong(self._get_value(call), evidence)

    def report_pass(self, call: FunctionCall) -> CheckResult:
        verb = "contains none of" if self.excludes else "contains"
        plural = "" if self.size == 1 else "s"
        return build_pass(self.key, f"{self.argument} {verb} {self.size} phrase{plural}")

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        value = self._get_value(call)
        path: KeyPath = (self.argument,)
        if get_kind(value) not in self.kinds:
            arguments, code = get_arguments(call), "missing_argument"
            if not isinstance(arguments, dict):
                problem = f"is missing (the arguments are {describe_type(arguments)})"
            elif self.argument in arguments:
                code, problem = "text_missing", "is null" if value is None else f"is {describe_type(value)}"
            else:
                names = f"sent: {', '.join(map(str, arguments))}" if arguments else "no arguments were sent"
                problem = f"is missing ({names})"
            expected = f"a text {'without' if self.excludes else 'that contains'} {self.phrases.format_list()}"
            message = f"{self.argument} {problem}, expected {expected}{_DECLARE_HINTS.get(get_kind(value), '')}"
            return build_failure(self.key, code, message, format_path(self.path), call=call, path=path)
        verb, code = ("contains", "text_forbidden") if self.excludes else ("does not contain", "text_missing")
        reasons = []
        for phrase in self._find_wrong(value, evidence):
            hint = "" if self.excludes else phrase.explain_missing(evidence.fold_texts(value))
            message, place = f"{self.argument} {verb} {format_value(phrase.text)}{hint}", phrase.place
            reasons.append(build_reason(code, message, place, call=call, path=path, expected=phrase.text, actual=value))
        return build_failures(self.key, reasons, call=call)

    def count_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        return self.size - len(self._find_wrong(self._get_value(call), evidence)), self.size


class BooleanCheck(Struct, frozen=True):
    """Demands that a call meets or not, and that have no templates."""

    on_arguments: ClassVar[bool] = False
    has_templates: ClassVar[bool] = False
    size: ClassVar[int] = 0

    def bind(self, resolve: Resolve) -> Self:
        return self

    @abstractmethod
    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        """Return whether `call` meets the demand."""

    def count_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        return int(self.is_met(call, evidence)), 1


class OutcomeCheck(BooleanCheck, frozen=True):
    """`outcome`: whether the call succeeded (`ok`) or failed (`error`)."""

    outcome: str
    path: KeyPath

    key: ClassVar[str] = "outcome"

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        return call.outcome == self.outcome

    def report_pass(self, call: FunctionCall) -> CheckResult:
        return build_pass(self.key, "succeeded" if self.outcome == "ok" else "failed, as expected")

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        message = "succeeded, expected outcome 'error'"
        if self.outcome == "ok":
            message = f"failed, expected outcome 'ok': {describe_failure(call)}"
        return build_failure(
            self.key,
            "wrong_outcome",
            message,
            format_path(self.path),
            call=call,
            expected=self.outcome,
            actual=call.outcome,
        )


def describe_failure(call: FunctionCall) -> str:
    """Return the error of a failed call: ``timeout: "no answer"``."""
    error = call.result.get("error") if isinstance(call.result, dict) else None
    if isinstance(error, dict) and isinstance(error.get("type"), str):
        return f"{error['type']}: {format_value(error['message'])}" if "message" in error else error["type"]
    return format_value(call.result)


class LatencyCheck(BooleanCheck, frozen=True):
    """`max_latency_ms`: how long the function may take to answer, on the run's clock."""

    max_latency_ms: float
    path: KeyPath

    key: ClassVar[str] = "max_latency_ms"

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        return call.duration_ms <= self.max_latency_ms

    def explain_unmeasured(self, call: FunctionCall, evidence: Evidence) -> str:
        """Word that nobody took the time: the application answered by itself, or the call was recorded without."""
        is_untimed = not call.duration_ms and (call.answered_by != MOCK or evidence.mode == "judge")
        return f"nobody took the time of {describe_call(call)}" if is_untimed else ""

    def report_pass(self, call: FunctionCall) -> CheckResult:
        took, limit = format_quantity(call.duration_ms), format_quantity(self.max_latency_ms)
        return build_pass(self.key, f"took {took} ms, at most {limit}")

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        limit = format_quantity(self.max_latency_ms)
        message = f"took {format_quantity(call.duration_ms)} ms, more than the {limit} allowed"
        return build_failure(
            self.key,
            "budget_exceeded",
            message,
            format_path(self.path),
            call=call,
            expected=self.max_latency_ms,
            actual=call.duration_ms,
        )


class ValidCheck(BooleanCheck, frozen=True):
    """`valid`, and `valid_arguments` of the whole case: whether the arguments satisfy the declared schema."""

    valid: bool
    path: KeyPath
    key: str = "valid"

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        return self.valid is not bool(call.violations)

    def report_pass(self, call: FunctionCall) -> CheckResult:
        return build_pass(self.key, "arguments valid" if self.valid else "arguments invalid, as expected")

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        if not self.valid:
            message = "arguments satisfy the declared schema, expected them to violate it (valid: false)"
            return build_failure(self.key, "valid_arguments", message, format_path(self.path), call=call)
        return report_violations(call, self.key, format_path(self.path))


def report_violations(call: FunctionCall, key: str, place: str) -> CheckResult:
    """Build the result for a call whose arguments violate the declared schema."""
    reasons = []
    for violation in call.violations:
        schema = format_path(violation.schema_path)
        suffix = f" (schema: {schema})" if schema else ""
        message = f"{format_path(('arguments', *violation.path))}: {violation.message}{suffix}"
        reasons.append(build_reason("invalid_arguments", message, place, call=call, path=violation.path))
    return build_failures(key, reasons, call=call)


class GroundedCheck(BooleanCheck, frozen=True):
    """`grounded`: values of arguments that must be traceable (`evalkit.checks.evidence`). No names: all arguments."""

    grounded: tuple[str, ...]
    path: KeyPath
    declared_values: tuple[object, ...] = ()  # values that the function's declaration itself offers

    key: ClassVar[str] = "grounded"

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        return not self._find_untraced(call, evidence)

    def report_pass(self, call: FunctionCall) -> CheckResult:
        return build_pass(self.key, "traceable")

    def _find_untraced(self, call: FunctionCall, evidence: Evidence) -> list[tuple[KeyPath, object]]:
        arguments = get_arguments(call)
        if not isinstance(arguments, dict):
            return [] if self.grounded else evidence.grounding.find_untraced(call, arguments, self.declared_values)
        chosen = {name: arguments[name] for name in self.grounded if name in arguments} if self.grounded else arguments
        return evidence.grounding.find_untraced(call, chosen, self.declared_values)

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        reasons, place = [], format_path(self.path)
        for path, value in self._find_untraced(call, evidence):
            pair_text = f"{format_path(('arguments', *path))}: {format_value(value)}"
            message = f"{pair_text} is neither in the input nor in an earlier result"
            reasons.append(build_reason("ungrounded_argument", message, place, call=call, path=path, actual=value))
        return build_failures(self.key, reasons, call=call)
