"""Pairing is as large as possible, whatever the order of the items."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.operators.lists import can_pair_all, find_maximum_matching


def brute_force(choices: list[list[int]], right: int) -> int:
    """The size of the largest pairing, by trying every one."""
    slots = [*range(right), *[-1] * len(choices)]
    return max(
        sum(at in choice for at, choice in zip(order, choices, strict=True))
        for order in set(permutations(slots, len(choices)))
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), unique=True, max_size=4), max_size=4))
def test_a_pairing_is_as_large_as_the_best_of_all(choices: list[list[int]]) -> None:
    found = find_maximum_matching(choices)
    paired = [at for at in found if at is not None]
    assert len(set(paired)) == len(paired)
    assert all(at is None or at in choice for at, choice in zip(found, choices, strict=True))
    assert len(paired) == brute_force(choices, 4)
    assert can_pair_all(choices) == (None not in found)


def test_without_a_conflict_every_item_gets_its_first_choice() -> None:
    assert find_maximum_matching([[2, 0], [1], [0]]) == [2, 1, 0]


def test_an_item_gives_way_to_one_that_has_no_other_choice() -> None:
    assert find_maximum_matching([[0, 1], [0]]) == [1, 0]


def test_of_items_that_compete_the_earlier_is_paired() -> None:
    assert find_maximum_matching([[0], [0]]) == [0, None]


def test_a_thousand_items_that_fit_everywhere_are_paired_without_recursion() -> None:
    everywhere = list(range(1000))
    assert sorted(at for at in find_maximum_matching([everywhere] * 1000) if at is not None) == everywhere
    chain = [[i, i + 1] for i in range(999)] + [[0]]
    assert None not in find_maximum_matching(chain)
