"""`expected_function_calls`: which call met which expectation, and whether that is what the case demands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from evalkit.checks.drafts import CallsJudged, Draft
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_call import ExpectedCall
from evalkit.checks.matching.plan import ActualCall, AnyOrder, InOrder, Leaf, Plan, Position
from evalkit.checks.reading import Path
from evalkit.checks.reasons import passing
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import CheckResult, Score

if TYPE_CHECKING:
    from evalkit.checks.matching.assignment import Assignment

_ALLOWED = passing("extra_calls", "not in the list, which extra_calls allows")
_NO_CALLS = Score()


class FunctionCalls(Struct, frozen=True):
    """`expected_function_calls` with the keys that say how the list is judged."""

    path: Path
    leaves: tuple[ExpectedCall, ...]
    plan: Plan
    groups: Mapping[Position, Path] = field(default_factory=dict)  # where groups of the plan stand in the case
    min_score: tuple[tuple[str, float], ...] = ()
    listed: bool = (
        True  # every child of the root is one call, made once: the list itself is the assignment to try first
    )

    key = "expected_function_calls"

    @property
    def forbids_extras(self) -> bool:
        return self.plan.extras == "forbid" or not self.leaves

    def judge(self, evidence: Evidence) -> CallsJudged:
        """Hold the calls against the list."""
        leaves = self.bound(evidence)
        calls = evidence.calls
        if self.listed and len(calls) == len(leaves) and _meet_in_turn(leaves, calls, evidence):
            drafts = [Draft(call, leaf, leaf.passed(call)) for leaf, call in zip(leaves, calls, strict=True)]
            return CallsJudged(drafts, [_all_met(len(leaves))], _NO_CALLS)
        from evalkit.checks.strays import strays

        assignment = self.solve(leaves, evidence)
        stray = strays(self.plan, leaves, assignment, evidence)
        if stray and assignment.satisfied:
            from evalkit.checks.strays import without_strays

            better = without_strays(self, leaves, evidence)
            assignment, stray = (better, ()) if better is not None else (assignment, stray)
        if assignment.satisfied and not stray:
            return self._satisfied(leaves, assignment, evidence)
        from evalkit.checks.explanation import explain

        return explain(self, leaves, assignment, stray, evidence)

    def bound(self, evidence: Evidence) -> tuple[ExpectedCall, ...]:
        """The expected calls with templates rendered; those that depend on the call they meet are rendered then."""
        for leaf in self.leaves:
            if leaf.has_templates:
                return tuple(leaf if leaf.per_call else leaf.bind(evidence.resolve) for leaf in self.leaves)
        return self.leaves

    def solve(
        self,
        leaves: tuple[ExpectedCall, ...],
        evidence: Evidence,
        plan: Plan | None = None,
        without: Collection[int] = (),
    ) -> Assignment:
        """The best assignment. Calls are known to the matching by their place among those that are judged."""
        from evalkit.checks.matching.solving import solve

        calls = evidence.calls
        actual = [ActualCall(place, call.name, call.turn) for place, call in enumerate(calls) if place not in without]
        return solve(
            plan or self.plan,
            actual,
            lambda leaf, place: leaves[leaf].fits(calls[place], evidence),
            lambda leaf, place: leaves[leaf].distance(calls[place], evidence),
        )

    def _satisfied(self, leaves: tuple[ExpectedCall, ...], assignment: Assignment, evidence: Evidence) -> CallsJudged:
        drafts = [Draft(call) for call in evidence.calls]
        for pair in assignment.pairs:
            draft = drafts[pair.actual_index]
            draft.leaf = leaves[pair.leaf_id]
            draft.results = draft.leaf.for_call(evidence.calls[pair.actual_index], evidence).passed(
                evidence.calls[pair.actual_index]
            )
        for place in assignment.extra:
            drafts[place].add(_ALLOWED)
        return CallsJudged(drafts, [_all_met(len(assignment.pairs))], _NO_CALLS)


def _meet_in_turn(leaves: tuple[ExpectedCall, ...], calls: tuple[FunctionCall, ...], evidence: Evidence) -> bool:
    """Whether the calls meet the list one by one. That satisfies it in any order too, and is the usual case."""
    for leaf, call in zip(leaves, calls, strict=True):  # noqa: SIM110 - a generator costs more than the checks
        if not leaf.fits(call, evidence):
            return False
    return True


def _all_met(count: int) -> CheckResult:
    if not count:
        return passing("expected_function_calls", "no call was made")
    return passing("expected_function_calls", f"{count} call{'' if count == 1 else 's'} as expected")


def is_listed(plan: Plan) -> bool:
    """Whether the plan is a plain list of calls that are made once each."""
    root = plan.root
    return isinstance(root, (InOrder, AnyOrder)) and all(
        isinstance(child, Leaf) and child.min <= 1 and (child.max is None or child.max >= 1) for child in root.children
    )
