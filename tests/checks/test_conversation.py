"""Multi-turn cases: each user turn is judged over its own calls, the whole over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evalkit.checks.compile import compile_expectation
from evalkit.checks.evidence import extract_turn
from evalkit.checks.expectation import Expectation, judge_conversation
from evalkit.records.transcript import FunctionCall, ModelCall, ModelTurn, RunFault, Timing, Transcript, Usage

CALLS = "expected_function_calls"
ASK = ModelTurn(calls=(ModelCall(name="f"),), usage=Usage(total_tokens=10))
SAY = ModelTurn(text="ok", usage=Usage(total_tokens=5))


def conversation(**changes: Any) -> Transcript:
    """Two user turns: `find` and then `book`, each ended by a reply in words."""
    made = (
        FunctionCall(name="find", index=0, turn=0, user_turn=0, result={"id": "H-7"}),
        FunctionCall(name="book", index=1, turn=2, user_turn=1, arguments={"id": "H-7"}),
    )
    fields = {"calls": made, "turns": (ASK, SAY, ASK, ASK, SAY), "responses": ("Found H-7.", "Booked."), **changes}
    return Transcript(response="Booked.", timing=Timing(model_ms=5), usage=Usage(total_tokens=40), **fields)


def turn(expected: Any, number: int = 0) -> Expectation:
    compiled, problems = compile_expectation(expected, path=("input", "turns", number, "expected_output"))
    assert problems == []
    return compiled


def test_a_part_holds_what_belongs_to_its_turn() -> None:
    first, second = extract_turn(conversation(), 0), extract_turn(conversation(), 1)
    assert [call.name for call in first.calls] == ["find"]
    assert (first.response, second.response) == ("Found H-7.", "Booked.")
    assert (first.turns, second.turns) == ((ASK, SAY), (ASK, ASK, SAY))
    assert (first.usage, second.usage) == (Usage(total_tokens=15), Usage(total_tokens=25))
    assert (first.timing, first.cost_usd) == (None, None)
    assert second.calls[0].index == 1


def test_model_turns_are_counted_only_where_they_can_be_told_apart() -> None:
    assert extract_turn(conversation(turns=(ASK, ASK, SAY)), 0).turns == ()
    assert extract_turn(conversation(turns=(ASK, ASK, SAY)), 1).usage is None
    assert extract_turn(conversation(turns=()), 0).turns == ()
    assert extract_turn(conversation(turns=(ASK, SAY, ASK)), 1).turns == (ASK,)


def test_usage_that_is_not_reported_is_not_zero() -> None:
    assert extract_turn(conversation(turns=(ASK, ModelTurn(), SAY)), 0).usage is None


def test_a_fault_belongs_to_the_turn_that_was_not_answered() -> None:
    fault = RunFault(code="deadline", message="late")
    broken = conversation(responses=("Found H-7.",), fault=fault, stop_reason="deadline")
    assert (extract_turn(broken, 0).fault, extract_turn(broken, 0).stop_reason) == (None, "completed")
    assert (extract_turn(broken, 1).fault, extract_turn(broken, 1).stop_reason) == (fault, "deadline")
    assert extract_turn(broken, 1).response == ""


def test_the_run_ends_in_its_last_turn() -> None:
    """A reply that says so, as in `Reply(stop_reason=...)`, or a fault instead of a reply."""
    stopped = conversation(stop_reason="max_iterations")
    assert [extract_turn(stopped, turn).stop_reason for turn in (0, 1, 2)] == [
        "completed",
        "max_iterations",
        "max_iterations",
    ]
    late = conversation(fault=RunFault(code="deadline", message="late"), stop_reason="deadline")
    assert [extract_turn(late, turn).fault is None for turn in (0, 1, 2)] == [True, True, False]


def test_an_end_that_the_last_turn_expects_is_expected_of_the_whole() -> None:
    stopped = conversation(stop_reason="max_iterations")
    expected = turn({CALLS: ["book"], "stop_reason": "max_iterations"}, 1)
    whole, _ = compile_expectation({CALLS: ["find", "book"]})
    assert judge_conversation(stopped, whole, [None, expected]).status == "passed"
    assert judge_conversation(stopped, None, [expected, None]).status == "failed"
    completed, _ = compile_expectation({"stop_reason": "completed"})
    assert judge_conversation(stopped, completed, [None, expected]).reasons[0].code == "stop_reason"
    assert [reason.code for reason in judge_conversation(conversation(), whole, [None, expected]).reasons] == [
        "stop_reason"
    ]


def test_the_same_words_about_two_turns_are_two_reasons() -> None:
    turns = [turn({CALLS: ["find", "pay"]}), turn({CALLS: ["book", "pay"]}, 1), turn({CALLS: ["pay"]}, 2)]
    judgement = judge_conversation(conversation(), None, turns)
    assert [reason.place.partition(".expected_output")[0] for reason in judgement.reasons] == [
        "input.turns[0]",
        "input.turns[1]",
        "input.turns[2]",
    ]
    assert [line.call.name if line.call else "-" for line in judgement.calls] == ["find", "-", "book", "-", "-"]


def test_a_turn_is_judged_over_its_own_calls() -> None:
    expected = turn({CALLS: ["book"], "response_contains": "booked", "max_model_turns": 3, "max_tokens": 25})
    assert expected.judge(conversation(), user_turn=1).status == "passed"
    found = expected.judge(conversation(), user_turn=0)
    assert [reason.code for reason in found.reasons] == ["text_missing", "missing_call", "unexpected_call"]
    assert (
        expected.judge(conversation(turns=(ASK, SAY, ASK, ASK, ASK, SAY)), user_turn=1).reasons[0].code
        == "budget_exceeded"
    )


def test_a_turn_knows_what_earlier_turns_found() -> None:
    """References and `grounded` lead back, never forward."""
    booked = {"function_name": "book", "arguments": {"id": "{{ calls.find.result.id }}"}, "grounded": True}
    assert turn({CALLS: [booked]}).judge(conversation(), user_turn=1).status == "passed"
    later = turn({CALLS: [{"function_name": "find", "arguments": {"x": "{{ calls.book.result }}"}}]})
    (reason,) = later.judge(conversation(), user_turn=0).reasons
    assert reason.message.endswith("leads nowhere: book was not called")


def test_time_is_not_measured_by_turn() -> None:
    (reason,) = turn({"processing_time_ms": 5}).judge(conversation(), user_turn=0).reasons
    assert reason.code == "not_measured"


def test_a_conversation_is_judged_as_a_whole_and_by_turns() -> None:
    whole, _ = compile_expectation({CALLS: ["find", "book"]})
    turns = [turn({CALLS: ["find"]}), turn({"response_contains": "Booked"}, 1)]
    judgement = judge_conversation(conversation(), whole, turns)
    assert (judgement.status, judgement.summary) == ("passed", "2 calls, 3 checks passed")
    assert [line.expectation for line in judgement.calls] == [
        "expected_output.expected_function_calls[0]",
        "expected_output.expected_function_calls[1]",
    ]
    assert judgement.score is not None


def test_a_failing_turn_fails_the_conversation_at_its_place() -> None:
    turns = [turn({CALLS: ["find", "pay"]}), None, turn({CALLS: []}, 2)]
    judgement = judge_conversation(conversation(), None, turns)
    (reason,) = judgement.reasons
    assert (judgement.status, judgement.summary) == ("failed", "user turn 1: pay was not called")
    assert reason.place == "input.turns[0].expected_output.expected_function_calls[1]"
    assert [(line.call.name if line.call else "-", line.status) for line in judgement.calls] == [
        ("find", "passed"),
        ("-", "failed"),
        ("book", "passed"),
    ]


def test_one_failure_is_told_once() -> None:
    """The whole and the turn both see a call that nothing answered."""
    refused = FunctionCall(name="find", problem="unmocked_call")
    whole, _ = compile_expectation({CALLS: ["find"]})
    judgement = judge_conversation(conversation(calls=(refused,)), whole, [turn({CALLS: ["find"]})])
    assert [reason.code for reason in judgement.reasons] == ["unmocked_call"]
    assert [result.check for result in judgement.calls[0].results] == ["unmocked_call"]


def test_a_fault_is_told_once() -> None:
    fault = RunFault(code="agent_raised", message="boom")
    broken = conversation(responses=(), calls=(), fault=fault, stop_reason="agent_raised")
    judgement = judge_conversation(broken, None, [turn({CALLS: ["find"]}), turn({CALLS: ["book"]}, 1)])
    assert judgement.status == "failed"
    assert [reason.code for reason in judgement.reasons] == ["agent_raised", "missing_call", "missing_call"]


def test_a_fault_of_the_world_is_all_that_is_told() -> None:
    """Also of turns that had failed before: a conversation that was cut short was not measured."""
    fault = RunFault(code="provider_error", message="down", measured=False)
    broken = conversation(responses=("Found H-7.",), fault=fault, stop_reason="provider_error")
    judgement = judge_conversation(broken, None, [turn({CALLS: ["pay"]}), turn({CALLS: ["book"]}, 1)])
    assert (judgement.status, [reason.code for reason in judgement.reasons]) == ("error", ["provider_error"])


def test_what_a_turn_lacks_says_which_turn_and_what_a_call_did_does_not() -> None:
    asks = [turn({"response_contains": "no such"}), turn({CALLS: [{"function_name": "book", "times": 2}]}, 1)]
    messages = [reason.message for reason in judge_conversation(conversation(), None, asks).reasons]
    assert 'user turn 1: response does not contain "no such"' in messages
    assert any(message.startswith("user turn 2: ") for message in messages)
    wrong = [turn({CALLS: [{"function_name": "find", "arguments": {"x": "no"}}]})]
    assert all(reason.call is not None for reason in judge_conversation(conversation(), None, wrong).reasons)
    assert not any("user turn" in reason.message for reason in judge_conversation(conversation(), None, wrong).reasons)


def test_without_turns_the_whole_is_all(compiled: Callable[..., Expectation]) -> None:
    expectation = compiled({CALLS: ["find", "book"]})
    assert judge_conversation(conversation(), expectation, []) == expectation.judge(conversation())


def test_what_is_given_reaches_the_whole_and_every_turn() -> None:
    """The input, and where the turns of the model begin."""
    asks = {"response_contains": "{{ input.word }}"}
    whole, _ = compile_expectation(asks)
    judgement = judge_conversation(conversation(), whole, [None, turn(asks, 1)], input={"word": "Booked"})
    assert judgement.status == "passed"
    costs = {"max_cost_usd": 1, "max_function_calls": 9}
    budget, _ = compile_expectation(costs)
    assert judge_conversation(conversation(), budget, []).status == "error"
    assert judge_conversation(conversation(), None, [turn(costs)]).status == "error"
    assert judge_conversation(conversation(), None, [turn({"max_cost_usd": 1})]).status == "error"
    first = [turn({"max_model_turns": 1})]
    assert judge_conversation(conversation(), None, first).status == "failed"
    assert judge_conversation(conversation(turns=(SAY, ASK, SAY)), None, first).status == "passed"


def test_cost_and_time_are_not_known_by_turn() -> None:
    assert extract_turn(conversation(cost_usd=0.5), 0).cost_usd is None


def test_an_end_may_be_expected_of_the_first_turn_too() -> None:
    stopped = conversation(responses=("Found H-7.",), stop_reason="blocked")
    assert judge_conversation(stopped, None, [turn({"stop_reason": "blocked"})]).status == "passed"
    late = conversation(fault=RunFault(code="deadline", message="late"), stop_reason="deadline")
    expected = [None, turn({"stop_reason": "deadline"}, 1)]
    assert judge_conversation(late, None, expected).status == "failed"


def test_what_both_found_of_a_call_is_told_together() -> None:
    """The whole's expectation is named first, the turn's where the whole has none; checks of both are listed."""
    whole, _ = compile_expectation({CALLS: [{"function_name": "find", "channel": "native"}], "extra_calls": "allow"})
    parts = [turn({CALLS: [{"function_name": "find", "arguments": {"q": 1}}]}), turn({CALLS: ["book"]}, 1)]
    judgement = judge_conversation(conversation(), whole, parts)
    first, second = judgement.calls
    assert (first.status, first.expectation) == ("failed", f"expected_output.{CALLS}[0]")
    assert [result.check for result in first.results] == ["channel", "arguments"]
    assert (second.status, second.expectation) == ("passed", f"input.turns[1].expected_output.{CALLS}[0]")
    assert [result.check for result in judgement.checks] == [CALLS, CALLS, CALLS]
    only_the_turn = judge_conversation(conversation(), None, parts)
    assert [line.status for line in only_the_turn.calls] == ["failed", "passed"]


def test_what_holds_for_every_call_is_told_once() -> None:
    from evalkit.records.transcript import Violation

    bad = FunctionCall(name="find", violations=(Violation(path=(), schema_path=(), message="bad"),))
    whole, _ = compile_expectation({CALLS: ["find"]})
    judgement = judge_conversation(conversation(calls=(bad,)), whole, [turn({CALLS: ["find"]})])
    assert [reason.code for reason in judgement.reasons] == ["invalid_arguments"]
    stopped = conversation(responses=("",), stop_reason="blocked")
    judgement = judge_conversation(stopped, None, [turn({"max_function_calls": 5})])
    assert [reason.code for reason in judgement.reasons] == ["stop_reason"]
    own = [turn({"final_function_call": "x"}), turn({"final_function_call": "x"}, 1)]
    judgement = judge_conversation(conversation(calls=()), None, own)
    assert len(judgement.reasons) == 2


def test_a_refused_call_is_told_once() -> None:
    """The whole finds it, and so does its turn."""
    refused = FunctionCall(name="find", problem="unmocked_call")
    judgement = judge_conversation(conversation(calls=(refused,)), None, [turn({"max_function_calls": 5})])
    assert [reason.code for reason in judgement.reasons] == ["unmocked_call"]


def test_what_a_turn_finds_of_a_call_fails_it_though_the_whole_is_content() -> None:
    whole, _ = compile_expectation({CALLS: ["find", "book"]})
    parts = [turn({CALLS: [{"function_name": "find", "arguments": {"q": 1}}]}), None]
    first, second = judge_conversation(conversation(), whole, parts).calls
    assert (first.status, second.status) == ("failed", "passed")
    parts = [None, turn({CALLS: ["book"]}, 1)]
    whole, _ = compile_expectation({CALLS: ["find", {"function_name": "book", "arguments": {}}]})
    assert [line.status for line in judge_conversation(conversation(), whole, parts).calls] == ["passed", "failed"]


def test_missing_calls_of_a_turn_stand_where_they_were_expected() -> None:
    """In their order: before the turn's first call, or after the one that they follow."""
    parts = [turn({CALLS: ["x", "y", "find"]}), turn({CALLS: ["book", "z", "q"]}, 1)]
    lines = judge_conversation(conversation(), None, parts).calls
    assert [line.expected_name for line in lines] == ["x", "y", "find", "book", "z", "q"]


def test_reasons_of_one_kind_are_told_in_the_order_of_the_calls() -> None:
    """Although the whole is judged before its turns."""
    whole, _ = compile_expectation({CALLS: [{"function_name": "book", "arguments": {}}], "extra_calls": "allow"})
    parts = [turn({CALLS: [{"function_name": "find", "arguments_absent": "q"}]})]
    made = conversation().calls
    asked = FunctionCall(name="find", index=0, turn=0, user_turn=0, arguments={"q": 1})
    reasons = judge_conversation(conversation(calls=(asked, made[1])), whole, parts).reasons
    assert [(reason.code, reason.call) for reason in reasons] == [
        ("unexpected_argument", 0),
        ("unexpected_argument", 1),
    ]
