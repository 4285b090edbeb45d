"""What of an assignment stands in order, and the best alignment of a plain ordered list."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeGuard

from evalkit.checks.matching.parts import Bag, Chain, LeafPart, ParallelPart, Part, Shuffle
from evalkit.checks.matching.table import FitTable
from evalkit.checks.matching.weigh import CallSlot, Weights


def keep_in_order(part: Part, owner: dict[int, int]) -> dict[int, int]:
    """Of a matching call -> leaf a large part in which nothing stands out of order: along each chain the longest run
    of calls that never steps back. Exact for a plain list; a chain's chains are cut after it."""
    inside = set(part.leaves)
    owner = {call: leaf for call, leaf in sorted(owner.items()) if leaf in inside}
    if isinstance(part, (LeafPart, Bag)):
        return owner
    if isinstance(part, ParallelPart):
        return keep_in_order(part.part, owner)
    assert isinstance(part, (Chain, Shuffle))  # alternatives are decided before anything is explained
    if isinstance(part, Chain):
        index = {leaf: i for i, inner in enumerate(part.parts) for leaf in inner.leaves}
        calls = list(owner)
        owner = {calls[k]: owner[calls[k]] for k in _find_longest_run([index[owner[call]] for call in calls])}
    owners: dict[int, int] = {}
    for inner in part.parts:
        owners |= keep_in_order(inner, owner)
    return owners


def _find_longest_run(values: Sequence[int]) -> list[int]:
    """Indices of the earliest longest subsequence that never falls (patience sorting, O(n log n))."""
    tails: list[int] = []  # the least negated first value of a run of each length, from the end
    lengths: list[int] = []
    for value in reversed(values):
        place = bisect_right(tails, -value)
        tails[place : place + 1] = [-value]
        lengths.append(place + 1)
    indices: list[int] = []
    remaining = len(tails)
    for k, length in enumerate(reversed(lengths)):
        if length == remaining and (not indices or values[k] >= values[indices[-1]]):
            indices.append(k)
            remaining -= 1
    return indices


def is_plain(part: Part) -> TypeGuard[Chain]:
    """Whether it is an ordered list of calls without groups."""
    return isinstance(part, Chain) and all(isinstance(inner, LeafPart) for inner in part.parts)


def fill_between(chain: Chain, owner: dict[int, int], maximums: Sequence[int], table: FitTable) -> dict[int, int]:
    """`owner`, and what the leaves of a plain list with room left also take between their neighbours' calls."""
    owners = dict(owner)
    calls_of: dict[int, list[int]] = {leaf: [] for leaf in chain.leaves}
    for call, leaf in owner.items():
        calls_of[leaf].append(call)
    ends = [len(table.actual)]  # where the calls of later leaves begin
    for leaf in reversed(chain.leaves[1:]):
        ends.append(min(calls_of[leaf], default=ends[-1]))
    start = 0
    for leaf, end in zip(chain.leaves, reversed(ends), strict=True):
        calls = calls_of[leaf]
        for call in range(start, end):
            if (
                len(calls) < maximums[leaf]
                and call not in owners
                and table.has_same_name(leaf, call)
                and table.is_fit(leaf, call)
            ):
                owners[call] = leaf
                calls.append(call)
        start = max([start, *(call + 1 for call in calls)])
    return owners


def find_best_alignment(slots: Sequence[CallSlot], calls: Sequence[int], table: FitTable) -> dict[int, CallSlot]:
    """The best alignment call -> place of an ordered list, by dynamic programming: O(places · calls).

    Pairs may differ in everything but the name. Pairs at the front that fit a required place are taken at once: no
    alignment without them is better, since at most one of the two could be paired otherwise.
    """
    alignment: dict[int, CallSlot] = {}
    first = 0
    while first < min(len(slots), len(calls)) and _is_required_fit(slots[first], calls[first], table):
        alignment[calls[first]] = slots[first]
        first += 1
    slots, calls = slots[first:], calls[first:]
    scores = _compute_scores(slots, calls, table)
    best = _compute_best_suffixes(scores)
    i = j = 0
    while i < len(slots) and j < len(calls):
        score = scores[i][j]
        if score is not None and best[i][j] == score + best[i + 1][j + 1]:
            alignment[calls[j]] = slots[i]
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return alignment


def _is_required_fit(slot: CallSlot, call: int, table: FitTable) -> bool:
    return slot.required and table.has_same_name(slot.leaf, call) and table.is_fit(slot.leaf, call)


def _compute_scores(slots: Sequence[CallSlot], calls: Sequence[int], table: FitTable) -> list[list[int | None]]:
    weights = Weights(table, min(len(slots), len(calls)))
    return [
        [weights.score(slot, call) if table.has_same_name(slot.leaf, call) else None for call in calls]
        for slot in slots
    ]


def _compute_best_suffixes(scores: Sequence[Sequence[int | None]]) -> list[list[int]]:
    """``best[i][j]``: the most that places from i on can score with calls from j on."""
    width = len(scores[0]) if scores else 0
    best = [[0] * (width + 1)]
    for row in reversed(scores):
        below, here = best[-1], [0] * (width + 1)
        for j in reversed(range(width)):
            score = row[j]
            skip = max(below[j], here[j + 1])
            here[j] = skip if score is None else max(skip, score + below[j + 1])
        best.append(here)
    return best[::-1]
