"""Runs of several agents: who made a call, hand-offs and delegations, in an agent's own code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import evalkit
from evalkit.checks.compile import compile_expectation
from evalkit.features.handoffs.records import Handoff, get_handoffs
from evalkit.hosts.reports.trace import TraceOptions, render_trace
from evalkit.records.transcript import FunctionCall, Transcript

FUNCTIONS = {"find_order": {"total": 40}, "find_policy": {"text": "within 30 days"}, "issue_refund": {"status": "done"}}


def make_case(**expected: Any) -> evalkit.Case:
    calls = {"call_order": "any", "expected_function_calls": ["find_order", "find_policy", "issue_refund"]}
    case_input = {"message": "hi", "mock_function_responses": FUNCTIONS}
    return evalkit.case_from_dict({"input": case_input, "expected_output": calls | expected})


async def desk(task: evalkit.Task) -> str:
    with task.act_as("triage"):
        await task.acall("find_order")
        with task.act_as("expert"):
            await task.acall("find_policy")
        task.hand_over("billing")
        await task.acall("issue_refund")
    return "done"


def list_messages(verdict: evalkit.Verdict) -> list[tuple[str, str]]:
    return [(reason.code, reason.message) for reason in verdict.reasons]


def test_the_record_says_who_made_a_call_and_how_the_run_passed_on() -> None:
    verdict = evalkit.run_case(make_case(expected_handoffs=["triage -> billing"]), desk)
    assert verdict.passed, verdict.reasons
    assert [call.agent for call in verdict.transcript.calls] == ["triage", "expert", "billing"]
    assert get_handoffs(verdict.transcript) == (
        Handoff(source="triage", target="expert", kind="delegation", call=0),
        Handoff(source="triage", target="billing", call=1),
    )
    assert Transcript.from_json(verdict.transcript.to_json()) == verdict.transcript


def test_the_trace_shows_agents_and_hand_offs() -> None:
    lines = render_trace(evalkit.run_case(make_case(), desk), TraceOptions()).split("\n")
    assert [line.rstrip() for line in lines[1:]] == [
        '  1. ✓ find_order() [by triage] → {"total": 40}',
        "       → triage asks expert",
        '  2. ✓ find_policy() [by expert] → {"text": "within 30 days"}',
        "       → triage hands over to billing",
        '  3. ✓ issue_refund() [by billing] → {"status": "done"}',
    ]


def test_a_call_by_the_wrong_agent_is_not_missing_and_unexpected() -> None:
    calls: list[Any] = ["find_order", "find_policy", {"function_name": "issue_refund", "by": "triage"}]
    verdict = evalkit.run_case(make_case(expected_function_calls=calls), desk)
    assert list_messages(verdict) == [("wrong_agent", "call 3, issue_refund: made by 'billing', expected 'triage'")]
    assert verdict.reasons[0].place == "expected_output.expected_function_calls[2].by"


def test_an_agent_that_took_no_part_is_named_with_the_nearest_one() -> None:
    calls: list[Any] = [{"function_name": "find_order", "by": ["triag"]}, "find_policy", "issue_refund"]
    verdict = evalkit.run_case(make_case(expected_function_calls=calls), desk)
    assert list_messages(verdict) == [
        (
            "wrong_agent",
            "call 1, find_order: made by 'triage', expected 'triag' (no 'triag' took part, but triage, expert, "
            "billing; did you mean 'triage'?)",
        )
    ]


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"expected_handoffs": ["triage -> billing"], "expected_delegations": ["triage -> expert"]}, ""),
        ({"expected_handoffs": "billing", "expected_delegations": "expert"}, ""),
        ({"expected_handoffs": []}, "hand-off triage -> billing is not expected; there were: triage -> billing"),
        (
            {"expected_handoffs": ["triage -> billing -> expert"]},
            "hand-off billing -> expert is missing; there were: triage -> billing",
        ),
        (
            {"expected_delegations": ["triage -> billing"]},
            "delegation 1 is triage -> expert, expected triage -> billing; there were: triage -> expert",
        ),
    ],
)
def test_hand_offs_are_expected_in_their_order(expected: dict[str, Any], message: str) -> None:
    verdict = evalkit.run_case(make_case(**expected), desk)
    assert [reason.message for reason in verdict.reasons] == ([message] if message else [])


def test_by_chooses_among_calls_that_are_alike() -> None:
    expected = {"expected_function_calls": [{"function_name": "f", "by": "b"}, "f"], "call_order": "any"}
    calls = (FunctionCall(name="f", agent="a"), FunctionCall(name="f", agent="b", index=1))
    assert compile_expectation(expected)[0].judge(Transcript(calls=calls)).status == "passed"
    forbidden = compile_expectation({"forbidden_function_calls": [{"function_name": "f", "by": "c"}]})[0]
    assert forbidden.judge(Transcript(calls=calls)).status == "passed"


@pytest.mark.parametrize(
    "expected",
    [
        {"expected_function_calls": [{"function_name": "find_order", "by": "triage"}]},
        {"expected_handoffs": []},
        {"expected_handoffs": ["billing"]},
    ],
)
def test_without_names_of_agents_nothing_is_measured(expected: dict[str, Any]) -> None:
    async def unnamed(task: evalkit.Task) -> str:
        await task.acall("find_order")
        return "done"

    verdict = evalkit.run_case(make_case(**{"expected_function_calls": ["find_order"], **expected}), unnamed)
    assert verdict.status == "error"
    assert list_messages(verdict) == [
        (
            "not_measured",
            f"{'by' if 'expected_function_calls' in expected else 'expected_handoffs'}: can't be judged: no agent of "
            "this run has a name (with task.act_as(...), or in its framework)",
        )
    ]


def test_agents_side_by_side_keep_their_names() -> None:
    async def several(task: evalkit.Task) -> str:
        async def work(name: str, function: str) -> None:
            with task.act_as(name):
                await asyncio.sleep(0)
                await task.acall(function)

        await asyncio.gather(*(work(name, name) for name in FUNCTIONS))
        return "done"

    verdict = evalkit.run_case(make_case(), several)
    assert {call.name: call.agent for call in verdict.transcript.calls} == {name: name for name in FUNCTIONS}
    assert get_handoffs(verdict.transcript) == ()


def test_turns_of_the_model_are_the_agents_own() -> None:
    script = evalkit.ScriptedProvider([{"calls": [{"find_order": {}}]}, "done"])
    settings = evalkit.Settings(extra={"provider": lambda case_id, run: script})

    async def asks(task: evalkit.Task) -> str:
        with task.act_as("triage"):
            turn = await task.turn(evalkit.ModelRequest(messages=({"role": "user", "text": "hi"},)))
            results = await task.execute_calls(turn)
        assert results[0][1] == {"total": 40}
        return "done"

    verdict = evalkit.run_case(make_case(expected_function_calls=["find_order"]), asks, settings)
    assert verdict.passed, verdict.reasons
    assert [turn.agent for turn in verdict.transcript.turns] == ["triage"]
    assert [call.agent for call in verdict.transcript.calls] == ["triage"]


def test_hand_overs_from_nobody_and_to_nobody_are_refused() -> None:
    async def lost(task: evalkit.Task) -> str:
        with pytest.raises(evalkit.UsageError, match=r"does not know from whom: write it inside 'with task.act_as"):
            task.hand_over("billing")
        with task.act_as("triage"), pytest.raises(evalkit.UsageError, match=r"takes the name of an agent, .* got ''"):
            task.hand_over("")
        with pytest.raises(evalkit.UsageError, match=r"an agent is called by its name, .* got 5"), task.act_as(5):  # type: ignore[arg-type]
            pass
        return "done"

    verdict = evalkit.run_case(
        evalkit.case_from_dict({"input": {"message": ""}, "expected_output": {"expected_function_calls": []}}), lost
    )
    assert verdict.passed, verdict.reasons


def test_a_hand_off_without_a_side_is_a_problem_of_the_case() -> None:
    _, problems = compile_expectation({"expected_handoffs": ["a ->", 5]})
    assert [problem.message for problem in problems] == [
        "expected_handoffs[0] names an agent on each side of '->', got 'a ->'",
        "expected_handoffs[1] must be a hand-off such as 'triage -> billing', got 5; quote it",
    ]
    _, problems = compile_expectation({"expected_function_calls": [{"function_name": "f", "agent": "a"}]})
    assert problems[0].message == "unknown key 'agent' in expected_function_calls[0]; did you mean 'by'?"


def test_a_user_turn_has_its_own_hand_offs() -> None:
    turns = [
        {"user": "hi", "expected_output": {"expected_handoffs": ["triage -> billing"]}},
        {"user": "and?", "expected_output": {"expected_handoffs": []}},
    ]

    async def answers(task: evalkit.Task) -> str:
        name = task.state.setdefault("agent", "triage")
        with task.act_as(name):
            if name == "triage":
                task.hand_over("billing")
                task.state["agent"] = "billing"
            await task.acall("find_order")
        return "done"

    case = evalkit.case_from_dict(
        {
            "input": {"turns": turns, "mock_function_responses": FUNCTIONS},
            "expected_output": {"expected_handoffs": ["billing"]},
        }
    )
    verdict = evalkit.run_case(case, answers)
    assert verdict.passed, verdict.reasons


def test_collected_calls_may_name_their_agent() -> None:
    expected = {"expected_function_calls": [{"function_name": "f", "by": "a"}]}
    assert evalkit.judge(expected, [{"name": "f", "agent": "a"}]).passed
    assert evalkit.judge(expected, [{"name": "f", "agent": "b"}]).status == "failed"
    with pytest.raises(evalkit.UsageError, match=r"calls\[0\].agent is the name of an agent, got 5"):
        evalkit.judge(expected, [{"name": "f", "agent": 5}])
