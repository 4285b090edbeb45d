"""What can be demanded of a call beside its arguments and result: outcome, channel, validity, grounding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

from msgspec import Struct

from evalkit.checks.call_checks import arguments_of
from evalkit.checks.evidence import Evidence
from evalkit.checks.reading import Path
from evalkit.checks.reasons import call_reason, failed_call, failing, passed, passing, place_of
from evalkit.errors import shown_path
from evalkit.model.template import Reference
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import CheckResult
from evalkit.operators.shown import shown


class WholeCheck(Struct, frozen=True):
    """A demand on a call that holds or does not, and has no templates."""

    on_arguments: ClassVar[bool] = False
    has_templates: ClassVar[bool] = False
    size: ClassVar[int] = 0

    def bind(self, resolve: Callable[[Reference], Any]) -> Self:
        return self

    @abstractmethod
    def holds(self, call: FunctionCall, evidence: Evidence) -> bool:
        """Whether `call` meets the demand."""

    def counted(self, call: FunctionCall, evidence: Evidence) -> tuple[int, int]:
        return int(self.holds(call, evidence)), 1


class OutcomeCheck(WholeCheck, frozen=True):
    """`outcome`: whether the call succeeded (`ok`) or failed (`error`)."""

    outcome: str
    path: Path

    key: ClassVar[str] = "outcome"

    def holds(self, call: FunctionCall, evidence: Evidence) -> bool:
        return call.outcome == self.outcome

    def passed(self, call: FunctionCall) -> CheckResult:
        return passing(self.key, "succeeded" if self.outcome == "ok" else "failed, as expected")

    def failed(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        message = "succeeded, expected outcome 'error'"
        if self.outcome == "ok":
            message = f"failed, expected outcome 'ok': {failure(call)}"
        detail = {"expected": self.outcome, "actual": call.outcome}
        return failed_call(self.key, "wrong_outcome", message, call, place_of(self.path), **detail)


def failure(call: FunctionCall) -> str:
    """``timeout: "no answer"``: how a failed call failed."""
    error = call.result.get("error") if isinstance(call.result, dict) else None
    if isinstance(error, dict) and isinstance(error.get("type"), str):
        return f"{error['type']}: {shown(error['message'])}" if "message" in error else error["type"]
    return shown(call.result)


class ChannelCheck(WholeCheck, frozen=True):
    """`channel`: how the call reached us."""

    channel: tuple[str, ...]
    path: Path

    key: ClassVar[str] = "channel"

    def holds(self, call: FunctionCall, evidence: Evidence) -> bool:
        return call.channel in self.channel

    def passed(self, call: FunctionCall) -> CheckResult:
        return passed(self.key, f"arrived by channel '{call.channel}'")

    def failed(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        wanted = " or ".join(f"'{channel}'" for channel in self.channel)
        repaired = f" (repaired: {'; '.join(call.repairs)})" if call.repairs else ""
        message = f"arrived by channel '{call.channel}', expected {wanted}{repaired}"
        detail = {"expected": list(self.channel), "actual": call.channel}
        return failed_call(self.key, "wrong_channel", message, call, place_of(self.path), **detail)


class ValidCheck(WholeCheck, frozen=True):
    """`valid`, and `valid_arguments` of the whole case: whether the arguments satisfy the declared schema."""

    valid: bool
    path: Path
    key: str = "valid"

    def holds(self, call: FunctionCall, evidence: Evidence) -> bool:
        return self.valid is not bool(call.violations)

    def passed(self, call: FunctionCall) -> CheckResult:
        return passing(self.key, "arguments valid" if self.valid else "arguments invalid, as expected")

    def failed(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        if not self.valid:
            message = "arguments satisfy the declared schema, expected them to violate it (valid: false)"
            return failed_call(self.key, "valid_arguments", message, call, place_of(self.path))
        return violated(call, self.key, place_of(self.path))


def violated(call: FunctionCall, key: str, place: str) -> CheckResult:
    """The result for a call whose arguments break the declared schema."""
    reasons, lines = [], []
    for violation in call.violations:
        schema = shown_path(violation.schema_path)
        where = f" (schema: {schema})" if schema else ""
        lines.append(f"{shown_path(('arguments', *violation.path))}: {violation.message}{where}")
        reasons.append(call_reason("invalid_arguments", lines[-1], call, place, path=violation.path))
    return failing(key, reasons, lines)


class GroundedCheck(WholeCheck, frozen=True):
    """`grounded`: values of arguments that must be traceable (`evalkit.checks.grounding`). No names: all arguments."""

    grounded: tuple[str, ...]
    path: Path
    offered: tuple[Any, ...] = ()  # values that the function's declaration itself offers

    key: ClassVar[str] = "grounded"

    def holds(self, call: FunctionCall, evidence: Evidence) -> bool:
        return not self._untraced(call, evidence)

    def passed(self, call: FunctionCall) -> CheckResult:
        return passing(self.key, "traceable")

    def _untraced(self, call: FunctionCall, evidence: Evidence) -> list[tuple[Path, Any]]:
        arguments = arguments_of(call)
        if not isinstance(arguments, dict):
            return [] if self.grounded else evidence.grounding.untraced(call, arguments, self.offered)
        chosen = {name: arguments[name] for name in self.grounded if name in arguments} if self.grounded else arguments
        return evidence.grounding.untraced(call, chosen, self.offered)

    def failed(self, call: FunctionCall, evidence: Evidence) -> CheckResult:
        reasons, lines = [], []
        for path, value in self._untraced(call, evidence):
            where = shown_path(("arguments", *path))
            lines.append(f"{where}: {shown(value)} is neither in the input nor in an earlier result")
            detail = {"path": path, "actual": value}
            reasons.append(call_reason("ungrounded_argument", lines[-1], call, place_of(self.path), **detail))
        return failing(self.key, reasons, lines)
