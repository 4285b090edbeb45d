"""Why the calls are not as expected: the best assignment in words, call by call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evalkit.checks.call_checks import TextCheck, ValuesCheck
from evalkit.checks.disallowed_extras import DisallowedExtra
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_calls import ExpectedCall
from evalkit.checks.judgement import CallResult, CallsResult
from evalkit.checks.matching.plan import Assignment, InOrder, Leaf, Node, Pair, Position, list_children, walk
from evalkit.checks.reasons import (
    NOT_JUDGED,
    build_call_failure,
    build_pass,
    build_run_failure,
    build_unmeasured,
    format_place,
)
from evalkit.errors import KeyPath, find_nearest
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import FAILED, PASSED, CheckResult, Score
from evalkit.text.format import format_value

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


# The sentences about calls that are missing, unexpected, out of order or not parallel.

_DEMAND_LIMIT = 100  # characters of one demand in a sentence


class Sentences:
    """Words for one assignment that does not satisfy the plan."""

    def __init__(
        self,
        expected: ExpectedCallList,
        leaves: tuple[ExpectedCall, ...],
        assignment: Assignment,
        calls: tuple[FunctionCall, ...],
    ) -> None:
        self.expected = expected
        self.leaves = leaves
        self.assignment = assignment
        self.calls = calls
        self._positions = {node.id: at for at, node in walk(expected.plan.root) if isinstance(node, Leaf)}

    def describe_missing(self, leaf: ExpectedCall, count: int) -> str:
        """``create_ticket was not called``, or how often, or with what it was not."""
        name = leaf.function_name
        call_count = sum(call.name == name for call in self.calls)
        if not call_count:
            times = f"; expected {_format_times(leaf)}" if leaf.min > 1 else ""
            return f"{name} was not called{self._describe_near_call(name)}{times}"
        if sum(sibling.function_name == name for sibling in self.leaves) == 1:
            return f"{name} was called {_format_count(call_count)}, expected {_format_times(leaf)}"
        suffix = f" {_format_count(count)}" if count > 1 else ""
        return f"{describe_demand(leaf)} is missing{suffix}: {name} was called {_format_count(call_count)}, each held against another expectation"  # noqa: E501

    def _describe_near_call(self, name: str) -> str:
        extra = [self.calls[place].name for place in self.assignment.extra]
        nearest_name = find_nearest(name, extra)
        return f" ('{nearest_name}' was)" if nearest_name is not None else ""

    def describe_unexpected(self, call: FunctionCall) -> str:
        """Why there should be no such call."""
        if not self.leaves:
            return "not expected: expected_function_calls is [], which means no call at all"
        expected = [leaf for leaf in self.leaves if leaf.function_name == call.name]
        if not expected:
            return "not expected: extra_calls is 'forbid'"
        in_force = [leaf for leaf in expected if self._is_in_force(leaf)]
        if not in_force:
            why = f"{call.name} stands in another alternative of one_of"
        elif len(in_force) == 1:
            why = f"{call.name} is expected {_format_times(in_force[0])}"
        else:
            why = f"the {len(in_force)} expected calls of {call.name} are held against others"
        return f"not expected: extra_calls is 'forbid', and {why}"

    def _is_in_force(self, leaf: ExpectedCall) -> bool:
        """Whether it stands in no alternative but those that the calls were held against."""
        position = self._positions[leaf.id]
        chosen = self.assignment.alternatives.items()
        return all(position[len(at)] == number for at, number in chosen if position[: len(at)] == at)

    def describe_miscounted(self, leaf: ExpectedCall) -> str:
        """Why one call more, or one too few, of an expectation is not among the extra calls that are allowed."""
        return (
            f"not expected: {leaf.function_name} is expected {_format_times(leaf)}; extra_calls allows other calls only"
        )

    def describe_wrong_order(self, pair: Pair) -> str:
        """Before or after which call it was expected."""
        for neighbour in sorted((*self.assignment.pairs, *self.assignment.wrong_order), key=lambda p: p.actual_index):
            before = self._must_precede(pair.leaf_id, neighbour.leaf_id)
            after = self._must_precede(neighbour.leaf_id, pair.leaf_id)
            if before and neighbour.actual_index < pair.actual_index:
                return f"out of order: expected before {self._describe_call(neighbour)}"
            if after and neighbour.actual_index > pair.actual_index:
                return f"out of order: expected after {self._describe_call(neighbour)}"
        return "out of order"

    def _describe_call(self, pair: Pair) -> str:
        call = self.calls[pair.actual_index]
        return f"call {call.index + 1}, {call.name}"

    def _must_precede(self, first_id: int, second_id: int) -> bool:
        """Whether the plan demands that calls of leaf `one` come before those of `other`."""
        first, second = self._positions[first_id], self._positions[second_id]
        common = 0
        while common < min(len(first), len(second)) and first[common] == second[common]:
            common += 1
        return first < second and isinstance(self._find_node(first[:common]), InOrder)

    def _find_node(self, position: Position) -> Node:
        node = self.expected.plan.root
        for step in position:
            node = list_children(node)[step]
        return node

    def describe_not_parallel(self, call: FunctionCall, first: FunctionCall) -> str:
        """In which turn it was made, and where it was expected."""
        return (
            f"made in model turn {_format_turn(call)}, expected in turn {_format_turn(first)}, together with "
            f"call {first.index + 1}, {first.name} (in_parallel)"
        )

    def format_alternative(self, leaf: ExpectedCall) -> str:
        """`` (closest alternative: one_of[1])`` for a leaf inside a `one_of`, else nothing."""
        for depth, step in enumerate(leaf.path):
            if step == "one_of":
                return f" (closest alternative: one_of[{leaf.path[depth + 1]}])"
        return ""


def _format_turn(call: FunctionCall) -> str:
    return "unknown" if call.turn is None else str(call.turn + 1)


def _format_count(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _format_times(leaf: ExpectedCall) -> str:
    if leaf.max is None:
        return f"at least {_format_count(leaf.min)}" if leaf.min else "any number of times"
    if leaf.min == leaf.max:
        return _format_count(leaf.max) if not leaf.optional else f"{_format_count(leaf.max)} or not at all"
    if leaf.optional or not leaf.min:
        return f"at most {_format_count(leaf.max)}"
    return f"{leaf.min} to {leaf.max} times"


def describe_demand(leaf: ExpectedCall) -> str:
    """``create_ticket(priority="high", …)``: an expected call in one line."""
    parts: list[str] = []
    partial = not any(check.key == "arguments" for check in leaf.checks)
    for check in leaf.checks:
        if isinstance(check, ValuesCheck) and check.on_arguments:
            expected = check.matcher.to_data()
            listed = expected.items() if isinstance(expected, dict) else ()
            named = [item for item in listed if item[0] in check.names or item[0].startswith("$")]  # not ignored ones
            parts += [f"{name}={format_value(value, _DEMAND_LIMIT)}" for name, value in named]
        elif isinstance(check, TextCheck):
            parts.append(f"{check.argument} {'without' if check.excludes else 'with'} {check.phrases.format_list()}")
    if not parts and partial:
        return leaf.function_name
    return f"{leaf.function_name}({', '.join([*parts, '…'] if partial else parts)})"


# Partial credit: information, unless the case asks for it with `min_score`.
#
# Let M be the calls that met their expectation in its place, A the actual calls that are judged (all of them; without
# those that `extra_calls: allow` allows), and E the expected calls: those that were held against a call, and those
# that are missing.
#
# - precision = M / A, recall = M / E, F1 = 2 M / (A + E): the usual definitions, the last being their harmonic mean.
# - argument accuracy = the demands on arguments that hold, of all that are made: each argument listed in `arguments` or
# `arguments_contain`, each argument sent that `arguments` does not list, each phrase and each absent name
# counts one. A missing call misses all of its demands.
#
# Where a denominator is 0 nothing was demanded, and the value is 1; precision is 0 where calls were expected and none
# was made.


def compute_score(
    leaves: Sequence[ExpectedCall],
    assignment: Assignment,
    disallowed: Mapping[int, DisallowedExtra],
    forbids_extras: bool,
    evidence: Evidence,
) -> Score:
    """The partial credit of an assignment that does not satisfy its plan."""
    compared = [(leaves[pair.leaf_id], pair.actual_index) for pair in (*assignment.pairs, *assignment.wrong_order)]
    compared += [(stray.leaf, stray.place) for stray in disallowed.values() if not stray.miscounted]
    missing = [(leaves[leaf_id], count) for leaf_id, count in assignment.missing]
    met = sum(pair.fits for pair in assignment.pairs)
    miscounted = sum(stray.miscounted for stray in disallowed.values())
    judged = len(evidence.calls) if forbids_extras else len(compared) + miscounted
    expected = len(compared) + sum(count for _, count in missing)
    demands = [leaf.count_arguments_met(evidence.calls[place], evidence) for leaf, place in compared]
    demands += [(0, leaf.count_argument_demands() * count) for leaf, count in missing]
    demanded = sum(of for _, of in demands)
    return Score(
        precision=met / judged if judged else float(not expected),
        recall=met / expected if expected else 1.0,
        f1=2 * met / (judged + expected) if judged + expected else 1.0,
        argument_accuracy=sum(hold for hold, _ in demands) / demanded if demanded else 1.0,
    )


def judge_score(min_score: tuple[tuple[str, float], ...], score: Score, path: KeyPath) -> CheckResult:
    """Whether every score that the case asks for is reached."""
    short = [(name, minimum) for name, minimum in min_score if getattr(score, name) < minimum]
    parts = [
        f"{name} is {getattr(score, name):.3g}, {'expected ' if short else ''}at least {minimum:g}"
        for name, minimum in short or min_score
    ]
    if not short:
        return CheckResult(check="min_score", message=", ".join(parts))
    place = format_place((*path[:-1], "min_score"))
    actual = {name: getattr(score, name) for name, _ in short}
    return build_run_failure("min_score", "score_too_low", ", ".join(parts), place, expected=dict(short), actual=actual)
