"""How much is asked, and what happens where exact answers would take too long."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from evalkit import judge
from evalkit.bounds import Bounds, _Holder
from evalkit.checks.matching import search
from evalkit.checks.matching.assign import solve
from evalkit.checks.matching.plan import (
    ActualCall,
    AnyOrder,
    Assignment,
    CallPlan,
    InOrder,
    InParallel,
    Leaf,
    Node,
    SearchTooLargeError,
)
from evalkit.errors import MeasurementError

Fits = Callable[[int, int], bool]


class Counted:
    """Solves, and counts the questions."""

    def __init__(self, root: Node, calls: str, fits: Fits, extras: Any = "forbid", turn: int | None = 0) -> None:
        self.asked = self.measured = 0
        self._fits = fits
        actual = [ActualCall(i, name, turn) for i, name in enumerate(calls)]
        self.found: Assignment = solve(CallPlan(root, extras), actual, self.fits, self.distance)

    def fits(self, leaf: int, call: int) -> bool:
        self.asked += 1
        return self._fits(leaf, call)

    def distance(self, leaf: int, call: int) -> float:
        self.measured += 1
        return 0.5


def leaves(count: int, first: int = 0, name: str = "f", **times: Any) -> tuple[Leaf, ...]:
    return tuple(Leaf(first + i, name, **times) for i in range(count))


@pytest.mark.parametrize("root", [InOrder, AnyOrder])
@pytest.mark.parametrize("extras", ["forbid", "allow"])
def test_a_list_that_is_met_in_order_asks_once_per_call(root: Any, extras: str) -> None:
    counted = Counted(root(leaves(1000)), "f" * 1000, lambda leaf, call: leaf == call, extras)
    assert (counted.found.satisfied, counted.asked, counted.measured) == (True, 1000, 0)


def test_extras_between_are_asked_about_once() -> None:
    counted = Counted(InOrder(leaves(500)), "f" * 1000, lambda leaf, call: call == 2 * leaf, "allow")
    assert (counted.found.satisfied, counted.asked, counted.measured) == (True, 999, 0)


def test_one_wrong_argument_among_a_thousand_is_not_asked_about_a_million_times() -> None:
    counted = Counted(AnyOrder(leaves(1000)), "f" * 1000, lambda leaf, call: leaf == call != 500)
    assert not counted.found.satisfied
    assert [pair for pair in counted.found.pairs if not pair.fits] == [(500, 500, False)]
    assert counted.asked < 4000
    assert counted.measured <= 1


def test_a_thousand_identical_calls_are_not_asked_about_a_million_times() -> None:
    counted = Counted(AnyOrder(leaves(1000)), "f" * 1001, lambda leaf, call: leaf != 999)
    assert not counted.found.satisfied
    assert sum(pair.fits for pair in counted.found.pairs) == 999
    assert counted.asked < 8000


def test_distances_are_measured_only_where_they_can_matter() -> None:
    counted = Counted(AnyOrder(leaves(64)), "f" * 64, lambda leaf, call: leaf == call and call > 2)
    assert counted.measured == 9


def test_beyond_the_exact_bound_distances_are_left_alone() -> None:
    counted = Counted(AnyOrder(leaves(100)), "f" * 100, lambda leaf, call: False)
    assert counted.found.pairs == tuple((i, i, False) for i in range(100))
    assert counted.measured <= 100  # those of the pairs it made


def test_a_long_strict_list_is_explained_in_place() -> None:
    counted = Counted(InOrder(leaves(300)), "f" * 300, lambda leaf, call: leaf == call and call not in (7, 200))
    assert [pair for pair in counted.found.pairs if not pair.fits] == [(7, 7, False), (200, 200, False)]
    assert not counted.found.wrong_order


def chains(count: int, length: int) -> AnyOrder:
    return AnyOrder(tuple(InOrder(leaves(length, length * i)) for i in range(count)))


def test_six_interleaving_chains_of_eight_are_solved_exactly() -> None:
    satisfied = Counted(chains(6, 8), "f" * 48, lambda leaf, call: True)
    assert satisfied.found.satisfied
    short = Counted(chains(6, 8), "f" * 47, lambda leaf, call: True)
    assert not short.found.satisfied
    assert [count for _, count in short.found.missing] == [1]


def test_interchangeable_chains_are_searched_once() -> None:
    """The last call of one chain fits only where the whole chain cannot have come before it."""
    counted = Counted(chains(6, 8), "f" * 48, lambda leaf, call: leaf != 7 or call < 7)
    assert not counted.found.satisfied


def test_interchangeable_groups_of_all_kinds_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_PATIENCE", 1)
    monkeypatch.setattr(_Holder, "bounds", Bounds(matching_states=800))

    def group(first: int) -> Node:
        return InOrder((InParallel(leaves(2, first)), AnyOrder((InOrder(leaves(2, first + 2)), *leaves(1, first + 4)))))

    for bad in (0, 20):
        root = AnyOrder(tuple(group(5 * i) for i in range(5)))
        counted = Counted(root, "f" * 25, lambda leaf, call, bad=bad: call != bad or leaf == 3)  # type: ignore[misc]
        assert counted.found.satisfied is (bad == 20)


def test_chains_that_differ_in_their_calls_do_not_count_as_one(toolbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both chains begin alike; only where the second takes the first call can it go on."""
    monkeypatch.setattr(search, "_PATIENCE", 1)
    plan = ("any", "z1", ("in_order", "f1", "g3"), ("in_order", "f1", "g2"))
    story = toolbox.Story(plan, "z1 f1 g2 f1 g3", "forbid")
    assert story.told() == "satisfied z1@0 f1@1 g2@2 f1@3 g3@4"


def test_calls_that_fit_different_places_of_a_group_do_not_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two calls may each go into the group or elsewhere; only the second leaves room for the third."""
    monkeypatch.setattr(search, "_PATIENCE", 1)
    root = AnyOrder((InOrder((AnyOrder(leaves(2)), Leaf(2, "e"))), InOrder((Leaf(3, "f"), Leaf(4, "y")))))
    fitting = {(0, 1), (1, 0), (1, 1), (1, 2), (3, 0), (3, 1), (2, 3), (4, 4)}
    assert Counted(root, "fffey", lambda leaf, call: (leaf, call) in fitting).found.satisfied


def test_where_explanations_are_many_the_best_go_on(toolbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_WIDTH", 1)
    plan = ("any", ("in_order", "f1", "g1"), ("in_order", "h1", "e1"))
    assert toolbox.Story(plan, "f1 h1 g1", "forbid").told() == "met f1@0 h1@1 g1@2; missing e1"


def test_a_search_that_grows_too_large_is_an_error_and_never_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Holder, "bounds", Bounds(matching_states=1000))
    monkeypatch.setattr(search, "_PATIENCE", 100)
    dice = random.Random(5)
    pairs = {(leaf, call) for leaf in range(48) for call in range(47) if dice.random() < 0.9} | {(9, 47)}
    with pytest.raises(SearchTooLargeError) as caught:  # the last call fits only where others must follow
        Counted(chains(6, 8), "f" * 48, lambda leaf, call: (leaf, call) in pairs)
    assert isinstance(caught.value, MeasurementError)
    assert str(caught.value) == (
        "the groups of expected calls are too ambiguous to be judged: after 1,000 combinations it is still open which "
        "call meets which expectation; make the expectations of calls that repeat more specific, or split the group; "
        "`matching_states` in [tool.evalkit.bounds] allows more"
    )


def test_no_search_for_optional_calls_undoes_a_verdict(toolbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ("any", ("in_order", "f1", "g1"), ("in_order", "f1", "g2?", "k1"))
    monkeypatch.setattr(_Holder, "bounds", Bounds(matching_states=4))  # as many as the calls that must be made take
    told = toolbox.Story(plan, "f1 f1 g1 k1 g2", "allow").told()
    assert told == "satisfied f1@0 f1@1 g1@2 k1@3; extra g2@4"


def test_a_large_search_first_asks_whether_any_order_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Holder, "bounds", Bounds(matching_states=3000))
    counted = Counted(chains(6, 8), "f" * 48, lambda leaf, call: call != 47)
    assert not counted.found.satisfied


def test_a_crowd_of_loose_calls_beside_a_chain_is_no_search() -> None:
    """Loose calls are matched; only the chain's calls are searched."""
    order = list(range(105))
    random.Random(1).shuffle(order)
    chained = iter(range(100, 105))
    order = [leaf if leaf < 100 else next(chained) for leaf in order]
    counted = Counted(
        AnyOrder((*leaves(100), InOrder(leaves(5, 100)))), "f" * 105, lambda leaf, call: order[call] == leaf
    )
    assert counted.found.satisfied


def test_forty_parallel_calls_are_matched_not_searched() -> None:
    close: Fits = lambda leaf, call: abs(leaf - call) < 4  # noqa: E731
    assert Counted(InParallel(leaves(40)), "f" * 40, close).found.satisfied
    assert not Counted(
        InParallel(leaves(40)), "f" * 40, lambda leaf, call: close(leaf, call) and call != 3
    ).found.satisfied


@pytest.mark.parametrize("needed", [(1, 2), (0, 0)])
@pytest.mark.parametrize(("last", "satisfied"), [(True, 1000), (False, 999)])
def test_extras_beyond_the_least_number_are_still_met(last: bool, satisfied: int, needed: tuple[int, int]) -> None:
    """Allowed extras that fit are told as met, also where there are too many to search for."""
    root = InOrder((Leaf(0, "f", needed[0], None), Leaf(1, "g"), Leaf(2, "f", needed[1], 500)))
    counted = Counted(root, "f" * 500 + "g" + "f" * 499, lambda leaf, call: last or call != 999, "allow")
    assert counted.found.satisfied
    assert len(counted.found.pairs) == satisfied


def test_optional_calls_are_met_one_by_one_where_they_cannot_all_be() -> None:
    root = InOrder((Leaf(0, "f", 0, 1), Leaf(1, "g", 0, 1), Leaf(2, "h"), Leaf(3, "i", 0, 1)))
    counted = Counted(root, "gfhi", lambda leaf, call: True, "allow")
    assert [pair.leaf_id for pair in counted.found.pairs] == [0, 2, 3]


@pytest.mark.parametrize("seed", range(3))
def test_chains_of_many_functions_are_explained(seed: int) -> None:
    names = "".join(random.Random(seed).sample("abcd" * 12, 48))
    root = AnyOrder(tuple(InOrder(tuple(Leaf(8 * i + j, "abcd"[(i + j) % 4]) for j in range(8))) for i in range(6)))
    found = Counted(root, names, lambda leaf, call: True).found
    assert not found.satisfied
    assert found.wrong_order
    assert len(found.pairs) + len(found.wrong_order) == 48


def test_of_large_states_fewer_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten `one_of` in any order took half a gigabyte before they were given up."""
    monkeypatch.setattr(_Holder, "bounds", Bounds(matching_states=4_000))
    monkeypatch.setattr(search, "_PATIENCE", 100)
    verdict = judge(*competing_groups(9, 18))
    assert verdict.status == "error"
    assert "too ambiguous to be judged: after 1,777 combinations" in verdict.reasons[0].message


def competing_groups(count: int, calls: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Groups of two calls each, of which almost any call fits almost any group. The last call fits where two come."""
    groups = []
    for number in range(count):
        first, second, third = (
            {"function_name": "f", "arguments_contain": {"a": text}}
            for text in (f"{number} x", f"{number + 1} y", f"{number} z")
        )
        groups.append({"one_of": [[first, second], [{"function_name": "f"}, third]]})
    texts = [" ".join(f"{index % count} {letter}" for letter in "xyz") for index in range(calls - 1)] + ["none"]
    expected = {"call_order": "any", "expected_function_calls": groups}
    return expected, [{"name": "f", "arguments": {"a": text}} for text in texts]


@pytest.mark.parametrize("calls", [16, 20])
def test_groups_that_need_more_calls_or_fewer_than_there_are_need_no_search(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Holder, "bounds", Bounds(matching_states=2_000))
    assert judge(*competing_groups(9, calls)).status == "failed"


def test_groups_that_need_another_call_of_a_function_whichever_way_need_no_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_Holder, "bounds", Bounds(matching_states=2_000))
    named = [[{"function_name": "f", "arguments": {"a": number}}, {"function_name": "g"}] for number in range(10)]
    calls: list[dict[str, Any]] = [{"name": "f", "arguments": {"a": number}} for number in range(10)]
    calls += [{"name": "g"}] * 9 + [{"name": "h"}]
    groups = [{"one_of": [pair, pair[::-1]]} for pair in named]
    expected = {"call_order": "any", "extra_calls": "allow", "expected_function_calls": groups}
    assert judge(expected, calls).status == "failed"
