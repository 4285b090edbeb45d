"""What of an assignment stands in order, and the best alignment of a plain ordered list."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeGuard

from evalkit.checks.matching.parts import Bag, Chain, One, Part, Shuffle, Together
from evalkit.checks.matching.table import Table
from evalkit.checks.matching.weigh import Place, Weights


def kept_in_order(part: Part, owner: dict[int, int]) -> dict[int, int]:
    """Of a matching call -> leaf a large part in which nothing stands out of order: along each chain the longest run
    of calls that never steps back. Exact for a plain list; a chain's chains are cut after it."""
    inside = set(part.leaves)
    owner = {call: leaf for call, leaf in sorted(owner.items()) if leaf in inside}
    if isinstance(part, (One, Bag)):
        return owner
    if isinstance(part, Together):
        return kept_in_order(part.part, owner)
    assert isinstance(part, (Chain, Shuffle))  # alternatives are decided before anything is explained
    if isinstance(part, Chain):
        index = {leaf: i for i, inner in enumerate(part.parts) for leaf in inner.leaves}
        calls = list(owner)
        owner = {calls[k]: owner[calls[k]] for k in _longest_run([index[owner[call]] for call in calls])}
    kept: dict[int, int] = {}
    for inner in part.parts:
        kept |= kept_in_order(inner, owner)
    return kept


def _longest_run(values: Sequence[int]) -> list[int]:
    """Indices of the earliest longest subsequence that never falls (patience sorting, O(n log n))."""
    tails: list[int] = []  # the least negated first value of a run of each length, from the end
    lengths: list[int] = []
    for value in reversed(values):
        place = bisect_right(tails, -value)
        tails[place : place + 1] = [-value]
        lengths.append(place + 1)
    found: list[int] = []
    wanted = len(tails)
    for k, length in enumerate(reversed(lengths)):
        if length == wanted and (not found or values[k] >= values[found[-1]]):
            found.append(k)
            wanted -= 1
    return found


def is_plain(part: Part) -> TypeGuard[Chain]:
    """Whether it is an ordered list of calls without groups."""
    return isinstance(part, Chain) and all(isinstance(inner, One) for inner in part.parts)


def filled_between(chain: Chain, owner: dict[int, int], most: Sequence[int], table: Table) -> dict[int, int]:
    """`owner`, and what the leaves of a plain list with room left also take between their neighbours' calls."""
    found = dict(owner)
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
            if len(calls) < most[leaf] and call not in found and table.same_name(leaf, call) and table.fits(leaf, call):
                found[call] = leaf
                calls.append(call)
        start = max([start, *(call + 1 for call in calls)])
    return found


def aligned(places: Sequence[Place], calls: Sequence[int], table: Table) -> dict[int, Place]:
    """The best alignment call -> place of an ordered list, by dynamic programming: O(places · calls).

    Pairs may differ in everything but the name. Pairs at the front that fit a required place are taken at once: no
    alignment without them is better, since at most one of the two could be paired otherwise.
    """
    found: dict[int, Place] = {}
    first = 0
    while first < min(len(places), len(calls)) and _fits_required(places[first], calls[first], table):
        found[calls[first]] = places[first]
        first += 1
    places, calls = places[first:], calls[first:]
    scores = _scores(places, calls, table)
    best = _best_suffixes(scores)
    i = j = 0
    while i < len(places) and j < len(calls):
        score = scores[i][j]
        if score is not None and best[i][j] == score + best[i + 1][j + 1]:
            found[calls[j]] = places[i]
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return found


def _fits_required(place: Place, call: int, table: Table) -> bool:
    return place.required and table.same_name(place.leaf, call) and table.fits(place.leaf, call)


def _scores(places: Sequence[Place], calls: Sequence[int], table: Table) -> list[list[int | None]]:
    weights = Weights(table, min(len(places), len(calls)))
    return [
        [weights.score(place, call) if table.same_name(place.leaf, call) else None for call in calls]
        for place in places
    ]


def _best_suffixes(scores: Sequence[Sequence[int | None]]) -> list[list[int]]:
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
