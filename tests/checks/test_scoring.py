"""Partial credit: information, and the verdict only where the case asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evalkit.checks.expectation import Judgement
from evalkit.records.transcript import FunctionCall, Transcript, Violation
from evalkit.records.verdict import Score

CALLS = "expected_function_calls"


def f(**arguments: Any) -> dict[str, Any]:
    return {"function_name": "f", "arguments": arguments}


SCORES: list[tuple[dict[str, Any], list[Any], tuple[float, float, float, float]]] = [
    ({CALLS: ["a", "b"]}, ["a", "b"], (1, 1, 1, 1)),
    ({CALLS: []}, [], (1, 1, 1, 1)),
    ({CALLS: [{"any_order": ["a", "b"]}]}, ["b", "a"], (1, 1, 1, 1)),
    ({CALLS: ["a"]}, [], (0, 0, 0, 1)),
    ({CALLS: []}, ["a"], (0, 1, 0, 1)),
    ({CALLS: ["a", "b"]}, ["a"], (1, 1 / 2, 2 / 3, 1)),
    ({CALLS: ["a"]}, ["a", "b"], (1 / 2, 1, 2 / 3, 1)),
    ({CALLS: ["a", "c"], "extra_calls": "allow"}, ["a", "b"], (1, 1 / 2, 2 / 3, 1)),
    ({CALLS: ["c"], "extra_calls": "allow"}, ["b"], (0, 0, 0, 1)),
    ({CALLS: ["a", "b"]}, ["b", "a"], (1 / 2, 1 / 2, 1 / 2, 1)),
    ({CALLS: [f(x=1, y=2)]}, [("f", {"x": 1, "y": 3})], (0, 0, 0, 1 / 2)),
    ({CALLS: [f(x=1)]}, [("f", {"x": 1, "z": 3})], (0, 0, 0, 1 / 2)),
    ({CALLS: [f(x=1)]}, [("f", "x")], (0, 0, 0, 0)),
    # what is no mapping misses each argument, and where none is demanded the demand that there are none
    ({CALLS: [f(x=1, y=2), f(x=3)]}, [("f", "x"), ("f", {"x": 3})], (1 / 2, 1 / 2, 1 / 2, 1 / 3)),
    ({CALLS: [f(x={"$gt": 1}, y={"$gt": 1}), f(x=3)]}, [("f", "x"), ("f", {"x": 3})], (1 / 2, 1 / 2, 1 / 2, 1 / 3)),
    ({CALLS: [f(), f(x=3)]}, [("f", "x"), ("f", {"x": 3})], (1 / 2, 1 / 2, 1 / 2, 1 / 2)),
    (
        {CALLS: [{"function_name": "f", "arguments": {"$len": 1}, "outcome": "error"}]},
        [("f", {"x": 1})],
        (0, 0, 0, 1),
    ),
    ({CALLS: [f(x=1), f(x=2, y=2, z=2)]}, [("f", {"x": 1})], (1, 1 / 2, 2 / 3, 1 / 4)),
    (
        {
            CALLS: [
                {
                    "function_name": "f",
                    "body_contains": ["a", "b"],
                    "arguments_absent": ["cc", "bcc"],
                    "outcome": "error",
                }
            ]
        },
        [("f", {"body": "a", "cc": 1})],
        (0, 0, 0, 1 / 2),
    ),
    (
        {CALLS: [{"function_name": "f", "arguments_contain": {"x": "{{ calls.g.result }}"}}]},
        [("f", {"x": 1})],
        (0, 0, 0, 0),
    ),
    (  # a demand that leads nowhere is one that does not hold
        {CALLS: [{"function_name": "f", "arguments_contain": {"x": "{{ calls.g.result }}"}, "body_contains": "a"}]},
        [("f", {"x": 1, "body": "a"})],
        (0, 0, 0, 1 / 2),
    ),
    ({CALLS: [{"function_name": "f", "times": 3}]}, ["f"], (1, 1 / 3, 1 / 2, 1)),
    ({CALLS: [{**f(x=1), "times": 3}]}, [("f", {"x": 1})], (1, 1 / 3, 1 / 2, 1 / 3)),
    (  # a call too many is judged although others may be made
        {CALLS: [{"function_name": "f", "times": 1}], "extra_calls": "allow"},
        ["f", "f", "x"],
        (1 / 2, 1, 2 / 3, 1),
    ),
    (
        {CALLS: [{**f(x=1), "optional": True, "times": 2}], "extra_calls": "allow"},
        [("f", {"x": 2}), "g"],
        (0, 0, 0, 0),
    ),
    (
        {CALLS: [{**f(x=1), "optional": True}], "extra_calls": "allow"},
        [("f", {"x": 2}), "g"],
        (0, 0, 0, 0),
    ),
]


@pytest.mark.parametrize(("expected", "made", "score"), SCORES)
def test_the_score_follows_its_formulas(
    expected: Any, made: Any, score: tuple[float, ...], judged: Callable[..., Judgement]
) -> None:
    found = judged(expected, made).score
    assert found is not None
    assert (found.precision, found.recall, found.f1, found.argument_accuracy) == pytest.approx(score)


def test_without_a_list_there_is_no_score(judged: Callable[..., Judgement]) -> None:
    assert judged({"max_function_calls": 5}, ["a"]).score is None


def test_min_score_replaces_the_demand_that_every_call_matches(judged: Callable[..., Judgement]) -> None:
    expected = {CALLS: ["a", "b"], "min_score": 0.66}
    judgement = judged(expected, ["a"])
    assert (judgement.status, judgement.reasons) == ("passed", ())
    assert [(line.status, [(found.status, found.message) for found in line.results]) for line in judgement.calls] == [
        ("passed", []),
        ("passed", [("not_judged", "b was not called")]),
    ]
    assert [line.expected_name for line in judgement.calls] == ["a", "b"]
    assert all(result.reasons == () for line in judgement.calls for result in line.results)
    assert [(found.check, found.status, found.message) for found in judgement.checks] == [
        (CALLS, "not_judged", "1 of 2 expected calls met"),
        ("min_score", "passed", "f1 is 0.667, at least 0.66"),
    ]


def test_a_score_that_is_too_low_is_told_after_its_causes(judged: Callable[..., Judgement]) -> None:
    judgement = judged({CALLS: ["a", "b"], "min_score": {"recall": 0.75, "precision": 1}}, ["a"])
    assert [(reason.code, reason.message, reason.place) for reason in judgement.reasons] == [
        ("missing_call", "b was not called", f"expected_output.{CALLS}[1]"),
        ("score_too_low", "recall is 0.5, expected at least 0.75", "expected_output.min_score"),
    ]
    assert (judgement.reasons[1].expected, judgement.reasons[1].actual) == ({"recall": 0.75}, {"recall": 0.5})


def test_a_score_is_reached_exactly(judged: Callable[..., Judgement]) -> None:
    made = ["a", "b", "x"]
    assert judged({CALLS: ["a", "b"], "min_score": 0.8}, made).status == "passed"
    assert judged({CALLS: ["a", "b"], "min_score": 0.8000001}, made).status == "failed"


def test_min_score_tolerates_no_call_that_fails_by_itself(judged: Callable[..., Judgement]) -> None:
    """Forbidden, refused and invalid calls fail whatever the score is."""
    expected = {CALLS: ["a"], "min_score": 0}
    invalid = {"name": "a", "violations": (Violation(path=(), schema_path=(), message="bad"),)}
    assert judged(expected, [invalid]).reasons[0].code == "invalid_arguments"
    assert judged(expected, [{"name": "a", "problem": "unmocked_call"}]).reasons[0].code == "unmocked_call"
    assert judged({**expected, "forbidden_function_calls": "b"}, ["b"]).reasons[0].code == "forbidden_call"
    assert judged(expected, []).status == "passed"


def test_every_score_that_is_asked_for_is_told(compiled: Callable[..., Any]) -> None:
    """In a user turn too, whose place is longer."""
    expected = {CALLS: ["a", "b"], "min_score": {"recall": 0.75, "f1": 0.75}}
    expectation = compiled(expected, path=("input", "turns", 1, "expected_output"))
    found = expectation.judge(Transcript(calls=(FunctionCall(name="a"),)))
    assert (found.reasons[-1].message, found.reasons[-1].place) == (
        "recall is 0.5, expected at least 0.75, f1 is 0.667, expected at least 0.75",
        "input.turns[1].expected_output.min_score",
    )
    made = (FunctionCall(name="a"), FunctionCall(name="x", index=1), FunctionCall(name="b", index=2))
    assert (
        expectation.judge(Transcript(calls=made)).checks[-1].message
        == "recall is 1, at least 0.75, f1 is 0.8, at least 0.75"
    )


def test_what_is_as_expected_has_a_full_score(judged: Callable[..., Judgement]) -> None:
    """Also where what is expected depends on the call itself."""
    call = {"function_name": "check", "result_contains": {"serial": "{{ arguments.serial }}"}}
    made = [("check", {"serial": name}, {"serial": name}) for name in ("SN1", "SN2")]
    for expected in ({CALLS: [call, call]}, {CALLS: [call, call], "call_order": "any", "extra_calls": "allow"}):
        found = judged({**expected, "min_score": {"f1": 1, "precision": 1}}, made)
        assert (found.status, found.score) == ("passed", Score())
