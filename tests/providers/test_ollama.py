"""Ollama's own API: what is sent, what comes back whole and streamed, and what to do when it does not work."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from evalkit.errors import ProviderError, UsageError
from evalkit.models.providers.table import open_provider
from evalkit.records.case import Declaration
from evalkit.records.parts import IMAGE, TEXT, InputPart, build_user_message
from evalkit.records.transcript import ModelCall, ModelRequest, ModelTurn, Usage
from tests.providers.asking import ask_provider
from tests.servers.replay import Answer, ReplayServer

CALL = {"function": {"name": "check", "arguments": {"n": 1}}}
END = {"model": "m", "done": True, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 3}
CHECK = Declaration(name="check", description="Checks.", parameters={"type": "object", "oneOf": []})


def reply(**message: Any) -> str:
    return json.dumps({**END, "message": {"role": "assistant", "content": "", **message}})


def ask(replay: ReplayServer, *answers: Answer, options: str = "", request: ModelRequest | None = None) -> ModelTurn:
    replay.answers[:] = answers
    provider = open_provider(f"ollama:m?base_url={replay.url}&retries=0{options}")
    return ask_provider(provider, request or ModelRequest(messages=({"role": "user", "text": "hi"},), temperature=None))


def test_only_what_was_set_is_sent_and_nothing_is_cut_off_in_silence(replay: ReplayServer) -> None:
    assert ask(replay, Answer(reply(content="Hello."))).text == "Hello."

    (received,) = replay.received
    assert received.path == "/api/chat"
    assert received.body == {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True,
                             "truncate": False, "shift": False}  # fmt: skip


def test_settings_are_ollamas_options(replay: ReplayServer) -> None:
    request = ModelRequest(
        system="Be brief.", messages=({"role": "user", "text": "hi"},), functions=(CHECK,), temperature=0.5, seed=7,
        max_output_tokens=9, response_schema={"type": "object"},
    )  # fmt: skip
    ask(replay, Answer(reply(content="x")), options="&num_ctx=8192&think=low", request=request)

    body = replay.received[0].body
    assert body["options"] == {"num_ctx": 8192, "num_predict": 9, "temperature": 0.5, "seed": 7}
    assert (body["think"], body["format"]) == ("low", {"type": "object"})
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["tools"][0]["function"] == {
        "name": "check", "description": "Checks.", "parameters": {"type": "object", "oneOf": []}
    }  # fmt: skip


@pytest.mark.parametrize(("option", "sent"), [("think=true", True), ("think=0", False)])
def test_thinking_is_switched(replay: ReplayServer, option: str, sent: bool) -> None:
    ask(replay, Answer(reply(content="x")), options=f"&{option}")

    assert replay.received[0].body["think"] is sent


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_conversation_goes_back_as_it_came(replay: ReplayServer, is_streamed: bool) -> None:
    """Calls have no ids: the answers stand in their order, whatever the order in which they were given."""
    calls = [CALL, {"function": {"name": "check", "arguments": {"n": 2}}}]
    whole = reply(thinking="Two of them.", tool_calls=calls)
    pieces = [{"message": {"role": "assistant", "content": "", **part}, "done": False}
              for part in ({"thinking": "Two "}, {"thinking": "of them."}, {"tool_calls": calls[:1]},
                           {"tool_calls": calls[1:]})]  # fmt: skip
    streamed = "\n".join(map(json.dumps, [*pieces, {**END, "message": {"role": "assistant", "content": ""}}]))
    options = "&stream=1" if is_streamed else ""

    turn = ask(replay, Answer(streamed if is_streamed else whole), options=options)

    assert [(call.name, call.arguments, call.call_id) for call in turn.calls] == [
        ("check", {"n": 1}, None), ("check", {"n": 2}, None)
    ]  # fmt: skip
    assert (turn.finish_reason, turn.usage) == ("tool_calls", Usage(input_tokens=7, output_tokens=3, total_tokens=10))
    one, two = turn.calls
    talk: list[Any] = [{"role": "user", "text": "hi"}, {"role": "model", "turn": turn},
                       {"role": "function", "results": [(two, "second"), (one, {"n": "first"})]}]  # fmt: skip
    ask(replay, Answer(reply(content="x")), request=ModelRequest(messages=tuple(talk)))
    assert replay.received[-1].body["messages"][1:] == [
        {"role": "assistant", "content": "", "thinking": "Two of them.", "tool_calls": calls},
        {"role": "tool", "tool_name": "check", "content": '{"n": "first"}'},
        {"role": "tool", "tool_name": "check", "content": "second"},
    ]


def test_an_id_that_came_goes_back(replay: ReplayServer) -> None:
    calls = (ModelCall(name="check", arguments={"n": 1}, call_id="call_9"), ModelCall(name="check", arguments="{"))
    talk: list[Any] = [{"role": "user", "text": "hi"}, {"role": "model", "turn": ModelTurn(calls=calls)},
                       {"role": "function", "results": [(calls[0], "ok")]}]  # fmt: skip
    ask(replay, Answer(reply(content="x")), request=ModelRequest(messages=tuple(talk)))

    asked, answered = replay.received[0].body["messages"][1:]
    assert asked["tool_calls"] == [{"id": "call_9", **CALL}, {"function": {"name": "check", "arguments": {}}}]
    assert answered["tool_call_id"] == "call_9"


def test_texts_and_images_are_sent(replay: ReplayServer) -> None:
    table = InputPart(kind="file", name="a.csv", content=b"1,2", mime_type="text/csv")
    parts = [InputPart(kind=TEXT, text="Look."), table, InputPart(kind=IMAGE, name="a.png", content=b"x")]
    ask(replay, Answer(reply(content="x")), request=ModelRequest(messages=(build_user_message("Look.", parts),)))

    assert replay.received[0].body["messages"] == [
        {"role": "user", "content": "Look.\n\na.csv:\n1,2", "images": ["eA=="]}
    ]
    pdf = build_user_message("", [InputPart(kind="file", name="a.pdf", content=b"x", mime_type="application/pdf")])
    with pytest.raises(UsageError, match=r"^Ollama takes texts and images, and not a\.pdf$"):
        ask(replay, request=ModelRequest(messages=(pdf,)))


NO_MODEL = {"error": "model 'm' not found"}
UNREADABLE = "error parsing tool call: raw='{\"n\": 1', err=unexpected end of JSON input"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(json.dumps(NO_MODEL), status=404), "404: model 'm' not found. Fetch it: ollama pull m"),
        (Answer("404 page not found", status=404),
         "404: 404 page not found. Is http://127.0.0.1:PORT Ollama's, without /v1?"),
        (Answer('{"error": "m does not support tools"}', status=400),
         "400: m does not support tools. What it can: ollama show m"),
        (Answer('{"error": "the input length exceeds the context length"}', status=400),
         "400: the input length exceeds the context length. To allow more, write num_ctx=16384 into the model's name"),
        (Answer('{"error": "unauthorized"}', status=401), "401: unauthorized. Set OLLAMA_API_KEY"),
        (Answer('{"done": false, "message": {"content": "x"}}\n{"error": "out of memory"}'), "out of memory"),
        (Answer('{"hello": 1}'), 'answered something that is no reply: {"hello": 1}'),
    ],
)  # fmt: skip
def test_what_does_not_work_says_what_to_do(replay: ReplayServer, answer: Answer, says: str) -> None:
    with pytest.raises(ProviderError) as caught:
        ask(replay, answer, options="&stream=1")

    said = re.sub(r":\d{4,5}(?=\W)", ":PORT", str(caught.value))
    assert said.removeprefix("ollama (m): ").removeprefix("ollama (m) ") == says


def test_a_context_that_was_set_and_is_full_is_to_be_larger_than_that(replay: ReplayServer) -> None:
    full = Answer('{"error": "the input length exceeds the context length"}', status=400)
    with pytest.raises(ProviderError, match=r"write num_ctx=40000 into"):
        ask(replay, full, options="&num_ctx=20000")


def test_a_stream_that_breaks_off_is_the_servers_doing(replay: ReplayServer) -> None:
    with pytest.raises(ProviderError, match="broke the stream off"):
        ask(replay, Answer('{"done": false, "message": {"content": "x"}}'), options="&stream=1")


@pytest.mark.parametrize("answer", [Answer(json.dumps({"error": UNREADABLE}), status=500),
                                    Answer(json.dumps({"error": UNREADABLE}))])  # fmt: skip
def test_a_call_that_the_server_can_not_read_is_the_models(replay: ReplayServer, answer: Answer) -> None:
    turn = ask(replay, answer)

    assert (turn.finish_reason, turn.text) == ("malformed_call", '{"n": 1')


@pytest.mark.parametrize("host", ["127.0.0.1:9", "me:password@127.0.0.1:9"])
def test_a_server_that_does_not_run_is_told_once(host: str) -> None:
    with pytest.raises(
        ProviderError, match=r"^ollama \(m\): no server at http://127\.0\.0\.1:9\. Start it: ollama serve"
    ):
        ask_provider(open_provider(f"ollama:m?base_url=http://{host}"))


def test_the_server_is_where_the_variable_says(replay: ReplayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", replay.url.removeprefix("http://"))
    monkeypatch.setenv("OLLAMA_API_KEY", "k")
    replay.answers[:] = [Answer(reply(content="x"))]

    assert ask_provider(open_provider("ollama:m")).text == "x"
    assert replay.received[0].headers["authorization"] == "Bearer k"
