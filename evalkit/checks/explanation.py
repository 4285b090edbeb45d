"""Why the calls are not as expected: the best assignment in words, call by call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evalkit.checks.drafts import CallsJudged, Draft
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_call import ExpectedCall
from evalkit.checks.matching.assignment import Assignment, Pair
from evalkit.checks.reasons import NOT_JUDGED, failed, failed_call, passing, place_of, unmeasured
from evalkit.checks.scoring import judged_by_score, score
from evalkit.checks.sentences import Sentences
from evalkit.checks.strays import Stray
from evalkit.model.verdict import FAILED, PASSED, CheckResult

if TYPE_CHECKING:
    from evalkit.checks.calls import FunctionCalls

_KEY = "expected_function_calls"


def explain(
    expected: FunctionCalls,
    leaves: tuple[ExpectedCall, ...],
    assignment: Assignment,
    strays: Sequence[Stray],
    evidence: Evidence,
) -> CallsJudged:
    """Everything that is wrong with the calls, in the order of the trace."""
    return _Explanation(expected, leaves, assignment, strays, evidence).judged()


class _Explanation:
    def __init__(
        self,
        expected: FunctionCalls,
        leaves: tuple[ExpectedCall, ...],
        assignment: Assignment,
        strays: Sequence[Stray],
        evidence: Evidence,
    ) -> None:
        self.expected = expected
        self.leaves = leaves
        self.assignment = assignment
        self.evidence = evidence
        self.calls = evidence.calls
        self.drafts = [Draft(call) for call in self.calls]
        self.sentences = Sentences(expected, leaves, assignment, self.calls)
        self.strays = {stray.place: stray for stray in strays}

    def judged(self) -> CallsJudged:
        for pair in self.assignment.pairs:
            self._held(pair)
        for pair in self.assignment.wrong_order:
            self._held(pair)
            self._add(pair.actual_index, self._wrong_order(pair))
        for place in self.assignment.extra:
            self._extra(place)
        self._not_parallel()
        found = score(self.leaves, self.assignment, self.strays, self.expected.forbids_extras, self.evidence)
        drafts = self._with_missing()
        results = [*self._unproven(), self._met(drafts)]
        if self.expected.min_score:
            judged = judged_by_score(self.expected.min_score, found, self.expected.path)
            results.append(judged)
            if judged.status == PASSED:
                drafts = [_decided_by_score(draft) for draft in drafts]
                results = [_tolerated(result) for result in results]
        return CallsJudged(drafts, results, found)

    def _met(self, drafts: list[Draft]) -> CheckResult:
        """What the list as a whole came to; the reasons stand with the calls."""
        held = [draft for draft in drafts if draft.leaf is not None]
        met = sum(all(result.status == PASSED for result in draft.results) for draft in held)
        miscounted = sum(stray.miscounted for stray in self.strays.values())
        extra = len(self.assignment.extra) if self.expected.forbids_extras else miscounted
        wrong = met < len(held) or extra
        also = f", {extra} unexpected" if extra else ""
        status = FAILED if wrong else PASSED
        return CheckResult(check=_KEY, status=status, message=f"{met} of {len(held)} expected calls met{also}")

    def _add(self, place: int, result: CheckResult) -> None:
        self.drafts[place].add(result)

    def _held(self, pair: Pair) -> None:
        """A call and the expectation that it was held against."""
        leaf, call = self.leaves[pair.leaf_id], self.calls[pair.actual_index]
        draft = self.drafts[pair.actual_index]
        draft.leaf = leaf
        results = leaf.results(call, self.evidence)
        draft.results = tuple(self._in_alternative(result, leaf) for result in results)

    def _in_alternative(self, result: CheckResult, leaf: ExpectedCall) -> CheckResult:
        """A failure inside `one_of` says that it is the closest alternative that it speaks of."""
        suffix = self.sentences.alternative(leaf) if result.status == FAILED else ""
        if not suffix:
            return result
        reasons = tuple(replace(reason, message=f"{reason.message}{suffix}") for reason in result.reasons)
        return replace(result, message=f"{result.message}{suffix}", reasons=reasons)

    def _wrong_order(self, pair: Pair) -> CheckResult:
        leaf, call = self.leaves[pair.leaf_id], self.calls[pair.actual_index]
        return failed_call("call_order", "wrong_order", self.sentences.wrong_order(pair), call, leaf.place)

    def _extra(self, place: int) -> None:
        call = self.calls[place]
        stray = self.strays.get(place)
        if stray is not None and not stray.miscounted:
            self._held(Pair(stray.leaf.id, place, False))
        elif stray is not None:
            message = self.sentences.miscounted(stray.leaf)
            self._add(place, failed_call("times", "unexpected_call", message, call, f"{stray.leaf.place}.times"))
        elif self.expected.forbids_extras:
            message = self.sentences.unexpected(call)
            at = place_of(self.expected.path)
            self._add(place, failed_call("extra_calls", "unexpected_call", message, call, at))
        else:
            self._add(place, passing("extra_calls", "not in the list, which extra_calls allows"))

    def _not_parallel(self) -> None:
        """Groups whose calls stand in several turns: each call outside the first call's turn is told."""
        for position in self.assignment.not_parallel:
            path = self.expected.groups[position]
            places = self._places(path)
            first = self.calls[places[0]]
            for place in places[1:]:
                call = self.calls[place]
                if call.turn != first.turn:
                    message = self.sentences.not_parallel(call, first)
                    self._add(place, failed_call("in_parallel", "not_parallel", message, call, place_of(path)))

    def _unproven(self) -> list[CheckResult]:
        message = (
            "can't be judged: the calls do not say in which model turn they were made; let evalkit see the model's "
            "turns (task.turn, an adapter, an HTTP cassette), or ask for any_order"
        )
        return [
            unmeasured("in_parallel", message, place_of(self.expected.groups[position]), "run")
            for position in self.assignment.unproven
        ]

    def _places(self, path: tuple[str | int, ...]) -> list[int]:
        """The calls that met expectations below `path`, in their place or out of order."""
        met = (*self.assignment.pairs, *self.assignment.wrong_order)
        return sorted(pair.actual_index for pair in met if self.leaves[pair.leaf_id].path[: len(path)] == path)

    def _with_missing(self) -> list[Draft]:
        """The drafts, each missing call after the call that met the expectation before it."""
        last_place = {
            pair.leaf_id: pair.actual_index for pair in (*self.assignment.pairs, *self.assignment.wrong_order)
        }
        after: dict[int, list[Draft]] = {}
        for leaf_id, count in self.assignment.missing:
            place = next((last_place[i] for i in range(leaf_id, -1, -1) if i in last_place), -1)
            after.setdefault(place, []).append(self._missing(self.leaves[leaf_id], count))
        drafts = list(after.get(-1, []))
        for place, draft in enumerate(self.drafts):
            drafts += [draft, *after.get(place, [])]
        return drafts

    def _missing(self, leaf: ExpectedCall, count: int) -> Draft:
        message = self.sentences.missing(leaf, count) + self.sentences.alternative(leaf)
        return Draft(None, leaf, (failed(_KEY, "missing_call", message, leaf.place),))


def _decided_by_score(draft: Draft) -> Draft:
    """Deviations that `min_score` tolerates are told, and decide nothing."""
    return Draft(draft.call, draft.leaf, tuple(_tolerated(result) for result in draft.results))


def _tolerated(result: CheckResult) -> CheckResult:
    if result.status != FAILED or result.check == "valid_arguments":  # which holds for every call, matched or not
        return result
    return replace(result, status=NOT_JUDGED, reasons=())
