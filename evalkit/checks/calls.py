"""`expected_function_calls`: which call met which expectation, and whether that is what the case demands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from evalkit.checks.drafts import CallResult, CallsResult
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_call import ExpectedCall
from evalkit.checks.matching.plan import ActualCall, AnyOrder, CallPlan, InOrder, Leaf, Position
from evalkit.checks.reading import KeyPath
from evalkit.checks.reasons import build_pass
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import CheckResult, Score

if TYPE_CHECKING:
    from evalkit.checks.matching.assignment import Assignment

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
        from evalkit.checks.strays import find_disallowed_extras

        assignment = self.solve(leaves, evidence)
        stray = find_disallowed_extras(self.plan, leaves, assignment, evidence)
        if stray and assignment.satisfied:
            from evalkit.checks.strays import solve_without_disallowed

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
        from evalkit.checks.matching.solving import solve

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
