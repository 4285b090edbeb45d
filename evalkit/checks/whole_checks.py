"""What can be demanded of a call beside its arguments and result: outcome, channel, validity, grounding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

from msgspec import Struct

from evalkit.checks.call_checks import get_arguments
from evalkit.checks.evidence import Evidence
from evalkit.checks.reading import KeyPath
from evalkit.checks.reasons import (
    build_call_failure,
    build_call_reason,
    build_detailed_pass,
    build_failure,
    build_pass,
    format_place,
)
from evalkit.errors import format_path
from evalkit.model.template import Reference
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import CheckResult
from evalkit.operators.shown import format_value


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
