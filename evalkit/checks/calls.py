"""`expected_function_calls`: which call met which expectation, and whether that is what the case demands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from evalkit.checks.call_checks import GroundedCheck, UnresolvedCheck, report_violations
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_calls import ExpectedCall
from evalkit.checks.judgement import CallResult, CallsResult
from evalkit.checks.matching.plan import ActualCall, AnyOrder, CallPlan, InOrder, Leaf, Position
from evalkit.checks.reasons import build_call_failure, build_failure, build_pass, build_run_failure
from evalkit.errors import KeyPath
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import PASSED, CheckResult, Score
from evalkit.text.format import format_value

if TYPE_CHECKING:
    from evalkit.checks.matching.plan import Assignment


_ALLOWED = build_pass("extra_calls", "not in the list, which extra_calls allows")
_NO_CALLS = Score()


class ExpectedCallList(Struct, frozen=True):
    """`expected_function_calls` with the keys that say how the list is judged."""

    path: KeyPath
    leaves: tuple[ExpectedCall, ...]
    plan: CallPlan
    groups: Mapping[Position, KeyPath] = field(default_factory=dict)  # where groups of the plan stand in the case
    min_score: tuple[tuple[str, float], ...] = ()
    is_plain: bool = (
        True  # every child of the root is one call, made once: the list itself is the assignment to try first
    )

    key = "expected_function_calls"

    @property
    def forbids_extras(self) -> bool:
        return self.plan.extras == "forbid" or not self.leaves

    def judge(self, evidence: Evidence) -> CallsResult:
        """Hold the calls against the list."""
        leaves = self.bind(evidence)
        calls = evidence.calls
        if self.is_plain and len(calls) == len(leaves) and _is_met_in_turn(leaves, calls, evidence):
            drafts = [CallResult(call, leaf, leaf.report_pass(call)) for leaf, call in zip(leaves, calls, strict=True)]
            return CallsResult(drafts, [_build_all_met(len(leaves))], _NO_CALLS)
        from evalkit.checks.disallowed_extras import find_disallowed_extras

        assignment = self.solve(leaves, evidence)
        stray = find_disallowed_extras(self.plan, leaves, assignment, evidence)
        if stray and assignment.satisfied:
            from evalkit.checks.disallowed_extras import solve_without_disallowed

            better = solve_without_disallowed(self, leaves, evidence)
            assignment, stray = (better, ()) if better is not None else (assignment, stray)
        if assignment.satisfied and not stray:
            return self._build_satisfied(leaves, assignment, evidence)
        from evalkit.checks.explanation import explain

        return explain(self, leaves, assignment, stray, evidence)

    def bind(self, evidence: Evidence) -> tuple[ExpectedCall, ...]:
        """The expected calls with templates rendered; those that depend on the call they meet are rendered then."""
        for leaf in self.leaves:
            if leaf.has_templates:
                return tuple(leaf if leaf.per_call else leaf.bind(evidence.resolve) for leaf in self.leaves)
        return self.leaves

    def solve(
        self,
        leaves: tuple[ExpectedCall, ...],
        evidence: Evidence,
        plan: CallPlan | None = None,
        without: Collection[int] = (),
    ) -> Assignment:
        """The best assignment. Calls are known to the matching by their place among those that are judged."""
        from evalkit.checks.matching.solver import solve

        calls = evidence.calls
        actual = [ActualCall(place, call.name, call.turn) for place, call in enumerate(calls) if place not in without]
        return solve(
            plan or self.plan,
            actual,
            lambda leaf, place: leaves[leaf].is_met_by(calls[place], evidence),
            lambda leaf, place: leaves[leaf].measure_distance(calls[place], evidence),
        )

    def _build_satisfied(
        self, leaves: tuple[ExpectedCall, ...], assignment: Assignment, evidence: Evidence
    ) -> CallsResult:
        drafts = [CallResult(call) for call in evidence.calls]
        for pair in assignment.pairs:
            draft = drafts[pair.actual_index]
            draft.leaf = leaves[pair.leaf_id]
            draft.results = draft.leaf.bind_to_call(evidence.calls[pair.actual_index], evidence).report_pass(
                evidence.calls[pair.actual_index]
            )
        for place in assignment.extra:
            drafts[place].add(_ALLOWED)
        return CallsResult(drafts, [_build_all_met(len(assignment.pairs))], _NO_CALLS)


def _is_met_in_turn(leaves: tuple[ExpectedCall, ...], calls: tuple[FunctionCall, ...], evidence: Evidence) -> bool:
    """Whether the calls meet the list one by one. That satisfies it in any order too, and is the usual case."""
    for leaf, call in zip(leaves, calls, strict=True):  # noqa: SIM110 - a generator costs more than the checks
        if not leaf.is_met_by(call, evidence):
            return False
    return True


def _build_all_met(count: int) -> CheckResult:
    if not count:
        return build_pass("expected_function_calls", "no call was made")
    return build_pass("expected_function_calls", f"{count} call{'' if count == 1 else 's'} as expected")


def is_plain_list(plan: CallPlan) -> bool:
    """Whether the plan is a plain list of calls that are made once each."""
    root = plan.root
    return isinstance(root, (InOrder, AnyOrder)) and all(
        isinstance(child, Leaf) and child.min <= 1 and (child.max is None or child.max >= 1) for child in root.children
    )


# What holds for every call of a run, expected or not: answered, with valid arguments, not forbidden.

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
        from evalkit.checks.explanation import describe_demand

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
