"""Properties that hold for every plan and every run."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evalkit.checks.matching.assign import solve
from evalkit.checks.matching.plan import ActualCall, AnyOrder, Assignment, CallPlan, InOrder, Leaf, Node

MORE = settings(max_examples=80, deadline=None)

names = st.sampled_from("ab")
counts = st.sampled_from([(1, 1), (1, 1), (1, 1), (0, 1), (2, 2), (1, 3), (0, None)])
wants = st.frozensets(st.integers(0, 2), min_size=1)  # which arguments a leaf accepts
leaves = st.lists(st.tuples(names, counts, wants), min_size=1, max_size=5)
runs = st.lists(st.tuples(names, st.integers(0, 2)), max_size=6)
roots = st.sampled_from([InOrder, AnyOrder])
extras = st.sampled_from(["forbid", "allow"])

Wanted = Sequence[tuple[str, tuple[int, int | None], frozenset[int]]]
Run = Sequence[tuple[str, int]]


def nodes(expected: Wanted) -> tuple[Node, ...]:
    return tuple(Leaf(i, name, least, most) for i, (name, (least, most), _) in enumerate(expected))


def judge(root: Any, extra: Any, expected: Wanted, run: Run) -> Assignment:
    actual = [ActualCall(i, name) for i, (name, _) in enumerate(run)]
    return solve(
        CallPlan(root(nodes(expected)), extra),
        actual,
        lambda leaf, call: run[call][1] in expected[leaf][2],
        lambda leaf, call: run[call][1] / 3,
    )


@MORE
@given(extras, leaves, runs, st.randoms(use_true_random=False))
def test_permuting_the_calls_never_changes_an_any_verdict(extra: str, expected: Wanted, run: Run, dice: Any) -> None:
    shuffled = dice.sample(run, len(run))
    assert judge(AnyOrder, extra, expected, run).satisfied == judge(AnyOrder, extra, expected, shuffled).satisfied


@MORE
@given(extras, leaves, runs, st.randoms(use_true_random=False))
def test_permuting_the_expectations_never_changes_an_any_verdict(
    extra: str, expected: Wanted, run: Run, dice: Any
) -> None:
    shuffled = dice.sample(expected, len(expected))
    assert judge(AnyOrder, extra, expected, run).satisfied == judge(AnyOrder, extra, shuffled, run).satisfied


@MORE
@given(roots, leaves, runs, st.integers(0, 6))
def test_an_unlisted_call_under_forbid_always_fails(root: Any, expected: Wanted, run: Run, place: int) -> None:
    longer = [*run[:place], ("unlisted", 0), *run[place:]]
    found = judge(root, "forbid", expected, longer)
    assert not found.satisfied
    assert longer.index(("unlisted", 0)) in found.extra


@MORE
@given(roots, leaves, runs, st.integers(0, 6))
def test_an_unlisted_call_under_allow_changes_nothing(root: Any, expected: Wanted, run: Run, place: int) -> None:
    longer = [*run[:place], ("unlisted", 0), *run[place:]]
    assert judge(root, "allow", expected, longer).satisfied == judge(root, "allow", expected, run).satisfied


@MORE
@given(roots, extras, leaves, runs)
def test_a_matching_call_that_an_optional_expectation_consumes_never_flips_a_verdict(
    root: Any, extra: str, expected: Wanted, run: Run
) -> None:
    optional: Wanted = [*expected, ("new", (0, 1), frozenset({1}))]
    before = judge(root, extra, expected, run).satisfied
    assert judge(root, extra, optional, run).satisfied == before
    assert judge(root, extra, optional, [*run, ("new", 1)]).satisfied == before


@MORE
@given(roots, extras, leaves, runs)
def test_an_optional_call_that_is_made_must_match(root: Any, extra: str, expected: Wanted, run: Run) -> None:
    optional: Wanted = [*expected, ("new", (0, 1), frozenset({1}))]
    found = judge(root, extra, optional, [*run, ("new", 2)])
    assert not found.satisfied
    assert (len(expected), len(run), False) in found.pairs


@MORE
@given(roots, extras, leaves, runs, st.data())
def test_expectations_that_accept_more_never_fail_what_passed(
    root: Any, extra: str, expected: Wanted, run: Run, data: Any
) -> None:
    wider = [(name, count, accepts | data.draw(wants)) for name, count, accepts in expected]
    assert judge(root, extra, expected, run).satisfied <= judge(root, extra, wider, run).satisfied


@MORE
@given(roots, leaves, runs)
def test_what_passes_under_forbid_passes_under_allow(root: Any, expected: Wanted, run: Run) -> None:
    assert judge(root, "forbid", expected, run).satisfied <= judge(root, "allow", expected, run).satisfied


@MORE
@given(extras, leaves, runs)
def test_what_passes_in_strict_order_passes_in_any(extra: str, expected: Wanted, run: Run) -> None:
    assert judge(InOrder, extra, expected, run).satisfied <= judge(AnyOrder, extra, expected, run).satisfied


@MORE
@given(roots, extras, leaves, runs)
def test_times_n_is_the_expectation_written_n_times(root: Any, extra: str, expected: Wanted, run: Run) -> None:
    exact = [(name, (least, least), accepts) for name, (least, _), accepts in expected if least]
    written = [(name, (1, 1), accepts) for name, (least, _), accepts in exact for _ in range(least)]
    if exact:
        assert judge(root, extra, exact, run).satisfied == judge(root, extra, written, run).satisfied


@MORE
@given(roots, extras, leaves, runs)
def test_the_same_question_has_the_same_answer_and_plans_travel(
    root: Any, extra: Any, expected: Wanted, run: Run
) -> None:
    plan = CallPlan(root(nodes(expected)), extra)
    assert pickle.loads(pickle.dumps(plan)) == plan
    found = judge(root, extra, expected, run)
    assert found == judge(root, extra, expected, run)
    assert pickle.loads(pickle.dumps(found)) == replace(found)


def test_nothing_depends_on_the_order_of_sets(toolbox: Any) -> None:
    script = (
        "import importlib.util as u, sys\n"
        f"spec = u.spec_from_file_location('shared', {sys.modules[toolbox.Story.__module__].__file__!r})\n"
        "shared = u.module_from_spec(spec); sys.modules['shared'] = shared; spec.loader.exec_module(shared)\n"
        "print([problem.solve() for problem in shared.generate(7, 300, unknown_turns=True)])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
