"""Keys on how a call went: its outcome, its time, whether its arguments are valid and traceable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from evalkit.checks.call_checks import get_arguments
from evalkit.checks.call_key import BooleanCheck, CallChange, CallDraft, CallExample, CallKey
from evalkit.checks.evidence import Evidence
from evalkit.checks.key_schemas import AMOUNT, BOOLEAN, NAME, NAME_LIST, NO_TEXT, make_ref
from evalkit.checks.reader import ExpectationReader, list_declared_values
from evalkit.checks.reasons import (
    build_failure,
    build_failures,
    build_pass,
    build_reason,
    describe_call,
    format_quantity,
)
from evalkit.checks.updates import Editor
from evalkit.errors import KeyPath, format_path
from evalkit.fields.reader import suggest_boolean
from evalkit.jsonvalue import JsonObject, JsonValue
from evalkit.records.transcript import MOCK, FunctionCall
from evalkit.records.verdict import CheckResult, Reason
from evalkit.text.format import format_value

OUTCOMES = ("ok", "error", "any")
FAILED_RESULT = {"error": {"type": "mutant", "message": "it failed"}}


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


class OutcomeKey(CallKey):
    """`outcome`."""

    name = "outcome"
    schema: Mapping[str, Any] = {"enum": list(OUTCOMES)}
    doc = "Whether the call must succeed (`ok`, the default), fail (`error`), or either."
    meant_doc = "Only calls that succeeded (`ok`), that failed (`error`), or `any`."
    mistakes: Mapping[str, str] = {"fail_call": "a call fails"}

    def read(self, draft: CallDraft, path: KeyPath, value: Any) -> OutcomeCheck | None:
        outcome = draft.reader.read_choice(path, value, OUTCOMES)
        return OutcomeCheck(outcome, path) if outcome in ("ok", "error") else None

    def get_actual(self, call: FunctionCall) -> JsonValue:
        return call.outcome

    def shape_example(self, example: CallExample, value: Any) -> None:
        example.fails = value == "error"

    def mutate(self, call: FunctionCall) -> Iterator[CallChange]:
        if call.outcome == "ok":
            yield CallChange("fail_call", "fails", replace(call, outcome="error", result=FAILED_RESULT), "ok")


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


class LatencyKey(CallKey):
    """`max_latency_ms`."""

    name = "max_latency_ms"
    schema = AMOUNT
    doc = "At most so many milliseconds for the function to answer, on the run's clock."

    def read(self, draft: CallDraft, path: KeyPath, value: Any) -> LatencyCheck | None:
        limit = draft.reader.read_number(path, value, minimum=0)
        return None if limit is None else LatencyCheck(limit, path)


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


class ValidKey(CallKey):
    """`valid`."""

    name = "valid"
    schema = BOOLEAN
    doc = "`false`: arguments that violate the declared schema are expected here."

    def read(self, draft: CallDraft, path: KeyPath, value: Any) -> ValidCheck | None:
        valid = draft.reader.read_boolean(path, value)
        return None if valid is None else ValidCheck(valid, path)

    def update(self, editor: Editor, path: KeyPath, reason: Reason, call: FunctionCall) -> None:
        editor.remove(path)


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


_BOOLEANS = frozenset({"yes", "no", "on", "off", "true", "false"})  # texts in YAML 1.2, and meant as something else


def read_grounded(reader: ExpectationReader, path: KeyPath, value: object) -> tuple[str, ...] | None:
    """Read the names of the arguments that must be grounded, () for all of them; None for none."""
    if value is True:
        return ()
    if value is False:
        return None
    if isinstance(value, list) or (isinstance(value, str) and value.lower() not in _BOOLEANS):
        return reader.read_names(path, value)
    listed = f" (an argument of that name: [{value}])" if isinstance(value, str) else ""
    reader.report_wrong(path, value, "true, or names of arguments", suggest_boolean(value) + listed)
    return None


class GroundedKey(CallKey):
    """`grounded`."""

    name = "grounded"
    schema = make_ref("grounded")
    doc = "Arguments of this call whose values must be traceable to the input or to an earlier result."
    definitions: Mapping[str, JsonObject] = {"grounded": {"oneOf": [BOOLEAN, {**NAME, **NO_TEXT}, NAME_LIST]}}
    looks_at_results = True

    def read(self, draft: CallDraft, path: KeyPath, value: Any) -> GroundedCheck | None:
        names = read_grounded(draft.reader, path, value)
        if names is None:
            return None
        for argument in names:
            draft.reader.check_argument(path, draft.function, argument)
        return GroundedCheck(names, path, list_declared_values(draft.declaration))


KEYS = (OutcomeKey(), LatencyKey(), ValidKey(), GroundedKey())
