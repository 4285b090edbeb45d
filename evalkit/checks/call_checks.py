"""What can be demanded of one call: each key of an expected call is a frozen check, held against actual calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Protocol, Self

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.evidence import Evidence
from evalkit.checks.phrases import Phrase, Phrases
from evalkit.checks.reasons import (
    build_call_failure,
    build_call_reason,
    build_detailed_pass,
    build_failure,
    build_pass,
    format_place,
)
from evalkit.errors import KeyPath, format_path
from evalkit.jsonvalue import is_json_equal
from evalkit.model.template import Reference, TemplateError
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import CheckResult, Reason
from evalkit.operators.base import Matcher, Mismatch
from evalkit.operators.values import Equal, MappingMatcher
from evalkit.text.format import describe_type, format_value

CONTAINED_NOTE = "contained, not equal"
_MISSING: Any = object()
_ARGUMENT_CODES = {"wrong": "wrong_argument", "missing": "missing_argument", "unexpected": "unexpected_argument"}


class CallCheck(Protocol):
    """One demand on a call."""

    @property
    def key(self) -> str:
        """The key in the case, e.g. `body_contains`."""

    @property
    def on_arguments(self) -> bool:
        """Whether it counts towards argument accuracy."""

    @property
    def size(self) -> int:
        """How many demands on arguments it makes."""

    @property
    def has_templates(self) -> bool: ...

    def bind(self, resolve: Callable[[Reference], Any]) -> CallCheck:
        """The same without templates. Raises TemplateError."""

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool: ...

    def report_pass(self, call: FunctionCall) -> CheckResult:
        """The result for a call of which it holds."""

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        """The result for a call of which it does not hold, with every reason."""

    def count_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        """How many of its demands hold, of how many."""


def get_arguments(call: FunctionCall) -> Any:
    """The call's arguments; null means none."""
    return {} if call.arguments is None else call.arguments


class ValuesCheck(Struct, frozen=True):
    """`arguments`, `arguments_contain` or `result_contains`: a value against a compiled one."""

    key: str
    matcher: Matcher
    path: KeyPath  # in the case
    names: tuple[str, ...] = ()  # the keys it lists
    source: Any = None  # what stands at `path`, for the places of reasons

    @property
    def on_arguments(self) -> bool:
        return self.key != "result_contains"

    @property
    def size(self) -> int:
        return len(self.names) if self.on_arguments else 0

    @property
    def has_templates(self) -> bool:
        return self.matcher.has_templates

    def bind(self, resolve: Callable[[Reference], Any]) -> ValuesCheck:
        return replace(self, matcher=self.matcher.bind(resolve))

    def get_actual(self, call: FunctionCall) -> Any:
        return call.result if self.key == "result_contains" else get_arguments(call)

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        if self.key == "result_contains":
            return self.matcher.is_match(call.result)
        return self.matcher.is_match({} if call.arguments is None else call.arguments)

    def report_pass(self, call: FunctionCall) -> CheckResult:
        if self.key == "arguments":
            return build_pass(self.key, "arguments equal")
        if self.key == "result_contains":
            return build_pass(self.key, "found in the result")
        return build_pass(
            self.key, "arguments contained", "" if self.matcher.is_equal(get_arguments(call)) else CONTAINED_NOTE
        )

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        actual = self.get_actual(call)
        root: KeyPath = ("arguments",) if self.on_arguments else ("result",)
        mismatches = self.matcher.explain(actual, root)
        return build_failure(
            self.key, [self._build_reason(mismatch, call) for mismatch in mismatches], map(str, mismatches)
        )

    def _find_code(self, mismatch: Mismatch) -> str:
        """An argument is missing or unexpected as a whole; what is amiss inside it makes it wrong."""
        if not self.on_arguments:
            return "result_mismatch"
        if len(mismatch.path) > 2:
            return "wrong_argument"
        absent = isinstance(mismatch.expected, Mapping) and set(mismatch.expected) == {"$absent"}
        return "unexpected_argument" if absent else _ARGUMENT_CODES[mismatch.code]

    def _build_reason(self, mismatch: Mismatch, call: FunctionCall) -> Reason:
        code = self._find_code(mismatch)
        inside = () if mismatch.code == "unexpected" else _cut_to_source(self.source, mismatch.path[1:])
        return build_call_reason(
            code,
            str(mismatch),
            call,
            format_place((*self.path, *inside)),
            path=mismatch.path[1:],
            expected=mismatch.expected,
            actual=mismatch.actual,
        )

    def count_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        return count_met_keys(self.matcher, self.get_actual(call), self.names)


def _cut_to_source(value: Any, path: KeyPath) -> KeyPath:
    """The part of `path` that leads somewhere in `value`: below operators and templates nothing is written."""
    for length, step in enumerate(path):
        is_present = step in value if isinstance(value, dict) else isinstance(value, list) and step in range(len(value))
        if not is_present:
            return path[:length]
        value = value[step]
    return path


def count_met_keys(matcher: Matcher, actual: Any, names: Sequence[str]) -> tuple[int, int]:
    """How many of the keys that a matcher lists (or rules out) are as expected, of how many.

    Asked of every pair that might be the best explanation, and so without explaining anything.
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

    def bind(self, resolve: Callable[[Reference], Any]) -> AbsentCheck:
        return self

    def _find_sent(self, call: FunctionCall) -> list[str]:
        arguments = get_arguments(call)
        return [name for name in self.arguments_absent if isinstance(arguments, dict) and name in arguments]

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        return not self._find_sent(call)

    def report_pass(self, call: FunctionCall) -> CheckResult:
        return build_pass(self.key, "not sent")

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        reasons, lines = [], []
        for name in self._find_sent(call):
            value = call.arguments[name]
            lines.append(f"arguments.{name}: must not be sent, got {format_value(value)}")
            at = format_place(self.path)
            reasons.append(build_call_reason("unexpected_argument", lines[-1], call, at, path=(name,), actual=value))
        return build_failure(self.key, reasons, lines)

    def count_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        return len(self.arguments_absent) - len(self._find_sent(call)), len(self.arguments_absent)


class UnresolvedCheck(Struct, frozen=True):
    """Stands in for a check whose template leads nowhere: nothing can satisfy it."""

    key: str
    message: str
    path: KeyPath

    on_arguments: ClassVar[bool] = True
    has_templates: ClassVar[bool] = False
    size: ClassVar[int] = 1

    def bind(self, resolve: Callable[[Reference], Any]) -> UnresolvedCheck:
        return self

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        return False

    def report_pass(self, call: FunctionCall) -> CheckResult:
        return build_pass(self.key, "")

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        return build_call_failure(self.key, "unresolved_reference", self.message, call, format_place(self.path))

    def count_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        return 0, 1


def bind_check(check: Any, resolve: Callable[[Reference], Any]) -> Any:
    """`check` with its templates rendered, or the check that says why they can't be."""
    if not check.has_templates:
        return check
    try:
        return check.bind(resolve)
    except TemplateError as error:
        return UnresolvedCheck(check.key, str(error), check.path)


# `<argument>_contains` and `<argument>_excludes`: what the text of an argument must say.

_NO_ARGUMENT: Any = object()


class TextCheck(Struct, frozen=True):
    """`<argument>_contains` and `<argument>_excludes`: phrases in the text of one argument."""

    argument: str
    phrases: Phrases
    excludes: bool
    path: KeyPath

    on_arguments: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"{self.argument}_{'excludes' if self.excludes else 'contains'}"

    @property
    def size(self) -> int:
        return len(self.phrases.items)

    @property
    def has_templates(self) -> bool:
        return self.phrases.has_templates

    def bind(self, resolve: Callable[[Reference], Any]) -> TextCheck:
        return replace(self, phrases=self.phrases.bind(resolve))

    def _get_value(self, call: FunctionCall) -> Any:
        arguments = get_arguments(call)
        return arguments.get(self.argument, _NO_ARGUMENT) if isinstance(arguments, dict) else _NO_ARGUMENT

    def _find_wrong(self, value: Any, evidence: Evidence) -> list[Phrase]:
        """The phrases that are missing, or that are found and excluded; all of them where there is no text."""
        if value is _NO_ARGUMENT or value is None:
            return list(self.phrases.items)
        texts = evidence.fold_texts(value)
        return self.phrases.find_present(texts) if self.excludes else self.phrases.find_missing(texts)

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        value = self._get_value(call)
        if value is _NO_ARGUMENT or value is None:
            return False
        if not self.excludes:
            return self.phrases.match_all(evidence.fold_texts(value))
        return not self.phrases.find_present(evidence.fold_texts(value))

    def report_pass(self, call: FunctionCall) -> CheckResult:
        return _build_text_pass(self.argument, self.excludes, len(self.phrases.items))

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        value = self._get_value(call)
        if value is _NO_ARGUMENT or value is None:
            return self._report_no_text(call, value)
        verb, code = ("contains", "text_forbidden") if self.excludes else ("does not contain", "text_missing")
        reasons, lines = [], []
        for phrase in self._find_wrong(value, evidence):
            lines.append(f"{self.argument} {verb} {format_value(phrase.text)}")
            detail = {"path": (self.argument,), "expected": phrase.text, "actual": value}
            reasons.append(build_call_reason(code, lines[-1], call, phrase.place, **detail))
        return build_failure(self.key, reasons, lines)

    def _report_no_text(self, call: FunctionCall, value: Any) -> CheckResult:
        expected = f"a text {'without' if self.excludes else 'that contains'} {self.phrases.format_list()}"
        if value is None:
            code, problem = "text_missing", "is null"
        else:
            code, problem = "missing_argument", f"is missing ({_describe_sent(call)})"
        message = f"{self.argument} {problem}, expected {expected}"
        return build_call_failure(self.key, code, message, call, format_place(self.path), path=(self.argument,))

    def count_met(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        return len(self.phrases.items) - len(self._find_wrong(self._get_value(call), evidence)), len(self.phrases.items)


@cache
def _build_text_pass(argument: str, excludes: bool, count: int) -> CheckResult:
    key, verb = (f"{argument}_excludes", "contains none of") if excludes else (f"{argument}_contains", "contains")
    return CheckResult(check=key, message=f"{argument} {verb} {count} phrase{'' if count == 1 else 's'}")


def _describe_sent(call: FunctionCall) -> str:
    arguments = get_arguments(call)
    if not isinstance(arguments, dict):
        return f"the arguments are {describe_type(arguments)}"
    return f"sent: {', '.join(map(str, arguments))}" if arguments else "no arguments were sent"


# What can be demanded of a call beside its arguments and result: outcome, channel, validity, grounding.


class BooleanCheck(Struct, frozen=True):
    """A demand on a call that holds or does not, and has no templates."""

    on_arguments: ClassVar[bool] = False
    has_templates: ClassVar[bool] = False
    size: ClassVar[int] = 0

    def bind(self, resolve: Callable[[Reference], Any]) -> Self:
        return self

    @abstractmethod
    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        """Whether `call` meets the demand."""

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
        detail = {"expected": self.outcome, "actual": call.outcome}
        return build_call_failure(self.key, "wrong_outcome", message, call, format_place(self.path), **detail)


def describe_failure(call: FunctionCall) -> str:
    """``timeout: "no answer"``: how a failed call failed."""
    error = call.result.get("error") if isinstance(call.result, dict) else None
    if isinstance(error, dict) and isinstance(error.get("type"), str):
        return f"{error['type']}: {format_value(error['message'])}" if "message" in error else error["type"]
    return format_value(call.result)


class ChannelCheck(BooleanCheck, frozen=True):
    """`channel`: how the call reached us."""

    channel: tuple[str, ...]
    path: KeyPath

    key: ClassVar[str] = "channel"

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        return call.channel in self.channel

    def report_pass(self, call: FunctionCall) -> CheckResult:
        return build_detailed_pass(self.key, f"arrived by channel '{call.channel}'")

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        expected = " or ".join(f"'{channel}'" for channel in self.channel)
        repaired = f" (repaired: {'; '.join(call.repairs)})" if call.repairs else ""
        message = f"arrived by channel '{call.channel}', expected {expected}{repaired}"
        detail = {"expected": list(self.channel), "actual": call.channel}
        return build_call_failure(self.key, "wrong_channel", message, call, format_place(self.path), **detail)


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
            return build_call_failure(self.key, "valid_arguments", message, call, format_place(self.path))
        return report_violations(call, self.key, format_place(self.path))


def report_violations(call: FunctionCall, key: str, place: str) -> CheckResult:
    """The result for a call whose arguments break the declared schema."""
    reasons, lines = [], []
    for violation in call.violations:
        schema = format_path(violation.schema_path)
        suffix = f" (schema: {schema})" if schema else ""
        lines.append(f"{format_path(('arguments', *violation.path))}: {violation.message}{suffix}")
        reasons.append(build_call_reason("invalid_arguments", lines[-1], call, place, path=violation.path))
    return build_failure(key, reasons, lines)


class GroundedCheck(BooleanCheck, frozen=True):
    """`grounded`: values of arguments that must be traceable (`evalkit.checks.grounding`). No names: all arguments."""

    grounded: tuple[str, ...]
    path: KeyPath
    declared_values: tuple[Any, ...] = ()  # values that the function's declaration itself offers

    key: ClassVar[str] = "grounded"

    def is_met(self, call: FunctionCall, evidence: Evidence) -> bool:
        return not self._find_untraced(call, evidence)

    def report_pass(self, call: FunctionCall) -> CheckResult:
        return build_pass(self.key, "traceable")

    def _find_untraced(self, call: FunctionCall, evidence: Evidence) -> list[tuple[KeyPath, Any]]:
        arguments = get_arguments(call)
        if not isinstance(arguments, dict):
            return [] if self.grounded else evidence.grounding.find_untraced(call, arguments, self.declared_values)
        chosen = {name: arguments[name] for name in self.grounded if name in arguments} if self.grounded else arguments
        return evidence.grounding.find_untraced(call, chosen, self.declared_values)

    def report_failure(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        reasons, lines = [], []
        for path, value in self._find_untraced(call, evidence):
            argument_path = format_path(("arguments", *path))
            lines.append(f"{argument_path}: {format_value(value)} is neither in the input nor in an earlier result")
            detail = {"path": path, "actual": value}
            reasons.append(build_call_reason("ungrounded_argument", lines[-1], call, format_place(self.path), **detail))
        return build_failure(self.key, reasons, lines)
