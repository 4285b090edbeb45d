"""Gemini's interactions: what goes out, what comes back whole and streamed, and how it goes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalkit.errors import ProviderError, UsageError
from evalkit.models.providers.table import open_provider
from evalkit.records.case import Declaration
from evalkit.records.parts import IMAGE, TEXT, InputPart, build_user_message
from evalkit.records.transcript import ModelCall, ModelRequest, ModelTurn
from tests.providers.asking import ask_provider
from tests.servers.replay import Answer, ReplayServer

THOUGHT = {"type": "thought", "signature": "c2ln", "later": 1}
CALL = {"type": "function_call", "id": "fc1", "name": "check", "arguments": {"n": 1}}
TEXT_STEP = {"type": "model_output", "content": [{"type": "text", "text": "Done."}]}
USER = {"role": "user", "text": "hi"}


def interaction(*steps: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    usage = {"total_input_tokens": 11, "total_output_tokens": 7, "total_thought_tokens": 3, "total_tokens": 21}
    return {"id": "v1_1", "object": "interaction", "model": "m", "status": status, "steps": [*steps], "usage": usage,
            **more}  # fmt: skip


def stream_of(whole: dict[str, Any]) -> Answer:
    events: list[Any] = [
        {"event_type": "interaction.created", "interaction": {**whole, "status": "in_progress", "steps": []}}
    ]
    for index, step in enumerate(whole["steps"]):
        started = {**step, "arguments": {}} if "arguments" in step else step
        text = json.dumps(step["arguments"]) if "arguments" in step else ""
        deltas = [{"type": "arguments_delta", "arguments": piece} for piece in (text[:4], text[4:]) if piece]
        events += [{"event_type": "step.start", "index": index, "step": started}]
        events += [{"event_type": "step.delta", "index": index, "delta": delta} for delta in deltas]
        events += [{"event_type": "step.stop", "index": index}]
    events.append({"event_type": "interaction.completed", "interaction": {**whole, "steps": []}})
    lines = (f"event: {event['event_type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Answer("".join(lines) + "data: [DONE]\n\n", content_type="text/event-stream")


def ask(replay: ReplayServer, *answers: Answer, options: str = "", request: ModelRequest | None = None) -> ModelTurn:
    replay.answers[:] = answers
    spec = f"gemini:m?api=interactions&base_url={replay.url}&retries=0{options}"
    return ask_provider(open_provider(spec), request or ModelRequest(messages=(USER,), temperature=None))


def answer_with(*steps: Any, **more: Any) -> Answer:
    return Answer(json.dumps(interaction(*steps, **more)))


def test_the_conversation_is_kept_here_and_only_what_was_set_is_sent(replay: ReplayServer) -> None:
    assert ask(replay, answer_with(TEXT_STEP)).text == "Done."

    (received,) = replay.received
    assert received.path == "/v1beta/interactions"
    assert received.body == {
        "model": "m", "stream": True, "store": False,
        "input": [{"type": "user_input", "content": [{"type": "text", "text": "hi"}]}],
    }  # fmt: skip


def test_settings_functions_and_files_are_sent_as_the_api_wants_them(replay: ReplayServer) -> None:
    schema = {"type": "object", "oneOf": [{"const": 1}]}
    parts = [InputPart(kind=TEXT, text="Look."), InputPart(kind=IMAGE, content=b"x", mime_type="image/png")]
    files = [("text/csv", b"1,2"), ("audio/wav", b"x"), ("application/pdf", b"x")]
    parts += [InputPart(kind="file", name="a", content=content, mime_type=kind) for kind, content in files]
    request = ModelRequest(
        system="Be brief.", messages=(build_user_message("", parts),), temperature=0.5, seed=7, max_output_tokens=9,
        functions=(Declaration(name="check", description="Checks.", parameters=schema), Declaration(name="stop")),
        response_schema=schema,
    )  # fmt: skip
    ask(replay, answer_with(TEXT_STEP), request=request)

    body = replay.received[0].body
    assert body["system_instruction"] == "Be brief."
    assert body["generation_config"] == {"temperature": 0.5, "seed": 7, "max_output_tokens": 9}
    assert body["response_format"] == {"type": "text", "mime_type": "application/json", "schema": schema}
    assert body["tools"] == [
        {"type": "function", "name": "check", "description": "Checks.", "parameters": schema},
        {"type": "function", "name": "stop", "parameters": {"type": "object", "properties": {}}},
    ]
    assert body["input"][0]["content"] == [
        {"type": "text", "text": "Look."}, {"type": "image", "data": "eA==", "mime_type": "image/png"},
        {"type": "text", "text": "a:\n1,2"}, {"type": "audio", "data": "eA==", "mime_type": "audio/wav"},
        {"type": "document", "data": "eA==", "mime_type": "application/pdf"},
    ]  # fmt: skip


@pytest.mark.parametrize("is_streamed", [False, True])
def test_steps_go_back_as_they_came_signatures_included(replay: ReplayServer, is_streamed: bool) -> None:
    whole = interaction(THOUGHT, CALL, {**CALL, "id": "fc2"}, status="requires_action")
    first = stream_of(whole) if is_streamed else Answer(json.dumps(whole))
    turn = ask(replay, first, options="&stream=1" if is_streamed else "")

    assert turn.calls == (
        ModelCall(name="check", arguments={"n": 1}, call_id="fc1"),
        ModelCall(name="check", arguments={"n": 1}, call_id="fc2"),
    )
    assert turn.finish_reason == "tool_calls"
    assert turn.usage is not None
    assert (turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.reasoning_tokens) == (11, 7, 3)
    one, two = turn.calls
    results = [(two, {"error": "no"}), (one, "fine")]
    talk: list[Any] = [USER, {"role": "model", "turn": turn}, {"role": "function", "results": results}]
    ask(replay, answer_with(TEXT_STEP), request=ModelRequest(messages=tuple(talk)))
    assert replay.received[-1].body["input"][1:] == [
        THOUGHT, CALL, {**CALL, "id": "fc2"},
        {"type": "function_result", "call_id": "fc2", "name": "check", "result": {"error": "no"}, "is_error": True},
        {"type": "function_result", "call_id": "fc1", "name": "check", "result": "fine"},
    ]  # fmt: skip


def test_calls_of_another_model_get_ids_and_malformed_ones_no_arguments(replay: ReplayServer) -> None:
    calls = (ModelCall(name="check", arguments='{"n"', malformed="cut off"),)
    talk: list[Any] = [USER, {"role": "model", "turn": ModelTurn(text="I look.", calls=calls)},
                       {"role": "function", "results": [(calls[0], "no")]}]  # fmt: skip
    ask(replay, answer_with(TEXT_STEP), request=ModelRequest(messages=tuple(talk)))

    said, asked, answered = replay.received[0].body["input"][1:]
    assert said == {"type": "model_output", "content": [{"type": "text", "text": "I look."}]}
    assert asked == {"type": "function_call", "id": "call_1_0", "name": "check", "arguments": {}}
    assert answered["call_id"] == "call_1_0"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_reply_goes_on_where_the_service_stops_at_its_limit(replay: ReplayServer, is_streamed: bool) -> None:
    first = interaction(TEXT_STEP, status="requires_continuation", continuation_token="t1")
    second = interaction(CALL, status="requires_action")
    answers = [stream_of(each) if is_streamed else Answer(json.dumps(each)) for each in (first, second)]

    turn = ask(replay, *answers, options="&stream=1" if is_streamed else "")

    assert (turn.text, [call.name for call in turn.calls]) == ("Done.", ["check"])
    assert turn.usage is not None
    assert turn.usage.total_tokens == 42
    assert replay.received[1].body["continuation_token"] == "t1"
    assert replay.received[1].body["input"] == replay.received[0].body["input"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_contents_go_on_too(replay: ReplayServer, is_streamed: bool) -> None:
    """In one turn: text that goes on, and tokens of both requests."""
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    ends: list[Any] = [{"finishReason": "CONTINUATION", "continuationToken": "dDE="}, {"finishReason": "STOP"}]
    bodies = [
        json.dumps({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **end}],
                    "usageMetadata": usage}) for text, end in zip(("All is ", "well."), ends, strict=True)
    ]  # fmt: skip
    replay.answers[:] = [
        Answer(f"data: {body}\n\n", content_type="text/event-stream") if is_streamed else Answer(body)
        for body in bodies
    ]
    spec = f"gemini:m?base_url={replay.url}&retries=0&stream={int(is_streamed)}"

    turn = ask_provider(open_provider(spec), ModelRequest(messages=(USER,)))

    assert (turn.text, turn.finish_reason) == ("All is well.", "stop")
    assert turn.usage is not None
    assert turn.usage.total_tokens == 30
    assert replay.received[1].body["continuationToken"] == "dDE="


def test_an_output_that_was_stopped_says_why(replay: ReplayServer) -> None:
    turn = ask(replay, answer_with({"type": "model_output", "error": {"code": 3, "message": "Blocked."}}))

    assert (turn.finish_reason, turn.finish_message) == ("other", "Blocked.")


def test_a_reply_without_steps_is_the_models(replay: ReplayServer) -> None:
    assert ask(replay, answer_with()).finish_reason == "empty"


BAD = {"error": {"code": 400, "message": "Call lost its thought_signature.", "status": "INVALID_ARGUMENT"}}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(json.dumps(BAD), status=400), "400 INVALID_ARGUMENT: Call lost its thought_signature. The"),
        (Answer('{"error": {"code": "not_found", "message": "no m"}}', status=404), "404 not_found: no m. Is 'm'"),
        (answer_with(status="failed", errors=[{"code": 500, "message": "broken"}]), "broken"),
        (Answer('data: {"event_type": "error", "error": {"code": "internal", "message": "broken"}}\n\n',
                content_type="text/event-stream"), "broken"),
        (stream_of(interaction(CALL, status="in_progress")), "broke the stream off"),
    ],
)  # fmt: skip
def test_failures_say_what_the_service_said(replay: ReplayServer, answer: Answer, says: str) -> None:
    is_streamed = answer.content_type == "text/event-stream"
    with pytest.raises(ProviderError) as caught:
        ask(replay, answer, options="&stream=1" if is_streamed else "")

    assert says in str(caught.value)


def test_a_service_that_is_not_there_is_told() -> None:
    with pytest.raises(ProviderError, match=r"nothing listens at http://127\.0\.0\.1:9"):
        ask_provider(open_provider("gemini:m?api=interactions&base_url=http://127.0.0.1:9"))


def test_another_api_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"api=chat is no value of 'api'; it is contents or interactions$"):
        open_provider("gemini:m?api=chat")
