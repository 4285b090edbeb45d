"""Against verdicts that nobody on this project computed: brute-force optima of random trajectories."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from evalkit.checks.matching.assign import solve
from evalkit.checks.matching.plan import ActualCall, AnyOrder, CallPlan, InOrder, Leaf
from tests.conftest import CORPORA

Call = dict[str, Any]


@cache
def rows(name: str) -> list[dict[str, Any]]:
    path = CORPORA / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the corpus {path.name} does not lie beside the checkout, in ../shared/corpora")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


ARGUMENTS: dict[str, Callable[[Call, Call], bool]] = {
    "exact": lambda expected, actual: canonical(expected) == canonical(actual),
    "ignore": lambda expected, actual: True,
    # The peers' words: the actual arguments are a subset of the expected ones, or a superset.
    "subset": lambda expected, actual: contains(expected, actual),
    "superset": lambda expected, actual: contains(actual, expected),
}


def contains(larger: Call, smaller: Call) -> bool:
    return all(key in larger and canonical(larger[key]) == canonical(value) for key, value in smaller.items())


MODES = {
    "strict": (InOrder, "forbid", 1),
    "in_order": (InOrder, "allow", 1),
    "any_order": (AnyOrder, "allow", 1),
    "unordered": (AnyOrder, "forbid", 1),
    "subset": (AnyOrder, "forbid", 0),  # every expected call is optional
}


def judged(row: dict[str, Any], mode: str, arguments: str) -> bool:
    root, extras, least = MODES[mode]
    expected, actual = row["expected"], row["actual"]
    leaves = tuple(Leaf(i, call["name"], least) for i, call in enumerate(expected))
    compare = ARGUMENTS[arguments]
    return solve(
        CallPlan(root(leaves), extras),  # type: ignore[arg-type]
        [ActualCall(i, call["name"]) for i, call in enumerate(actual)],
        lambda leaf, call: compare(expected[leaf]["arguments"], actual[call]["arguments"]),
        lambda leaf, call: 1.0,
    ).satisfied


def disagreements(mode: str, arguments: str) -> Iterator[str]:
    for row in rows("peers_random"):
        if judged(row, mode, arguments) != row["optimal"][f"{mode}/args={arguments}"]:
            yield row["id"]


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("mode", MODES)
def test_every_random_trajectory_gets_its_optimal_verdict(mode: str, arguments: str) -> None:
    # An empty expectation with extras allowed means "no call at all" here, and "anything goes" to the brute force.
    by_rule = {row["id"] for row in rows("peers_random") if not row["expected"] and row["actual"]}
    assert set(disagreements(mode, arguments)) == (by_rule if mode in ("in_order", "any_order") else set())


def test_counts_are_ranges_of_times() -> None:
    for row in rows("peers_random"):
        count = row["checks"]["count"]
        calls = [ActualCall(i, call["name"]) for i, call in enumerate(row["actual"]) if call["name"] == count["name"]]
        plan = CallPlan(AnyOrder((Leaf(0, count["name"], count["min"], count["max"]),)))
        found = solve(plan, calls, lambda leaf, call: True, lambda leaf, call: 1.0)
        assert found.satisfied == row["optimal"]["count"], row["id"]


def test_some_call_is_a_superset_of_one() -> None:
    for row in rows("peers_random"):
        one = row["checks"].get("one")
        for mode, compare in (("exact", ARGUMENTS["exact"]), ("partial", ARGUMENTS["superset"])):
            key = f"some_call/args={mode}"
            if one is None or key not in row["optimal"]:
                continue
            calls = [ActualCall(i, call["name"]) for i, call in enumerate(row["actual"])]
            sent = [call["arguments"] for call in row["actual"]]
            fits = lambda leaf, call, one=one, sent=sent, compare=compare: compare(one["args"], sent[call])  # noqa: E731
            found = solve(CallPlan(AnyOrder((Leaf(0, one["name"]),)), "allow"), calls, fits, lambda leaf, call: 1.0)
            assert found.satisfied == row["optimal"][key], row["id"]


def test_forbidden_calls_are_extras_of_an_empty_list() -> None:
    for row in rows("peers_random"):
        names = row["checks"]["forbidden"]
        calls = [ActualCall(i, call["name"]) for i, call in enumerate(row["actual"]) if call["name"] in names]
        found = solve(CallPlan(InOrder(())), calls, lambda leaf, call: True, lambda leaf, call: 1.0)
        assert found.satisfied == row["optimal"]["forbidden"], row["id"]


def test_parallel_calls_with_alternatives_get_the_label_of_the_optimal_assignment() -> None:
    for row in rows("bfcl_random_alternatives"):
        truth, calls = row["ground_truth"], row["calls"]
        leaves = tuple(Leaf(i, next(iter(call))) for i, call in enumerate(truth))
        fits = lambda leaf, call, row=row: row["pairwise_bfcl"][leaf][call]  # noqa: E731
        actual = [ActualCall(i, call["name"]) for i, call in enumerate(calls)]
        found = solve(CallPlan(AnyOrder(leaves)), actual, fits, lambda leaf, call: 1.0)
        assert found.satisfied == row["optimal_label"], row["id"]
