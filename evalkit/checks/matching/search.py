"""Exact search for an assignment that satisfies the plan, and the best one that does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from evalkit.checks.matching.assignment import SearchTooLargeError
from evalkit.checks.matching.cover import match_calls
from evalkit.checks.matching.parts import Bag, Chain, Choice, LeafPart, ParallelPart, Part, Rules, Shuffle
from evalkit.checks.matching.symmetry import Symmetry

MAX_STATES = 400_000  # some ten seconds; reached only where several long chains compete for the same calls
_PATIENCE = 2_000  # states after which it is worth asking whether the plan could be satisfied in any order at all
MAX_WIDTH = 256  # states kept per call when looking for the best explanation

_Taker = LeafPart | Bag


def find_satisfying(root: Part, rules: Rules, *, forbid: bool) -> dict[int, int] | None:
    """A satisfying assignment, call -> leaf, or None if there is none. Exact; SearchTooLargeError beyond MAX_STATES.

    Depth first, and from no state twice. Under `forbid` every call is consumed. Otherwise calls may be skipped;
    `least` and `most` must then be equal, since calls beyond the least are extras.
    """
    last = len(rules.table.actual)
    visited = _VisitedStates(root, rules, forbid)
    takers: list[_Taker | None] = []
    branches = [_list_branches(root, root.start, 0, forbid)] if last else []
    if root.is_done(root.start) and not (forbid and last):
        return {}
    while branches:
        branch, call = next(branches[-1], None), len(branches)
        if branch is None:
            branches.pop()
            del takers[-1:]
        elif visited.visit(call, branch[0]):
            state, taker = branch
            if root.is_done(state) and (call == last or not forbid):
                return _collect_owners([*takers, taker])
            if call < last:
                takers.append(taker)
                branches.append(_list_branches(root, state, call, forbid))
        elif visited.hopeless:
            return None
    return None


def _list_branches(root: Part, state: object, call: int, forbid: bool) -> Iterator[tuple[object, _Taker | None]]:
    """The states after the call. An open place that can take it never gains by waiting, unless that commits it: a
    later call that would have taken the place may be skipped as well."""
    may_wait = not forbid
    for step in root.find_steps(state, call):
        may_wait = may_wait and step.commits
        yield step.state, step.taker
    if may_wait:
        yield state, None


def _collect_owners(takers: Sequence[_Taker | None]) -> dict[int, int]:
    """Call -> leaf: bags decide now which of their leaves takes which of their calls."""
    owners: dict[int, int] = {}
    bags: dict[Bag, int] = {}
    for call, taker in enumerate(takers):
        if isinstance(taker, LeafPart):
            owners[call] = taker.leaf
        elif taker is not None:
            bags[taker] = bags.get(taker, 0) | 1 << call
    for bag, calls in bags.items():
        owners |= bag.match_calls(calls).owner
    return owners


class _VisitedStates:
    """The states from which nothing new can be found, by call.

    Once there are many, the plan is first compared with the same plan in any order, and then states that differ only
    in which of two interchangeable parts is in which state count as one.
    """

    def __init__(self, root: Part, rules: Rules, forbid: bool) -> None:
        self._root, self._rules, self._forbid = root, rules, forbid
        self._states: list[set[object]] = [set() for _ in range(len(rules.table.actual) + 1)]
        self._count = 0
        self._symmetry: Symmetry | None = None
        self.hopeless = False

    def visit(self, call: int, state: object) -> bool:
        key = state if self._symmetry is None else self._symmetry.find_key(self._root, state)
        states = self._states[call]
        if self.hopeless or key in states:
            return False
        states.add(key)
        self._count += 1
        if self._count == _PATIENCE:
            self.hopeless = not is_satisfiable_in_any_order(self._root, self._rules, forbid=self._forbid)
            self._symmetry = Symmetry(self._root, self._rules.table)
        if self._count > MAX_STATES:
            raise SearchTooLargeError(
                f"the groups of expected calls are too ambiguous to be judged: after {MAX_STATES:,} combinations it is "
                "still open which call meets which expectation; make the expectations of calls that repeat more "
                "specific, or split the group"
            )
        return not self.hopeless


def is_satisfiable_in_any_order(root: Part, rules: Rules, *, forbid: bool) -> bool:
    """A necessary condition that matching alone decides: order and turns ignored, alternatives optional."""
    optional = _find_leaves_under_choices(root)
    minimums = [0 if leaf in optional else count for leaf, count in enumerate(rules.minimums)]
    calls = range(len(rules.table.actual))
    matching = match_calls(rules.table, root.leaves, minimums, rules.maximums, calls)
    filled = all(len(matching.load[leaf]) >= minimums[leaf] for leaf in root.leaves)
    return filled and (not forbid or len(matching.owner) == len(calls))


def _find_leaves_under_choices(part: Part) -> set[int]:
    if isinstance(part, Choice):
        return set(part.leaves)
    if isinstance(part, (Chain, Shuffle)):
        return {leaf for inner in part.parts for leaf in _find_leaves_under_choices(inner)}
    return _find_leaves_under_choices(part.part) if isinstance(part, ParallelPart) else set()


def find_most_in_order(root: Part, rules: Rules) -> dict[int, int]:
    """Under relaxed rules: as many calls as possible that fit and stand in order, then as many needed places filled.

    Exact while no more than MAX_WIDTH states are worth keeping after a call; beyond that the best of them go on.
    """
    reached: _Reached = {root.start: ((0, 0), ())}
    for call in range(len(rules.table.actual)):
        reached = _build_next_states(root, reached, call)
        if len(reached) > MAX_WIDTH:
            reached = dict(sorted(reached.items(), key=lambda item: item[1][0], reverse=True)[:MAX_WIDTH])
    trail = max(reached.values(), key=lambda value: value[0])[1]
    takers: list[_Taker | None] = []
    while trail:
        trail, taker = trail
        takers.append(taker)
    return _collect_owners(takers[::-1])


# State -> how many calls fit and how many needed places are filled, and the takers so far as a linked list.
_Reached = dict[object, tuple[tuple[int, int], Any]]


def _build_next_states(root: Part, reached: _Reached, call: int) -> _Reached:
    following: _Reached = {}
    for state, (value, trail) in reached.items():
        fitting, needed = value
        for step in root.find_steps(state, call):
            better = (fitting + 1, needed + step.needed)
            if step.state not in following or better > following[step.state][0]:
                following[step.state] = (better, (trail, step.taker))
        if state not in following or value > following[state][0]:
            following[state] = (value, (trail, None))
    return following
