"""Against brute force: every subset, every split and every interleaving of thousands of small random plans."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.checks.matching import cover, explain, search, task, weigh

KINDS = {
    "lists": {"groups": False},
    "groups": {"choices": False},
    "groups and alternatives": {},
    "some calls without a turn": {"unknown_turns": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_satisfied_means_that_a_satisfying_assignment_exists(toolbox: Any, kind: str) -> None:
    disagreements = [
        problem
        for problem in toolbox.generate(1, 2500, **KINDS[kind])
        if problem.solve().satisfied != toolbox.Oracle(problem).satisfied()
    ]
    assert not disagreements[:1]


@pytest.mark.parametrize("kind", KINDS)
def test_every_assignment_keeps_its_promises(toolbox: Any, kind: str) -> None:
    for problem in toolbox.generate(2, 1500, **KINDS[kind]):
        found = problem.solve()
        assert not toolbox.flaws(problem, found), (problem, found)


@pytest.mark.parametrize("kind", ["lists", "groups"])
def test_an_unsatisfied_assignment_has_as_many_fitting_pairs_in_order_as_possible(toolbox: Any, kind: str) -> None:
    for problem in toolbox.generate(3, 2000, **KINDS[kind]):
        found = problem.solve()
        if not found.satisfied:
            fitting = sum(pair.fits for pair in found.pairs)
            assert fitting == toolbox.Oracle(problem, relaxed=True).most_in_order(), (problem, found)


def test_the_pairs_of_a_satisfied_plan_satisfy_it(toolbox: Any) -> None:
    for problem in toolbox.generate(4, 1500):
        found = problem.solve()
        if found.satisfied and problem.leaves():
            met = frozenset((pair.leaf_id, pair.actual_index) for pair in found.pairs)
            oracle = toolbox.Oracle(toolbox.Problem(problem.plan, problem.actual, met))
            oracle.strays = toolbox.Oracle(problem).strays
            assert oracle.consumes(problem.plan.root, tuple(sorted(pair.actual_index for pair in found.pairs)))


def test_a_plan_that_only_lacks_turns_is_unproven(toolbox: Any) -> None:
    seen = 0
    for problem in toolbox.generate(5, 2500, unknown_turns=True):
        found = problem.solve()
        only_turns = not found.satisfied and toolbox.Oracle(problem, lenient=True).satisfied()
        assert bool(found.unproven) == only_turns, (problem, found)
        seen += only_turns
    assert seen > 20


@pytest.mark.parametrize("kind", KINDS)
def test_no_shortcut_alters_a_verdict(toolbox: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheaper explanations of large plans, and what a long search turns to, on plans that oracles can check."""
    for module in (weigh, explain, task):
        monkeypatch.setattr(module, "EXACT", 0)
    monkeypatch.setattr(search, "_PATIENCE", 1)
    monkeypatch.setattr(search, "MAX_WIDTH", 1)
    monkeypatch.setattr(cover, "_FEW", 0)
    monkeypatch.setattr(task, "MAX_TRIES", 1)
    for problem in toolbox.generate(6, 1500, **KINDS[kind]):
        found = problem.solve()
        assert found.satisfied == toolbox.Oracle(problem).satisfied(), (problem, found)
        assert not toolbox.flaws(problem, found), (problem, found)
