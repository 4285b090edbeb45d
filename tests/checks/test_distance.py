"""How far a call is from what is expected: what decides which of several expectations explains it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evalkit.checks.compile import compile_expectation
from evalkit.checks.evidence import Evidence
from evalkit.checks.expectation import Judgement
from evalkit.checks.expected_calls import ExpectedCall
from evalkit.records.transcript import FunctionCall, Transcript, Violation

CALLS = "expected_function_calls"
BAD = (Violation(path=(), schema_path=(), message="bad"),)


def leaf(**keys: Any) -> ExpectedCall:
    expectation, problems = compile_expectation({CALLS: [{"function_name": "f", **keys}]})
    assert problems == []
    assert expectation.calls is not None
    return expectation.calls.leaves[0]


def evidence(call: FunctionCall) -> Evidence:
    return Evidence(Transcript(calls=(call,)), None, "run")


# With nothing else said a call has two demands beside its own: to succeed, and to have valid arguments.
EXACT = {"arguments": {"x": 1, "y": 2}, "outcome": "any", "valid": True}
DISTANCES: list[tuple[dict[str, Any], dict[str, Any], float]] = [
    ({}, {}, 0),
    ({}, {"outcome": "error"}, 1 / 2),
    ({}, {"outcome": "error", "violations": BAD}, 1),
    ({"outcome": "any", "valid": True}, {"violations": BAD}, 1),
    ({"arguments": {"x": 1}}, {"arguments": {"x": 1}}, 0),
    ({"arguments": {"x": 1}}, {"arguments": {"x": 2}}, 1 / 3),
    ({"arguments": {"x": 1, "y": 2}}, {"arguments": {"x": 1, "y": 3}}, 1 / 6),
    ({"arguments": {"x": 1, "y": 2, "z": 3}}, {"arguments": {"x": 1, "y": 2}}, 1 / 9),
    ({"arguments": {"x": 1}}, {"arguments": {"x": 1, "a": 1, "b": 2, "c": 3}}, 1 / 4),
    ({"arguments": {"x": 1, "y": 2}}, {"arguments": "text"}, 1 / 3),
    ({"arguments": {}}, {"arguments": "text"}, 1 / 3),
    ({"arguments": {}}, {"arguments": {"a": 1}}, 1 / 3),
    ({"arguments": {}}, {"arguments": None}, 0),
    ({"arguments": {"x": {"$gt": 1}, "y": 2}}, {"arguments": {"x": 5, "y": 3}}, 1 / 6),
    ({"arguments": {"x": {"$gt": 1}, "y": 2}}, {"arguments": {"y": 2}}, 1 / 6),
    ({"arguments": {"x": {"$gt": 1}, "y": {"$absent": True}}}, {"arguments": {"x": 5}}, 0),
    ({"arguments": {"x": {"$gt": 1}}}, {"arguments": {"x": 5, "a": 1}}, 1 / 6),
    ({"arguments": {"x": {"$gt": 1}}}, {"arguments": {"x": 0, "a": 1, "b": 1}}, 1 / 3),
    ({"arguments": {"x": {"$gt": 1}, "y": {"$gt": 1}}}, {"arguments": ["x"]}, 1 / 3),
    ({"arguments": {"$any": True}}, {"arguments": {"x": 5}}, 0),
    ({"arguments": {"$len": 2}}, {"arguments": {"x": 5}}, 1 / 3),
    ({"arguments_contain": {"x": "a", "y": "b"}}, {"arguments": {"x": "a b", "q": 1}}, 1 / 6),
    ({"arguments_contain": {"x": "a"}}, {"arguments": {"x": "a", "q": 1, "r": 2}}, 0),
    ({"body_contains": ["a", "b", "c", "d"]}, {"arguments": {"body": "a"}}, 1 / 4),
    ({"body_contains": ["a", "b"]}, {"arguments": {"body": None}}, 1 / 3),
    ({"body_contains": ["a", "b"]}, {"arguments": {}}, 1 / 3),
    ({"body_excludes": ["a", "b"]}, {"arguments": {"body": "a"}}, 1 / 6),
    ({"body_excludes": ["a", "b"]}, {"arguments": {"body": None}}, 1 / 3),
    ({"body_excludes": ["a", "b"]}, {"arguments": {}}, 1 / 3),
    ({"arguments_absent": ["a", "b"]}, {"arguments": {"a": 1}}, 1 / 6),
    ({"result_contains": {"a": 1, "b": 2}}, {"result": {"a": 1}}, 1 / 6),
    ({"result_contains": 5}, {"result": 6}, 1 / 3),
    ({"channel": "native"}, {}, 1 / 3),
    ({"channel": "native", "arguments": {"x": 1}}, {"channel": "native", "arguments": {"x": 2}}, 1 / 4),
    ({"arguments": {"x": "{{ calls.g.result }}"}}, {"arguments": {"x": 1}}, 1 / 3),
]


@pytest.mark.parametrize(("keys", "call", "distance"), DISTANCES)
def test_the_distance_is_the_mean_share_of_demands_that_fail(keys: Any, call: Any, distance: float) -> None:
    actual = FunctionCall(name="f", **call)
    around = evidence(actual)
    expected = leaf(**keys)
    bound = expected.bind(around.resolve)
    assert bound.measure_distance(actual, around) == pytest.approx(distance)
    assert bound.is_met_by(actual, around) is (distance == 0)


def test_a_call_of_which_nothing_is_demanded_is_not_far() -> None:
    expected = {CALLS: [{"function_name": "f", "outcome": "any"}], "valid_arguments": False}
    expectation, _ = compile_expectation(expected)
    assert expectation.calls is not None
    actual = FunctionCall(name="f", outcome="error", violations=BAD)
    assert expectation.calls.leaves[0].measure_distance(actual, evidence(actual)) == 0


def test_the_nearest_expectation_explains_a_call_that_fits_none(judged: Callable[..., Judgement]) -> None:
    """For each way of being near, whatever the order of the list."""
    wanted = {"arguments_contain": {"x": 1, "y": 1, "z": 1}, "body_contains": ["a", "b", "c"]}
    near = ("f", {"x": 1, "y": 1, "z": 2, "body": "a b c"})
    far: list[dict[str, Any]] = [
        {"arguments_contain": {"x": 1, "y": 2, "z": 3}, "body_contains": ["a", "b", "c"]},
        {"arguments_contain": {"x": 1, "y": 1, "z": 1}, "body_contains": ["q", "r", "c"]},
    ]
    for other in far:
        for listed in ([wanted, other], [other, wanted]):
            calls = [{"function_name": "f", **keys} for keys in listed]
            judgement = judged({CALLS: calls, "call_order": "any"}, [near])
            assert judgement.reasons[0].message == "call 1, f: arguments.z: expected 1, got 2"


CODES: list[tuple[dict[str, Any], Any, str]] = [
    ({"arguments": {"a": {"b": 1}}}, {"a": {}}, "wrong_argument"),
    ({"arguments": {"a": {}}}, {"a": {"b": 1}}, "wrong_argument"),
    ({"arguments_contain": {"a": [{"b": 1}]}}, {"a": [{}]}, "wrong_argument"),
    ({"arguments": {"a": 1}}, {}, "missing_argument"),
    ({"arguments": {}}, {"a": 1}, "unexpected_argument"),
    ({"arguments_contain": {"a": {"$absent": True}}}, {"a": 1}, "unexpected_argument"),
    ({"arguments_contain": {"a": {"$not": 1}}}, {"a": 1}, "wrong_argument"),
    ({"result_contains": {"a": {"$absent": True}}}, None, "result_mismatch"),
]


@pytest.mark.parametrize(("keys", "arguments", "code"), CODES)
def test_an_argument_is_missing_or_unexpected_as_a_whole(
    keys: Any, arguments: Any, code: str, judged: Callable[..., Judgement]
) -> None:
    """What is amiss inside an argument makes it wrong."""
    (reason,) = judged({CALLS: [{"function_name": "f", **keys}]}, [("f", arguments, {"a": 5})]).reasons
    assert reason.code == code
