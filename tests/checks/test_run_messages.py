"""What is said of the run as a whole: how it ended, what it used and cost, what was not measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from evalkit.checks.expectation import Judgement
from evalkit.records.transcript import ModelCall, ModelTurn, RunFault, Timing, Usage

TIMING = Timing(model_ms=800, function_ms=250.5, overhead_ms=12.25)
USAGE = Usage(input_tokens=100, output_tokens=20, total_tokens=130)

RUN: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"stop_reason": "completed"}, {}, "passed", "ended with 'completed'"),
    ({"stop_reason": "max_iterations"}, {"stop_reason": "max_iterations"}, "passed", "ended with 'max_iterations'"),
    (
        {"stop_reason": "max_iterations"},
        {},
        "failed",
        "stop_reason: the run ended with 'completed', expected 'max_iterations'",
    ),
    (
        {"max_function_calls": 9},
        {"stop_reason": "email_not_sent"},
        "failed",
        "stop_reason: the run ended with 'email_not_sent', expected 'completed'",
    ),
    (
        {"max_function_calls": 9},
        {"stop_reason": "deadline"},
        "failed",
        "deadline: the run ended with 'deadline', expected 'completed'",
    ),
    (
        {"max_function_calls": 9},
        {"stop_reason": "provider_error"},
        "error",
        "provider_error: stop_reason: the run ended with 'provider_error', expected 'completed'",
    ),
    (
        {"scenario_instruction_used": "valid-warranty"},
        {"instruction_used": "Valid_Warranty"},
        "passed",
        "used 'Valid_Warranty'",
    ),
    (
        {"scenario_instruction_used": "valid-warranty"},
        {"instruction_used": "missing-info"},
        "failed",
        "wrong_instruction: the agent used instruction 'missing-info', expected 'valid-warranty'",
    ),
    (
        {"scenario_instruction_used": "a"},
        {},
        "error",
        "not_measured: scenario_instruction_used: can't be judged: the agent did not report which instruction it used",
    ),
    ({"max_model_turns": 1}, {"turns": (ModelTurn(),)}, "passed", "1 model turn, at most 1"),
    (
        {"max_model_turns": 1},
        {"turns": (ModelTurn(), ModelTurn())},
        "failed",
        "budget_exceeded: 2 model turns, expected at most 1",
    ),
    ({"max_model_turns": 1}, {}, "error", "not_measured: max_model_turns: can't be judged: no model turn was recorded"),
    ({"max_tokens": 130}, {"usage": USAGE}, "passed", "130 tokens, at most 130"),
    ({"max_tokens": 129}, {"usage": USAGE}, "failed", "budget_exceeded: 130 tokens, expected at most 129"),
    (
        {"max_tokens": 5},
        {"usage": Usage(input_tokens=3, output_tokens=2, reasoning_tokens=1)},
        "failed",
        "budget_exceeded: 6 tokens, expected at most 5",
    ),
    (
        {"max_tokens": 5},
        {},
        "error",
        "not_measured: max_tokens: can't be judged: the model's usage of tokens was not reported",
    ),
    ({"max_cost_usd": 0.01}, {"cost_usd": 0.0}, "passed", "0 USD, at most 0.01"),
    ({"max_cost_usd": 0.01}, {"cost_usd": 0.0125}, "failed", "budget_exceeded: 0.0125 USD, expected at most 0.01"),
    (
        {"max_cost_usd": 1},
        {},
        "error",
        "not_measured: max_cost_usd: can't be judged: the model has no known price; [tool.evalkit.prices] has none",
    ),
    (
        {"max_cost_usd": 1},
        {"cost_usd": float("nan")},
        "error",
        "not_measured: max_cost_usd: can't be judged: the model has no known price; [tool.evalkit.prices] has none",
    ),
    ({"processing_time_ms": 1062.75}, {"timing": TIMING}, "passed", "1062.75 ms, at most 1062.75"),
    ({"processing_time_ms": 1000}, {"timing": TIMING}, "failed", "budget_exceeded: 1062.75 ms, expected at most 1000"),
    (
        {"processing_time_ms": 1000},
        {},
        "error",
        "not_measured: processing_time_ms: can't be judged: the run's time was not measured",
    ),
    ({"max_overhead_ms": 13}, {"timing": TIMING}, "passed", "12.25 ms in the agent's own code, at most 13"),
    (
        {"max_overhead_ms": 12},
        {"timing": TIMING},
        "failed",
        "budget_exceeded: 12.25 ms in the agent's own code, expected at most 12",
    ),
    (
        {"max_overhead_ms": 1},
        {},
        "error",
        "not_measured: max_overhead_ms: can't be judged: the run's time was not measured",
    ),
    (
        {"judge": "The answer is polite."},
        {},
        "error",
        "not_measured: judge: can't be judged: no model has graded it",
    ),
]


@pytest.mark.parametrize(("expected", "transcript", "status", "message"), RUN)
def test_a_demand_on_the_run_says_what_it_found(
    expected: Any, transcript: Any, status: str, message: str, judged: Callable[..., Judgement]
) -> None:
    judgement = judged(expected, **transcript)
    assert judgement.status == status
    if status == "passed":
        assert [result.message for result in judgement.checks] == [message]
    else:
        assert [f"{reason.code}: {reason.message}" for reason in judgement.reasons] == [message]
        (result,) = [result for result in judgement.checks if result.status == status]
        assert result.check in (*expected, "stop_reason")
        assert message.endswith(result.message)


MEASURES: list[tuple[dict[str, Any], dict[str, Any], Any, Any]] = [
    ({"stop_reason": "a"}, {}, "a", "completed"),
    ({"scenario_instruction_used": "a"}, {"instruction_used": "b"}, "a", "b"),
    ({"max_function_calls": 0}, {"made": ["f"]}, 0, 1),
    ({"max_cost_usd": 0.01}, {"cost_usd": 0.5}, 0.01, 0.5),
    ({"final_function_call": "a"}, {"made": ["a", "b"]}, "a", "b"),
    ({"final_function_call": "a"}, {"made": ["b"]}, "a", "b"),
    ({"final_function_call": "a"}, {"made": ["a", "b", "c"]}, "a", "c"),
]


@pytest.mark.parametrize(("expected", "transcript", "wanted", "found"), MEASURES)
def test_a_reason_about_the_run_carries_both_values(
    expected: Any, transcript: Any, wanted: Any, found: Any, judged: Callable[..., Judgement]
) -> None:
    (reason,) = judged(expected, **transcript).reasons
    assert (reason.expected, reason.actual, reason.call) == (wanted, found, None)


FINAL: list[tuple[list[str], str, str]] = [
    (["a", "send_email"], "passed", "send_email was called last"),
    ([], "failed", "missing_call: no call was made, expected send_email as the last"),
    (["a"], "failed", "missing_call: the last call is a, expected send_email, which was not called"),
    (
        ["a", "sendEmail"],
        "failed",
        "missing_call: the last call is sendEmail, expected send_email, which was not called ('sendEmail' was)",
    ),
    (
        ["send_email", "send_email", "a", "b"],
        "failed",
        "wrong_order: the last call is b, expected send_email, which was call 2 of 4",
    ),
]


@pytest.mark.parametrize(("made", "status", "message"), FINAL)
def test_the_final_call_is_named(made: Any, status: str, message: str, judged: Callable[..., Judgement]) -> None:
    judgement = judged({"final_function_call": "send_email"}, made)
    told = [f"{reason.code}: {reason.message}" for reason in judgement.reasons] or [judgement.checks[0].message]
    assert (judgement.status, told) == (status, [message])


def test_a_failed_final_call_is_still_the_final_call(judged: Callable[..., Judgement]) -> None:
    assert judged({"final_function_call": "a"}, [{"name": "a", "outcome": "error"}]).status == "passed"


def test_calls_are_counted_with_failed_attempts(told: Callable[..., list[str]]) -> None:
    made = ["a", {"name": "a", "outcome": "error"}]
    assert told({"max_function_calls": 1}, made) == ["budget_exceeded: 2 function calls, expected at most 1"]


WITHOUT_EVIDENCE = {
    "stop_reason": "completed",
    "scenario_instruction_used": "a",
    "max_model_turns": 1,
    "max_tokens": 1,
    "max_cost_usd": 1,
    "processing_time_ms": 1,
    "max_overhead_ms": 1,
    "judge": "polite",
}


def test_judging_calls_alone_lists_what_can_not_be_judged(judged: Callable[..., Judgement]) -> None:
    """`evalkit.judge` has no run: such demands are listed, and decide nothing."""
    judgement = judged({**WITHOUT_EVIDENCE, "expected_function_calls": []}, mode="judge")
    assert (judgement.status, judgement.reasons) == ("passed", ())
    found = {result.check: result for result in judgement.checks if result.check != "expected_function_calls"}
    assert {key: result.status for key, result in found.items()} == dict.fromkeys(WITHOUT_EVIDENCE, "not_judged")
    assert all("judged" in result.message for result in found.values())


def test_judging_calls_alone_is_no_pass_where_none_of_the_demands_can_be_judged(
    judged: Callable[..., Judgement],
) -> None:
    judgement = judged({"max_tokens": 5}, ["a"], mode="judge")
    assert (judgement.status, [reason.code for reason in judgement.reasons]) == ("error", ["not_measured"])
    assert judgement.summary == "max_tokens: can't be judged: the model's usage of tokens was not reported"


def test_a_run_without_evidence_is_an_error(judged: Callable[..., Judgement]) -> None:
    judgement = judged(WITHOUT_EVIDENCE)
    assert judgement.status == "error"
    assert {reason.code for reason in judgement.reasons} == {"not_measured"}
    assert len(judgement.reasons) == len(WITHOUT_EVIDENCE) - 1
    unmeasured = [result for result in judgement.checks if result.status == "error"]
    assert [f"{result.check}: {result.message}" for result in unmeasured] == [
        reason.message for result in unmeasured for reason in result.reasons
    ]


def test_parallel_calls_without_turns_are_not_measured(judged: Callable[..., Judgement]) -> None:
    """In `judge` too: the turns belong to the calls that it is given."""
    expected = {"expected_function_calls": [{"in_parallel": ["a", "b"]}]}
    for mode in ("run", "judge"):
        judgement = judged(expected, ["a", "b"], mode=mode)
        (reason,) = judgement.reasons
        assert (judgement.status, reason.code) == ("error", "not_measured")
        assert reason.message == (
            "in_parallel: can't be judged: the calls do not say in which model turn they were made; let evalkit see "
            "the model's turns (task.turn, an adapter, an HTTP cassette), or ask for any_order"
        )
        assert reason.place == "expected_output.expected_function_calls[0].in_parallel"


def test_a_failure_decides_before_missing_evidence(judged: Callable[..., Judgement]) -> None:
    judgement = judged({"max_tokens": 1, "response_contains": "a"}, response="b")
    assert judgement.status == "failed"
    assert [reason.code for reason in judgement.reasons] == ["text_missing", "not_measured"]


RAISED = RunFault(code="agent_raised", message="the agent raised ValueError: boom")
LATE = RunFault(code="deadline", message="no answer after 60 s")
DOWN = RunFault(code="provider_error", message="503 from the model", measured=False)


def test_an_agent_that_raised_failed_whatever_else_holds(judged: Callable[..., Judgement]) -> None:
    judgement = judged({"max_function_calls": 5}, fault=RAISED, stop_reason="agent_raised")
    assert judgement.status == "failed"
    assert [(reason.code, reason.message) for reason in judgement.reasons] == [(RAISED.code, RAISED.message)]
    assert judgement.summary == RAISED.message


def test_what_is_missing_after_a_fault_is_told_after_it(judged: Callable[..., Judgement]) -> None:
    judgement = judged({"expected_function_calls": ["a", "b"]}, ["a"], fault=LATE, stop_reason="deadline")
    assert [reason.code for reason in judgement.reasons] == ["deadline", "missing_call"]


def test_an_end_that_is_expected_is_no_failure(judged: Callable[..., Judgement]) -> None:
    """`stop_reason: deadline` asks for just that end."""
    expected = {"stop_reason": "deadline", "expected_function_calls": ["a"]}
    judgement = judged(expected, ["a"], fault=LATE, stop_reason="deadline")
    assert (judgement.status, judgement.reasons) == ("passed", ())
    assert judged(expected, [], fault=LATE, stop_reason="deadline").reasons[0].code == "missing_call"
    assert judged({**expected, "max_tokens": 1}, ["a"], fault=LATE, stop_reason="deadline").status == "error"


def test_a_fault_of_the_world_is_an_error_and_nothing_else(judged: Callable[..., Judgement]) -> None:
    """Calls that could not be made any more are nobody's failure."""
    judgement = judged({"expected_function_calls": ["a", "b"]}, ["a"], fault=DOWN, stop_reason="provider_error")
    assert judgement.status == "error"
    assert [(reason.code, reason.message) for reason in judgement.reasons] == [("provider_error", DOWN.message)]
    assert [line.call.name for line in judgement.calls if line.call] == ["a"]
    assert len(judgement.calls) == 1


def test_a_fault_fails_a_run_that_says_it_completed(judged: Callable[..., Judgement]) -> None:
    assert judged({"max_function_calls": 5}, fault=RAISED).status == "failed"


def test_after_a_fault_everything_that_was_found_is_kept(judged: Callable[..., Judgement]) -> None:
    """For the trace; the end of the run itself is told once, by the fault."""
    expected = {"expected_function_calls": ["a"], "max_function_calls": 5}
    for fault, stop_reason in ((RAISED, "agent_raised"), (DOWN, "provider_error")):
        judgement = judged(expected, ["a"], fault=fault, stop_reason=stop_reason)
        assert [(line.call and line.call.name, line.status) for line in judgement.calls] == [("a", "passed")]
        found = {result.check: result.status for result in judgement.checks}
        assert found["expected_function_calls"] == found["max_function_calls"] == "passed"
        assert judgement.summary == fault.message
        assert [reason.place for reason in judgement.reasons] == [""]
    raised = judged(expected, ["a"], fault=RAISED, stop_reason="agent_raised")
    assert "stop_reason" not in {result.check for result in raised.checks}
    assert raised.score is not None
    expected_end = judged({**expected, "stop_reason": "deadline"}, ["a"], fault=LATE, stop_reason="deadline")
    assert expected_end.summary == "1 call, 3 checks passed"


def test_a_pass_sums_up_what_was_judged(judged: Callable[..., Judgement]) -> None:
    expected = {"expected_function_calls": ["a"], "max_function_calls": 1}
    assert judged(expected, ["a"]).summary == "1 call, 2 checks passed"
    assert judged({"max_function_calls": 1}).summary == "0 calls, 1 check passed"


def test_what_is_not_judged_is_not_counted_as_passed(judged: Callable[..., Judgement]) -> None:
    expected = {**WITHOUT_EVIDENCE, "expected_function_calls": []}
    assert judged(expected, mode="judge").summary == "0 calls, 1 check passed, 8 not judged"


def test_large_numbers_are_written_whole(told: Callable[..., list[str]]) -> None:
    found = told({"max_tokens": 12_345_678}, usage=Usage(total_tokens=23_456_789))
    assert found == ["budget_exceeded: 23456789 tokens, expected at most 12345678"]


SAID = ModelTurn(finish_message="the prompt was blocked")


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ((SAID,), ": the prompt was blocked"),
        ((ModelTurn(text="Hello"), SAID), ": the prompt was blocked"),
        ((SAID, ModelTurn(text="Hello")), ""),
        ((replace(SAID, calls=(ModelCall(name="f"),)),), ""),
        ((ModelTurn(),), ""),
        ((), ""),
    ],
)
def test_what_the_service_said_of_the_last_reply_is_told_with_the_end(
    turns: Any, words: str, told: Callable[..., list[str]]
) -> None:
    """Of that reply alone, and only where it is the end: after calls the run went on."""
    found = told({"max_function_calls": 5}, turns=turns, stop_reason="blocked")
    assert found == [f"stop_reason: the run ended with 'blocked', expected 'completed'{words}"]


def test_how_a_run_ended_is_not_judged_from_calls_alone(judged: Callable[..., Judgement]) -> None:
    """Which is said where the case asks for it, and only there."""
    asked = judged({"stop_reason": "completed", "max_function_calls": 1}, mode="judge").checks
    assert [(result.check, result.status, result.message) for result in asked] == [
        ("stop_reason", "not_judged", "not judged: calls alone do not tell how the run ended"),
        ("max_function_calls", "passed", "0 function calls, at most 1"),
    ]
    assert [result.check for result in judged({"max_function_calls": 1}, mode="judge").checks] == ["max_function_calls"]


def test_an_end_that_is_the_services_fault_is_no_failure(judged: Callable[..., Judgement]) -> None:
    expected = {"stop_reason": "completed", "max_function_calls": 1}
    judgement = judged(expected, stop_reason="provider_error")
    assert (judgement.status, judgement.reasons[0].code) == ("error", "provider_error")
    assert judgement.reasons[0].place == "expected_output.stop_reason"
    judgement = judged(expected, stop_reason="provider_error", mode="judge")
    assert (judgement.status, judgement.checks[0].status) == ("passed", "not_judged")
