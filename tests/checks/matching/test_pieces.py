"""The algorithms under the matching, each against its definition."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from evalkit.checks.matching import explain
from evalkit.checks.matching.assign import solve
from evalkit.checks.matching.explain import CallSlot, _find_longest_run, find_best_pairs, find_cheapest_pairs
from evalkit.checks.matching.plan import (
    ActualCall,
    AnyOrder,
    BipartiteMatching,
    CallPlan,
    FitTable,
    InOrder,
    Leaf,
    Node,
    OneOf,
    list_bits,
    match_calls,
)
from evalkit.checks.matching.solver import count_combinations, find_best, list_combinations


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (4, 4), (2, 5), (5, 2), (3, 4)])
def test_the_cheapest_assignment_is_the_least_of_all(shape: tuple[int, int]) -> None:
    dice = random.Random(str(shape))
    rows, columns = shape
    for _ in range(60):
        cost = [[dice.randrange(-9, 10) * 10**20 for _ in range(columns)] for _ in range(rows)]
        pairs = find_cheapest_pairs(cost)
        if rows <= columns:
            totals = (
                sum(cost[i][j] for i, j in enumerate(chosen)) for chosen in itertools.permutations(range(columns), rows)
            )
        else:
            totals = (
                sum(cost[i][j] for j, i in enumerate(chosen)) for chosen in itertools.permutations(range(rows), columns)
            )
        assert sum(cost[i][j] for i, j in pairs) == min(totals)
        assert pairs == sorted(pairs)
        assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs) == min(shape)


@pytest.mark.parametrize("cost", [[], [[]], [[], []]])
def test_nothing_costs_nothing(cost: list[list[int]]) -> None:
    assert find_cheapest_pairs(cost) == []


def random_table(dice: random.Random, leaves: int, calls: int) -> tuple[FitTable, list[set[int]]]:
    fitting = [{leaf for leaf in range(leaves) if dice.random() < 0.4} for _ in range(calls)]
    expected = [Leaf(leaf, "f") for leaf in range(leaves)]
    actual = [ActualCall(call, "f") for call in range(calls)]
    return FitTable(expected, actual, lambda leaf, call: leaf in fitting[call], lambda leaf, call: 0.0), fitting


def most_covered(fitting: list[set[int]], room: list[int]) -> int:
    """The size of a maximum matching, by trying every leaf for every call."""
    if not fitting:
        return 0
    best = most_covered(fitting[1:], room)
    for leaf in fitting[0]:
        if room[leaf]:
            left = [count - (leaf == other) for other, count in enumerate(room)]
            best = max(best, 1 + most_covered(fitting[1:], left))
    return best


def test_a_cover_has_as_many_calls_and_required_places_as_possible() -> None:
    dice = random.Random(1)
    for _ in range(400):
        table, fitting = random_table(dice, dice.randint(1, 4), dice.randint(0, 5))
        least = [dice.randrange(3) for _ in table.leaves]
        most = [count + dice.randrange(2) for count in least]
        found = match_calls(table, range(len(least)), least, most, range(len(fitting)))
        assert len(found.owner) == most_covered(fitting, most)
        filled = sum(min(len(calls), least[leaf]) for leaf, calls in found.load.items())
        assert filled == most_covered(fitting, least)
        assert all(leaf in fitting[call] and call in found.load[leaf] for call, leaf in found.owner.items())
        assert all(len(calls) <= most[leaf] for leaf, calls in found.load.items())


def test_a_cover_covers_the_earliest_calls() -> None:
    dice = random.Random(2)
    for _ in range(200):
        table, fitting = random_table(dice, 3, 5)
        found = match_calls(table, range(3), [1] * 3, [1] * 3, range(5))
        for call in range(5):
            before = most_covered(fitting[:call], [1] * 3)
            assert (call in found.owner) == (most_covered(fitting[: call + 1], [1] * 3) > before)


def test_a_copy_of_a_cover_goes_its_own_way() -> None:
    table, _ = random_table(random.Random(0), 0, 0)
    table = FitTable(
        [Leaf(0, "f"), Leaf(1, "f")], [ActualCall(i, "f") for i in range(2)], lambda *_: True, lambda *_: 0.0
    )
    first = BipartiteMatching(table, [0, 1], [1, 1])
    first.add(0)
    second = first.copy()
    assert second.add(1)
    assert (first.owner, first.load) == ({0: 0}, {0: [0], 1: []})
    assert (second.owner, second.load) == ({0: 0, 1: 1}, {0: [0], 1: [1]})
    assert first.add(1)


def test_bits_are_listed_ascending() -> None:
    assert list(list_bits(0)) == []
    assert list(list_bits(0b1011 | 1 << 200)) == [0, 1, 3, 200]


def test_the_longest_run_is_the_earliest_of_the_longest() -> None:
    dice = random.Random(3)
    for _ in range(300):
        values = [dice.randrange(5) for _ in range(dice.randrange(8))]
        runs = [
            list(run)
            for size in range(len(values) + 1)
            for run in itertools.combinations(range(len(values)), size)
            if all(values[a] <= values[b] for a, b in itertools.pairwise(run))
        ]
        longest = max(map(len, runs))
        assert _find_longest_run(values) == min(run for run in runs if len(run) == longest)


@pytest.mark.parametrize(
    ("distance", "moved"), [(0.25, 0.25), (-1.0, 0.0), (7.0, 1.0), (float("nan"), 0.0), (float("inf"), 1.0)]
)
def test_distances_are_moved_into_their_range(distance: float, moved: float) -> None:
    table = FitTable([Leaf(0, "f")], [ActualCall(0, "f")], lambda *_: False, lambda *_: distance)
    assert table.measure_distance(0, 0) == moved


def pairings(places: list[CallSlot], calls: list[int], table: FitTable) -> list[dict[int, CallSlot]]:
    """Every way to pair them; each call may also stay alone."""
    if not calls:
        return [{}]
    found = pairings(places, calls[1:], table)
    for k, place in enumerate(places):
        if place.mismatch or table.is_fit(place.leaf, calls[0]):
            rest = places[:k] + places[k + 1 :]
            found += [{calls[0]: place, **others} for others in pairings(rest, calls[1:], table)]
    return found


def test_the_best_pairing_is_the_best_of_all() -> None:
    """What fits before what must be made, that before pairs at all, those before the least distance; on ties the
    earliest calls, and in their order."""
    dice = random.Random(4)
    for _ in range(300):
        leaves, calls = dice.randint(1, 4), list(range(dice.randint(1, 4)))
        far = {(leaf, call): dice.choice([0.5, 0.500001, 0.6]) for leaf in range(leaves) for call in calls}
        fits = {pair for pair in far if dice.random() < 0.2}
        actual = [ActualCall(call, "f") for call in calls]
        table = FitTable(
            [Leaf(leaf, "f") for leaf in range(leaves)],
            actual,
            lambda leaf, call, fits=fits: (leaf, call) in fits,  # type: ignore[misc]
            lambda leaf, call, far=far: far[leaf, call],  # type: ignore[misc]
        )
        places = [CallSlot(leaf, dice.random() < 0.5, dice.random() < 0.8) for leaf in range(leaves)]

        def worth(pairs: dict[int, CallSlot], table: FitTable = table) -> tuple[float, ...]:
            fitting = [call for call, place in pairs.items() if table.is_fit(place.leaf, call)]
            apart = sum(
                round(table.measure_distance(place.leaf, call), 6)
                for call, place in pairs.items()
                if call not in fitting
            )
            required = sum(place.required for place in pairs.values())
            in_order = sum(place.leaf * call for call, place in pairs.items())
            return len(fitting), required, len(pairs), -round(apart, 6), -sum(pairs), in_order

        found = {call: places[leaf] for call, leaf in find_best_pairs(places, calls, table).items()}
        assert worth(found) == max(map(worth, pairings(places, calls, table)))


def test_of_many_pairs_those_that_must_be_made_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many to compare: the first call takes the first place that may take it."""
    monkeypatch.setattr(explain, "EXACT", 0)
    table = FitTable([Leaf(leaf, "f") for leaf in range(4)], [], lambda *_: False, lambda *_: 0.0)
    places = [
        CallSlot(0, required=False),
        CallSlot(1, required=True),
        CallSlot(2, required=True, mismatch=False),
        CallSlot(3, True),
    ]
    assert find_best_pairs(places, [5, 6], table) == {5: 1, 6: 3}
    assert find_best_pairs(places, [5, 6, 7, 8], table) == {5: 1, 6: 3, 7: 0}


def test_combinations_are_as_many_as_counted() -> None:
    inner = OneOf((Leaf(1, "b"), Leaf(2, "c")))
    root = InOrder(
        (OneOf((Leaf(0, "a"), InOrder((Leaf(3, "d"), inner)))), Leaf(4, "e"), OneOf((Leaf(5, "f"), Leaf(6, "g"))))
    )
    assert list_combinations(root) == [
        {(0,): 0, (2,): 0},
        {(0,): 0, (2,): 1},
        {(0,): 1, (0, 1, 1): 0, (2,): 0},
        {(0,): 1, (0, 1, 1): 0, (2,): 1},
        {(0,): 1, (0, 1, 1): 1, (2,): 0},
        {(0,): 1, (0, 1, 1): 1, (2,): 1},
    ]
    assert count_combinations(root) == 6


def choice_of_two(first: int) -> Node:
    return OneOf(
        (Leaf(first, "a"), InOrder((Leaf(first + 1, "b"), OneOf((Leaf(first + 2, "c"), Leaf(first + 3, "d"))))))
    )


def test_many_alternatives_are_explained_without_trying_all_of_them() -> None:
    """Fifty times three alternatives: the verdict is exact, and the explanation finds the one call that is missing."""
    plan = CallPlan(InOrder(tuple(choice_of_two(4 * i) for i in range(50))))
    names = "abd" * 25
    actual = [ActualCall(i, name) for i, name in enumerate(names)]
    assert solve(plan, actual, lambda *_: True, lambda *_: 1.0).satisfied
    found = solve(plan, actual[:-1], lambda *_: True, lambda *_: 1.0)
    assert not found.satisfied
    assert len(found.pairs) == 74
    assert [how_many for _, how_many in found.missing] == [1]
    assert not found.extra


def test_many_alternatives_after_a_missing_call_are_explained() -> None:
    plan = CallPlan(InOrder((Leaf(200, "z"), *(choice_of_two(4 * i) for i in range(30)))))
    actual = [ActualCall(i, name) for i, name in enumerate("abd" * 15)]
    found = solve(plan, actual, lambda *_: True, lambda *_: 1.0)
    assert (len(found.pairs), found.missing, found.extra) == (45, ((200, 1),), ())


def test_the_parts_of_large_plans_are_decided_without_recursion_limits() -> None:
    plan = CallPlan(AnyOrder(tuple(Leaf(i, "f") for i in range(1500))))
    actual = [ActualCall(i, "f") for i in range(1501)]
    found: Any = solve(plan, actual, lambda *_: True, lambda *_: 1.0)
    assert (found.satisfied, found.extra) == (False, (1500,))


def test_a_few_tries_improve_one_choice_after_the_other() -> None:
    inner = OneOf((Leaf(1, "b"), Leaf(2, "c"), Leaf(3, "d")))
    root = InOrder((OneOf((Leaf(0, "a"), InOrder((inner,)))), OneOf((Leaf(5, "f"), Leaf(6, "g")))))
    wanted = {(0,): 1, (0, 1, 0): 2, (1,): 1}
    tried: list[dict[tuple[int, ...], int]] = []

    def attempt(choices: Any) -> dict[tuple[int, ...], int]:
        tried.append(dict(choices))
        return dict(choices)

    def key(choices: dict[tuple[int, ...], int]) -> tuple[float, ...]:
        return (sum(choices.get(place) != step for place, step in wanted.items()),)

    assert find_best(root, attempt, key, 100, dict) == wanted
    assert len(tried) == count_combinations(root) == 8
    assert find_best(root, attempt, key, 7, dict) == wanted
    assert tried[8:] == [
        {(0,): 0, (1,): 0},
        {(0,): 0, (1,): 0},
        {(0,): 1, (0, 1, 0): 0, (1,): 0},
        {(0,): 1, (0, 1, 0): 0, (1,): 0},
        {(0,): 1, (0, 1, 0): 1, (1,): 0},
        {(0,): 1, (0, 1, 0): 2, (1,): 0},
        {(0,): 1, (0, 1, 0): 2, (1,): 0},
        {(0,): 1, (0, 1, 0): 2, (1,): 1},
    ]
    tried.clear()
    assert find_best(root, attempt, key, 2, lambda: {(0,): 1, (0, 1, 0): 1}) == {(0,): 1, (0, 1, 0): 1, (1,): 0}
    assert len(tried) == 3
