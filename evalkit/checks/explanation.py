"""Why the calls are not as expected: the best assignment in words, call by call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evalkit.checks.drafts import CallResult, CallsResult
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_call import ExpectedCall
from evalkit.checks.matching.assignment import Assignment, Pair
from evalkit.checks.reasons import (
    NOT_JUDGED,
    build_call_failure,
    build_pass,
    build_run_failure,
    build_unmeasured,
    format_place,
)
from evalkit.checks.scoring import compute_score, judge_score
from evalkit.checks.sentences import Sentences
from evalkit.checks.strays import DisallowedExtra
from evalkit.model.verdict import FAILED, PASSED, CheckResult

if TYPE_CHECKING:
    from evalkit.checks.calls import ExpectedCallList

_KEY = "expected_function_calls"


def explain(
    expected: ExpectedCallList,
    leaves: tuple[ExpectedCall, ...],
    assignment: Assignment,
    disallowed: Sequence[DisallowedExtra],
    evidence: Evidence,
) -> CallsResult:
    """Everything that is wrong with the calls, in the order of the trace."""
    return _Explanation(expected, leaves, assignment, disallowed, evidence).build()


class _Explanation:
    def __init__(
        self,
        expected: ExpectedCallList,
        leaves: tuple[ExpectedCall, ...],
        assignment: Assignment,
        disallowed: Sequence[DisallowedExtra],
        evidence: Evidence,
    ) -> None:
        self.expected = expected
        self.leaves = leaves
        self.assignment = assignment
        self.evidence = evidence
        self.calls = evidence.calls
        self.drafts = [CallResult(call) for call in self.calls]
        self.sentences = Sentences(expected, leaves, assignment, self.calls)
        self.disallowed = {stray.place: stray for stray in disallowed}

    def build(self) -> CallsResult:
        for pair in self.assignment.pairs:
            self._compare(pair)
        for pair in self.assignment.wrong_order:
            self._compare(pair)
            self._add(pair.actual_index, self._build_wrong_order(pair))
        for place in self.assignment.extra:
            self._judge_extra(place)
        self._judge_parallel_groups()
        score = compute_score(
            self.leaves, self.assignment, self.disallowed, self.expected.forbids_extras, self.evidence
        )
        drafts = self._insert_missing()
        results = [*self._list_unproven(), self._judge_list(drafts)]
        if self.expected.min_score:
            judged = judge_score(self.expected.min_score, score, self.expected.path)
            results.append(judged)
            if judged.status == PASSED:
                drafts = [_clear_tolerated(draft) for draft in drafts]
                results = [_tolerate(result) for result in results]
        return CallsResult(drafts, results, score)

    def _judge_list(self, drafts: list[CallResult]) -> CheckResult:
        """What the list as a whole came to; the reasons stand with the calls."""
        compared = [draft for draft in drafts if draft.leaf is not None]
        met = sum(all(result.status == PASSED for result in draft.results) for draft in compared)
        miscounted = sum(stray.miscounted for stray in self.disallowed.values())
        extra = len(self.assignment.extra) if self.expected.forbids_extras else miscounted
        wrong = met < len(compared) or extra
        also = f", {extra} unexpected" if extra else ""
        status = FAILED if wrong else PASSED
        return CheckResult(check=_KEY, status=status, message=f"{met} of {len(compared)} expected calls met{also}")

    def _add(self, place: int, result: CheckResult) -> None:
        self.drafts[place].add(result)

    def _compare(self, pair: Pair) -> None:
        """A call and the expectation that it was held against."""
        leaf, call = self.leaves[pair.leaf_id], self.calls[pair.actual_index]
        draft = self.drafts[pair.actual_index]
        draft.leaf = leaf
        results = leaf.report_results(call, self.evidence)
        draft.results = tuple(self._mark_alternative(result, leaf) for result in results)

    def _mark_alternative(self, result: CheckResult, leaf: ExpectedCall) -> CheckResult:
        """A failure inside `one_of` says that it is the closest alternative that it speaks of."""
        suffix = self.sentences.format_alternative(leaf) if result.status == FAILED else ""
        if not suffix:
            return result
        reasons = tuple(replace(reason, message=f"{reason.message}{suffix}") for reason in result.reasons)
        return replace(result, message=f"{result.message}{suffix}", reasons=reasons)

    def _build_wrong_order(self, pair: Pair) -> CheckResult:
        leaf, call = self.leaves[pair.leaf_id], self.calls[pair.actual_index]
        return build_call_failure(
            "call_order", "wrong_order", self.sentences.describe_wrong_order(pair), call, leaf.place
        )

    def _judge_extra(self, place: int) -> None:
        call = self.calls[place]
        stray = self.disallowed.get(place)
        if stray is not None and not stray.miscounted:
            self._compare(Pair(stray.leaf.id, place, False))
        elif stray is not None:
            message = self.sentences.describe_miscounted(stray.leaf)
            self._add(place, build_call_failure("times", "unexpected_call", message, call, f"{stray.leaf.place}.times"))
        elif self.expected.forbids_extras:
            message = self.sentences.describe_unexpected(call)
            at = format_place(self.expected.path)
            self._add(place, build_call_failure("extra_calls", "unexpected_call", message, call, at))
        else:
            self._add(place, build_pass("extra_calls", "not in the list, which extra_calls allows"))

    def _judge_parallel_groups(self) -> None:
        """Groups whose calls stand in several turns: each call outside the first call's turn is told."""
        for position in self.assignment.not_parallel:
            path = self.expected.groups[position]
            places = self._find_places(path)
            first = self.calls[places[0]]
            for place in places[1:]:
                call = self.calls[place]
                if call.turn != first.turn:
                    message = self.sentences.describe_not_parallel(call, first)
                    self._add(
                        place, build_call_failure("in_parallel", "not_parallel", message, call, format_place(path))
                    )

    def _list_unproven(self) -> list[CheckResult]:
        message = (
            "can't be judged: the calls do not say in which model turn they were made; let evalkit see the model's "
            "turns (task.turn, an adapter, an HTTP cassette), or ask for any_order"
        )
        return [
            build_unmeasured("in_parallel", message, format_place(self.expected.groups[position]), "run")
            for position in self.assignment.unproven
        ]

    def _find_places(self, path: tuple[str | int, ...]) -> list[int]:
        """The calls that met expectations below `path`, in their place or out of order."""
        met = (*self.assignment.pairs, *self.assignment.wrong_order)
        return sorted(pair.actual_index for pair in met if self.leaves[pair.leaf_id].path[: len(path)] == path)

    def _insert_missing(self) -> list[CallResult]:
        """The drafts, each missing call after the call that met the expectation before it."""
        last_place = {
            pair.leaf_id: pair.actual_index for pair in (*self.assignment.pairs, *self.assignment.wrong_order)
        }
        after: dict[int, list[CallResult]] = {}
        for leaf_id, count in self.assignment.missing:
            place = next((last_place[i] for i in range(leaf_id, -1, -1) if i in last_place), -1)
            after.setdefault(place, []).append(self._build_missing(self.leaves[leaf_id], count))
        drafts = list(after.get(-1, []))
        for place, draft in enumerate(self.drafts):
            drafts += [draft, *after.get(place, [])]
        return drafts

    def _build_missing(self, leaf: ExpectedCall, count: int) -> CallResult:
        message = self.sentences.describe_missing(leaf, count) + self.sentences.format_alternative(leaf)
        return CallResult(None, leaf, (build_run_failure(_KEY, "missing_call", message, leaf.place),))


def _clear_tolerated(draft: CallResult) -> CallResult:
    """Deviations that `min_score` tolerates are told, and decide nothing."""
    return CallResult(draft.call, draft.leaf, tuple(_tolerate(result) for result in draft.results))


def _tolerate(result: CheckResult) -> CheckResult:
    if result.status != FAILED or result.check == "valid_arguments":  # which holds for every call, matched or not
        return result
    return replace(result, status=NOT_JUDGED, reasons=())
