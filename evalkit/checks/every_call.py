"""What holds for every call of a run, expected or not: answered, with valid arguments, not forbidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from evalkit.checks.call_checks import UnresolvedCheck
from evalkit.checks.drafts import CallResult
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_call import ExpectedCall
from evalkit.checks.reading import KeyPath
from evalkit.checks.reasons import build_call_failure, build_failure, build_pass, build_run_failure
from evalkit.checks.whole_checks import GroundedCheck, report_violations
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import PASSED, CheckResult
from evalkit.operators.shown import format_value

_DEFAULT_MESSAGES = {
    "unmocked_call": "no mock answers this call",
    "unknown_function": "no function of this name is declared",
    "malformed_call": "the arguments could not be read",
}


def add_problems(drafts: Sequence[CallResult], *, valid_arguments: bool) -> None:
    """Fail the calls that fail the case by themselves, whatever it expects.

    A call that is held against an expected one has its arguments judged there (`valid: false` may expect violations).
    """
    for draft in drafts:
        call = draft.call
        if call is None:
            continue
        if call.problem is not None:
            results = (
                result for result in draft.results if result.check != "outcome" or result.status == PASSED
            )  # that it failed
            draft.results = (_build_problem(call, call.problem), *results)
        if call.violations and valid_arguments and draft.leaf is None:
            draft.add(report_violations(call, "valid_arguments", ""))


def _build_problem(call: FunctionCall, code: str) -> CheckResult:
    place = "input.mock_function_responses" if code == "unmocked_call" else ""
    return build_call_failure(code, code, _find_error_message(call) or _DEFAULT_MESSAGES.get(code, code), call, place)


def _find_error_message(call: FunctionCall) -> str:
    """What the agent was told of a call that was refused."""
    error = call.result.get("error") if isinstance(call.result, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    if isinstance(message, str) and message:
        return message
    nothing = call.arguments is None or (type(call.arguments) is dict and not call.arguments)
    if call.problem == "malformed_call" and not nothing:
        return f"the arguments could not be read: {format_value(call.arguments)}"
    return ""


class ForbiddenCalls(Struct, frozen=True):
    """`forbidden_function_calls`: calls that must not be attempted."""

    forbidden: tuple[ExpectedCall, ...]
    path: KeyPath

    key = "forbidden_function_calls"

    def judge(self, drafts: Sequence[CallResult], evidence: Evidence) -> CheckResult:
        """Fail each call that is forbidden."""
        count = 0
        for entry in self.forbidden:
            bound_entry = entry.bind(evidence.resolve)
            for check in bound_entry.checks:
                if isinstance(check, UnresolvedCheck):
                    return build_run_failure(self.key, "unresolved_reference", check.message, entry.place)
            for draft in drafts:
                if draft.call is not None and bound_entry.is_met_by(draft.call, evidence):
                    draft.results = (self._build_forbidden(draft.call, bound_entry), *draft.results)
                    count += 1
        if not count:
            return build_pass(self.key, "none was made")
        return build_failure(self.key, (), [f"{count} forbidden call{'' if count == 1 else 's'} made"])

    def _build_forbidden(self, call: FunctionCall, entry: ExpectedCall) -> CheckResult:
        from evalkit.checks.sentences import describe_demand

        demand_text = describe_demand(entry)
        message = f"forbidden: {demand_text} must not be called"
        return build_call_failure(self.key, "forbidden_call", message, call, entry.place)


class GroundedCalls(Struct, frozen=True):
    """`grounded` of the whole case: the same demand on every call."""

    grounded: tuple[str, ...]
    path: KeyPath
    declared_values: tuple[tuple[str, tuple[Any, ...]], ...] = ()  # by function: the values that its declaration offers

    key = "grounded"

    def judge(self, drafts: Sequence[CallResult], evidence: Evidence) -> CheckResult:
        """Fail each call with a value that can't be traced."""
        declared_values = dict(self.declared_values)
        count = 0
        for draft in drafts:
            call = draft.call
            if call is None:
                continue
            check = GroundedCheck(self.grounded, self.path, declared_values.get(call.name, ()))
            if not check.is_met(call, evidence):
                draft.add(check.report_failure(call, evidence))
                count += 1
        if not count:
            return build_pass(self.key, "every value is traceable")
        return build_failure(self.key, (), [f"{count} call{'' if count == 1 else 's'} with untraceable values"])


def read_forbidden(calls: Any, path: KeyPath, value: Any) -> ForbiddenCalls | None:
    """One forbidden call, or a list of them."""
    items = value if isinstance(value, list) else [value]
    read = [
        calls.forbidden((*path, index) if isinstance(value, list) else path, item) for index, item in enumerate(items)
    ]
    entries = tuple(entry for entry in read if entry is not None)
    return ForbiddenCalls(entries, path) if entries else None
