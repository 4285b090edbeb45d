"""`task.stream`: pieces as they come, calls attributed once they are whole, one turn on record however it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

import evalkit
from evalkit.records.transcript import ModelTurn
from evalkit.runner.run_case import run_case
from evalkit.spec.load import case_from_dict

CALL = {"index": 0, "id": "c1", "function": {"name": "look_up", "arguments": '{"id": '}}
STREAM = [
    {"content": "Let me see."},
    {"tool_calls": [CALL]},
    {"tool_calls": [{"index": 0, "function": {"arguments": "12}"}}]},
    {"finish_reason": "tool_calls"},
]
Agent = Callable[[evalkit.Task], Any]


def run(agent: Agent, *turns: Any, **expected: Any) -> evalkit.Verdict:
    data = {
        "input": {"message": "12?", "mock_function_responses": {"look_up": {"found": True}}},
        "expected_output": expected or {"stop_reason": "completed"},
    }
    script = evalkit.ScriptedProvider(turns)
    settings = evalkit.Settings(extra={"provider": lambda case_id, run: script})
    return run_case(case_from_dict(data), agent, settings)


async def careful(task: evalkit.Task) -> str:
    """Makes each call as soon as it is certain."""
    accumulator = evalkit.StreamAccumulator()
    async for chunk in task.stream(evalkit.ModelRequest()):
        chunk.feed(accumulator)
        for call in accumulator.take():
            await task.acall(call.name, **call.arguments)
    accumulator.close()
    for call in accumulator.take():
        await task.acall(call.name, **call.arguments)
    return accumulator.text


@pytest.mark.parametrize("pieces", [STREAM, STREAM[:3]], ids=["finish reason", "end of the stream"])
def test_a_call_made_when_it_is_whole_belongs_to_the_turn(pieces: list[Any]) -> None:
    verdict = run(careful, {"stream": {"openai": pieces}, "duration_ms": 5})
    (call,) = verdict.transcript.calls
    assert (call.turn, call.channel, call.call_id, call.arguments) == (0, "native", "c1", {"id": 12})
    assert [turn.text for turn in verdict.transcript.turns] == ["Let me see."]
    assert verdict.transcript.response == "Let me see."


def test_a_text_call_belongs_to_the_turn_with_its_repairs() -> None:
    text = ["<function>{'name': 'look_up', ", "'parameters': {'id': 12}}</fun", "ction>"]
    verdict = run(careful, {"stream": {"text": text}})
    (call,) = verdict.transcript.calls
    assert (call.turn, call.channel, call.repairs) == (0, "text", ("single quotes",))


def test_a_call_made_before_it_is_whole_is_the_agents_own_and_no_call_of_the_turn() -> None:
    async def hasty(task: evalkit.Task) -> None:
        async for chunk in task.stream(evalkit.ModelRequest()):
            if "12}" in str(chunk.data):  # it parses; the stream has not said that it is over
                await task.acall("look_up", id=12)

    verdict = run(hasty, {"stream": {"openai": STREAM}}, expected_function_calls=[
        {"function_name": "look_up", "channel": "native"}
    ])  # fmt: skip
    assert [(call.turn, call.channel) for call in verdict.transcript.calls] == [(None, "direct")]
    assert [reason.message for reason in verdict.reasons] == [
        "call 1, look_up: arrived by channel 'direct', expected 'native'"
    ]


def test_a_reply_that_comes_whole_is_streamed_in_whole_pieces() -> None:
    whole = {"text": "Let me see.", "calls": [{"name": "look_up", "arguments": {"id": 12}, "id": "c1"}]}
    streamed = run(careful, {"stream": {"openai": STREAM}}).transcript.to_json()
    at_once = run(careful, whole).transcript.to_json()
    streamed["timing"]["overhead_ms"] = at_once["timing"]["overhead_ms"] = 0
    assert streamed == at_once


def test_a_stream_that_nobody_reads_to_its_end_is_on_record_as_far_as_it_was_read() -> None:
    async def impatient(task: evalkit.Task) -> str:
        async for chunk in task.stream(evalkit.ModelRequest()):
            return str(chunk.data["content"])
        return ""

    verdict = run(impatient, {"stream": {"openai": STREAM}})
    assert verdict.transcript.turns == (ModelTurn(text="Let me see.", finish_reason="truncated"),)


def test_while_it_comes_the_turn_is_as_long_as_what_has_come() -> None:
    seen: list[tuple[str, int, str]] = []

    async def watching(task: evalkit.Task) -> None:
        async for _ in task.stream(evalkit.ModelRequest()):
            (turn,) = task.turns
            seen.append((turn.text, len(turn.calls), turn.finish_reason))

    run(watching, {"stream": {"openai": STREAM}})
    assert seen == [("Let me see.", 0, "truncated")] * 3 + [("Let me see.", 1, "truncated")]


def test_the_next_turn_follows_the_stream() -> None:
    async def both(task: evalkit.Task) -> str:
        await careful(task)
        return (await task.turn(evalkit.ModelRequest())).text

    verdict = run(both, {"stream": {"openai": STREAM}}, "Found.")
    assert [turn.text for turn in verdict.transcript.turns] == ["Let me see.", "Found."]
    assert verdict.transcript.calls[0].turn == 0


def test_a_stream_that_cannot_be_had_is_an_error_of_the_run_even_if_the_agent_swallows_it() -> None:
    async def swallowing(task: evalkit.Task) -> str:
        try:
            async for _ in task.stream(evalkit.ModelRequest()):
                pass
        except evalkit.EvalkitError:
            return "fine"
        return "read"

    verdict = run(swallowing)
    assert (verdict.status, verdict.reasons[0].code) == ("error", "missing_cassette")
    assert verdict.transcript.turns == ()


def test_each_request_is_logged_as_data(caplog: pytest.LogCaptureFixture) -> None:
    async def asks(task: evalkit.Task) -> None:
        message = {"role": "user", "text": "key sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}
        async for _ in task.stream(evalkit.ModelRequest(system="Be brief.", messages=(message,))):
            pass

    with caplog.at_level(logging.INFO, "evalkit.records"):
        run(asks, "Hello.")
    (record,) = [record for record in caplog.records if record.name == "evalkit.records"]
    assert record.getMessage() == "asking the model: messages=1 functions=0"
    assert record.__dict__["request"] == {
        "system": "Be brief.",
        "functions": [],
        "settings": {},
        "messages": [{"user": "key [redacted]"}],
    }
