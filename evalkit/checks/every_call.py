"""What holds for every call of a run, expected or not: answered, with valid arguments, not forbidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from evalkit.checks.call_checks import UnresolvedCheck
from evalkit.checks.drafts import Draft
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_call import ExpectedCall
from evalkit.checks.reading import Path
from evalkit.checks.reasons import failed, failed_call, failing, passing
from evalkit.checks.whole_checks import GroundedCheck, violated
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import PASSED, CheckResult
from evalkit.operators.shown import shown

_NO_WORDS = {
    "unmocked_call": "no mock answers this call",
    "unknown_function": "no function of this name is declared",
    "malformed_call": "the arguments could not be read",
}


def add_problems(drafts: Sequence[Draft], *, valid_arguments: bool) -> None:
    """Fail the calls that fail the case by themselves, whatever it expects.

    A call that is held against an expected one has its arguments judged there (`valid: false` may expect violations).
    """
    for draft in drafts:
        call = draft.call
        if call is None:
            continue
        if call.problem is not None:
            told = (one for one in draft.results if one.check != "outcome" or one.status == PASSED)  # that it failed
            draft.results = (_problem(call, call.problem), *told)
        if call.violations and valid_arguments and draft.leaf is None:
            draft.add(violated(call, "valid_arguments", ""))


def _problem(call: FunctionCall, code: str) -> CheckResult:
    place = "input.mock_function_responses" if code == "unmocked_call" else ""
    return failed_call(code, code, _told(call) or _NO_WORDS.get(code, code), call, place)


def _told(call: FunctionCall) -> str:
    """What the agent was told of a call that was refused."""
    error = call.result.get("error") if isinstance(call.result, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    if isinstance(message, str) and message:
        return message
    nothing = call.arguments is None or (type(call.arguments) is dict and not call.arguments)
    if call.problem == "malformed_call" and not nothing:
        return f"the arguments could not be read: {shown(call.arguments)}"
    return ""


class ForbiddenCalls(Struct, frozen=True):
    """`forbidden_function_calls`: calls that must not be attempted."""

    forbidden: tuple[ExpectedCall, ...]
    path: Path

    key = "forbidden_function_calls"

    def judge(self, drafts: Sequence[Draft], evidence: Evidence) -> CheckResult:
        """Fail each call that is forbidden."""
        found = 0
        for entry in self.forbidden:
            bound = entry.bind(evidence.resolve)
            for check in bound.checks:
                if isinstance(check, UnresolvedCheck):
                    return failed(self.key, "unresolved_reference", check.message, entry.place)
            for draft in drafts:
                if draft.call is not None and bound.fits(draft.call, evidence):
                    draft.results = (self._forbidden(draft.call, bound), *draft.results)
                    found += 1
        if not found:
            return passing(self.key, "none was made")
        return failing(self.key, (), [f"{found} forbidden call{'' if found == 1 else 's'} made"])

    def _forbidden(self, call: FunctionCall, entry: ExpectedCall) -> CheckResult:
        from evalkit.checks.sentences import demand

        what = demand(entry)
        message = f"forbidden: {what} must not be called"
        return failed_call(self.key, "forbidden_call", message, call, entry.place)


class GroundedCalls(Struct, frozen=True):
    """`grounded` of the whole case: the same demand on every call."""

    grounded: tuple[str, ...]
    path: Path
    offered: tuple[tuple[str, tuple[Any, ...]], ...] = ()  # by function: the values that its declaration offers

    key = "grounded"

    def judge(self, drafts: Sequence[Draft], evidence: Evidence) -> CheckResult:
        """Fail each call with a value that can't be traced."""
        offered = dict(self.offered)
        found = 0
        for draft in drafts:
            call = draft.call
            if call is None:
                continue
            check = GroundedCheck(self.grounded, self.path, offered.get(call.name, ()))
            if not check.holds(call, evidence):
                draft.add(check.failed(call, evidence))
                found += 1
        if not found:
            return passing(self.key, "every value is traceable")
        return failing(self.key, (), [f"{found} call{'' if found == 1 else 's'} with untraceable values"])


def read_forbidden(calls: Any, path: Path, value: Any) -> ForbiddenCalls | None:
    """One forbidden call, or a list of them."""
    items = value if isinstance(value, list) else [value]
    read = [
        calls.forbidden((*path, index) if isinstance(value, list) else path, item) for index, item in enumerate(items)
    ]
    entries = tuple(entry for entry in read if entry is not None)
    return ForbiddenCalls(entries, path) if entries else None
