"""What can be demanded of one call: each key of an expected call is a frozen check, held against actual calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.evidence import Evidence
from evalkit.checks.reading import KeyPath
from evalkit.checks.reasons import build_call_failure, build_call_reason, build_failure, build_pass, format_place
from evalkit.model.template import Reference, TemplateError
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import CheckResult, Reason
from evalkit.operators.equality import is_json_equal
from evalkit.operators.matcher import Matcher, Mismatch
from evalkit.operators.shown import format_value
from evalkit.operators.structure import MappingMatcher
from evalkit.operators.values import Equal

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
