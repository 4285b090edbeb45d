"""`max_latency_ms` of an expected call: how long its function took, on the run's clock."""

from __future__ import annotations

from typing import Any

import pytest

import evalkit
from evalkit.checks.compile import compile_expectation
from evalkit.checks.expectation import Judgement
from evalkit.checks.reasons import NOT_JUDGED
from evalkit.errors import SpecError
from evalkit.records.transcript import FunctionCall, Transcript

LIMITED = {"function_name": "f", "max_latency_ms": 500}


def judged(expected: dict[str, Any], *calls: FunctionCall) -> Judgement:
    expectation, problems = compile_expectation(expected)
    assert problems == []
    return expectation.judge(Transcript(calls=calls))


def called(ms: float, index: int = 0, **fields: Any) -> FunctionCall:
    return FunctionCall(name="f", index=index, duration_ms=ms, **fields)


@pytest.mark.parametrize(("ms", "status"), [(0, "passed"), (500, "passed"), (500.25, "failed"), (800, "failed")])
def test_the_time_of_one_call_is_limited(ms: float, status: str) -> None:
    judgement = judged({"expected_function_calls": ["g", LIMITED]}, FunctionCall(name="g"), called(ms, 1))
    assert judgement.status == status
    for reason in judgement.reasons:
        assert (reason.code, reason.call, reason.expected, reason.actual) == ("budget_exceeded", 1, 500, ms)
        assert reason.place == "expected_output.expected_function_calls[1].max_latency_ms"
        assert reason.message == f"call 2, f: took {ms:g} ms, more than the 500 allowed"


def test_a_call_in_time_says_how_long_it_took() -> None:
    judgement = judged({"expected_function_calls": [LIMITED]}, called(12.5))
    assert [result.message for result in judgement.calls[0].results] == ["took 12.5 ms, at most 500"]


def test_the_limit_chooses_among_calls_that_are_alike() -> None:
    expected = {"expected_function_calls": [LIMITED, "f"], "call_order": "any"}
    assert judged(expected, called(800), called(100, 1)).status == "passed"
    assert judged(expected, called(800), called(900, 1)).status == "failed"


@pytest.mark.parametrize("answerer", ["application", "nobody"])
@pytest.mark.parametrize("extra", [(), (FunctionCall(name="g", index=1),)], ids=["as listed", "matched"])
def test_a_time_that_nobody_took_is_not_measured(answerer: str, extra: tuple[FunctionCall, ...]) -> None:
    expected = {"expected_function_calls": [LIMITED], "extra_calls": "allow"}
    judgement = judged(expected, called(0, answered_by=answerer), *extra)
    assert judgement.status == "error"
    assert [(reason.code, reason.message) for reason in judgement.reasons] == [
        ("not_measured", "max_latency_ms: can't be judged: nobody took the time of call 1, f")
    ]
    assert judgement.calls[0].results == ()
    assert judged(expected, called(700, answered_by=answerer), *extra).status == "failed"


def test_a_failure_decides_before_a_time_that_nobody_took() -> None:
    expected = {"expected_function_calls": [{**LIMITED, "arguments": {"a": 1}}]}
    assert judged(expected, called(0, answered_by="application")).status == "failed"


def test_collected_calls_without_a_time_are_not_judged() -> None:
    expected = {"expected_function_calls": [LIMITED]}
    verdict = evalkit.judge(expected, [{"name": "f"}])
    assert verdict.status == "passed"
    assert [(result.check, result.message) for result in verdict.checks if result.status == NOT_JUDGED] == [
        ("max_latency_ms", "can't be judged: nobody took the time of call 1, f")
    ]
    assert evalkit.judge(expected, [{"name": "f", "duration_ms": 499}]).status == "passed"
    assert evalkit.judge(expected, [{"name": "f", "duration_ms": 501}]).status == "failed"


@pytest.mark.parametrize("limit", [-1, "500", True, [500], float("nan")])
def test_the_limit_is_a_number(limit: Any) -> None:
    with pytest.raises(SpecError, match="max_latency_ms must be a number from 0"):
        evalkit.judge({"expected_function_calls": [{**LIMITED, "max_latency_ms": limit}]}, [])


def test_the_delay_of_a_mock_counts_on_the_clock_of_the_run() -> None:
    def agent(task: evalkit.Task) -> None:
        task.call("f")

    def run(limit: float) -> evalkit.Verdict:
        case = evalkit.case_from_dict(
            {
                "input": {"message": "x", "mock_function_responses": {"f": {"$delay_ms": 800, "$return": 1}}},
                "expected_output": {"expected_function_calls": [{"function_name": "f", "max_latency_ms": limit}]},
            }
        )
        return evalkit.run_case(case, agent)

    assert run(800).status == "passed"
    assert [reason.message for reason in run(500).reasons] == ["call 1, f: took 800 ms, more than the 500 allowed"]
