"""`--evalkit-parity` of agents with clients of their own: real ones, whose requests are changed on their way."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("openai")
pytest.importorskip("anthropic")
pytest.importorskip("google.genai")

import anthropic
import openai
from google import genai

from evalkit.agents.task import Task
from evalkit.errors import ProviderError
from evalkit.features.parity.comparison import is_reworded
from evalkit.features.parity.feature import ParityCheck
from evalkit.features.parity.request_toggle import StreamToggle
from evalkit.models.cassettes.http import interception
from evalkit.models.cassettes.http.binding import intercept_requests, release
from evalkit.models.cassettes.http.messages import HttpRequest, HttpResponse
from evalkit.models.cassettes.http.observer import Observer
from evalkit.models.cassettes.http.traffic import Traffic, TrafficParts
from evalkit.operators.values import Equal
from evalkit.records.case import Case
from evalkit.records.settings import HttpSettings, Settings
from evalkit.records.verdict import ChangedRun, Verdict
from evalkit.runner.changed_runs import arun_with_changes
from evalkit.spec.load import case_from_dict
from tests.servers.replay import Answer, ReplayServer

USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
CALL = {"id": "call_1", "type": "function", "function": {"name": "check", "arguments": '{"id": "A1"}'}}
COMPLETION = {
    "id": "r", "object": "chat.completion", "created": 1, "model": "m", "usage": USAGE,
    "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": None, "tool_calls": [CALL]}}],
}  # fmt: skip
ITEM = {
    "id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "check", "arguments": '{"id": "A1"}',
    "status": "completed",
}  # fmt: skip
TEXT_ITEM = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [
    {"type": "output_text", "text": "I look.", "annotations": []}]}  # fmt: skip
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed",
    "output": [TEXT_ITEM, ITEM], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None,
    "incomplete_details": None, "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
}  # fmt: skip
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "check", "input": {"id": "A1"}}
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
    "stop_sequence": None, "content": [{"type": "text", "text": "I look."}, TOOL_USE],
    "usage": {"input_tokens": 5, "output_tokens": 2},
}  # fmt: skip
CONTENT = {
    "candidates": [{"content": {"role": "model", "parts": [{"functionCall": {"name": "check", "args": {"id": "A1"}}}]},
                    "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}, "modelVersion": "m",
}  # fmt: skip


def stream(*events: dict[str, Any], end: str = "") -> str:
    lines = [f"event: {event['type']}\n" if "type" in event else "" for event in events]
    return "".join(f"{line}data: {json.dumps(event)}\n\n" for line, event in zip(lines, events, strict=True)) + end


def stream_completion(arguments: str = '{"id": "A1"}') -> str:
    named = {**CALL, "function": {"name": "check", "arguments": ""}}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "tool_calls": [{"index": 0, **named}]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": letter}}]} for letter in arguments]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    about: dict[str, Any] = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [{**about, "choices": [choice]} for choice in choices]
    return stream(*chunks, {**about, "choices": [], "usage": USAGE}, end="data: [DONE]\n\n")


def stream_response(arguments: str = '{"id": "A1"}') -> str:
    begun, empty = {**RESPONSE, "output": [], "status": "in_progress"}, {**ITEM, "arguments": ""}
    place = {"output_index": 0, "item_id": "fc_1"}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": empty},
        {"type": "response.function_call_arguments.delta", **place, "delta": arguments},
        {"type": "response.function_call_arguments.done", **place, "arguments": arguments},
        {"type": "response.output_item.done", "output_index": 0, "item": {**ITEM, "arguments": arguments}},
        {"type": "response.completed", "response": RESPONSE},
    ]
    return stream(*({**event, "sequence_number": number} for number, event in enumerate(events)))


def stream_message(arguments: str = '{"id": "A1"}') -> str:
    delta: dict[str, Any] = {"type": "content_block_delta", "index": 0}
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    return stream(
        {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {**TOOL_USE, "input": {}}},
        {**delta, "delta": {"type": "input_json_delta", "partial_json": arguments[:5]}},
        {**delta, "delta": {"type": "input_json_delta", "partial_json": arguments[5:]}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )


def stream_content(arguments: str = '{"id": "A1"}') -> str:
    call = {"functionCall": {"name": "check", "args": json.loads(arguments)}}
    first = {"candidates": [{"content": {"role": "model", "parts": [{"text": "I "}]}, "index": 0}]}
    last = {**CONTENT, "candidates": [{**CONTENT["candidates"][0], "content": {"role": "model", "parts": [call]}}]}  # type: ignore[index]
    return stream(first, last)


async def complete(url: str, is_streamed: bool) -> tuple[str, str]:
    messages: Any = [{"role": "user", "content": "A1"}]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        reply: Any
        if not is_streamed:
            reply = await client.chat.completions.create(model="m", messages=messages)
        else:
            async with client.chat.completions.stream(model="m", messages=messages) as events:
                reply = await events.get_final_completion()
    function = reply.choices[0].message.tool_calls[0].function
    return function.name, function.arguments


async def respond(url: str, is_streamed: bool) -> tuple[str, str]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        reply: Any
        if not is_streamed:
            reply = await client.responses.create(model="m", input="A1")
        else:
            async with client.responses.stream(model="m", input="A1") as events:
                reply = await events.get_final_response()
    item = next(item for item in reply.output if item.type == "function_call")
    return item.name, item.arguments


async def send_message(url: str, is_streamed: bool) -> tuple[str, str]:
    asked: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "A1"}]}
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
        reply: Any
        if not is_streamed:
            reply = await client.messages.create(**asked)
        else:
            async with client.messages.stream(**asked) as events:
                reply = await events.get_final_message()
    block = next(block for block in reply.content if block.type == "tool_use")
    return block.name, json.dumps(block.input)


async def generate(url: str, is_streamed: bool) -> tuple[str, str]:
    """Ask by a client that blocks, in a thread."""

    def ask() -> Any:
        with genai.Client(api_key="k", http_options={"base_url": url}) as client:
            if not is_streamed:
                replies = [client.models.generate_content(model="m", contents="A1")]
            else:
                replies = list(client.models.generate_content_stream(model="m", contents="A1"))
        return next(reply.function_calls[0] for reply in replies if reply.function_calls)

    call = await asyncio.to_thread(ask)
    return call.name, json.dumps(dict(call.args))


Ask = Callable[[str, bool], Any]
SERVICES: dict[str, tuple[Ask, dict[str, Any], Callable[..., str]]] = {
    "completions": (complete, COMPLETION, stream_completion),
    "responses": (respond, RESPONSE, stream_response),
    "messages": (send_message, MESSAGE, stream_message),
    "contents": (generate, CONTENT, stream_content),
}


@pytest.fixture
def server() -> Iterator[ReplayServer]:
    running = ReplayServer()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def nothing_stays_patched() -> Iterator[None]:
    before = interception._users
    yield
    assert interception._users == before


def make_agent(ask: Ask, url: str, is_streamed: bool) -> Callable[[Task], Any]:
    async def agent(task: Task) -> str:
        name, arguments = await ask(url, is_streamed)
        await task.acall(name, **json.loads(arguments))
        return "done"

    return agent


def build_case(tmp_path: Path) -> Case:
    data = {
        "input": {"message": "m", "mock_function_responses": {"check": {"ok": True}}},
        "expected_output": {"expected_function_calls": ["check"]},
    }
    return case_from_dict(data)


def run(agent: Callable[[Task], Any], tmp_path: Path, **settings: Any) -> Verdict:
    known = Settings(model="openai:m", root=tmp_path, **settings)
    return asyncio.run(arun_with_changes(build_case(tmp_path), agent, known, parts={"parity": ParityCheck()}))


def get_parity(verdict: Verdict) -> ChangedRun:
    (parity,) = verdict.changed_runs
    return parity


SSE = "text/event-stream"


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("service", SERVICES)
def test_a_client_is_asked_in_the_other_way_and_sees_what_it_always_sees(
    service: str, is_streamed: bool, server: ReplayServer, tmp_path: Path
) -> None:
    ask, whole, make_stream = SERVICES[service]
    answers = [Answer(json.dumps(whole)), Answer(make_stream(), content_type=SSE)]
    server.answers[:] = answers[::-1] if is_streamed else answers

    verdict = run(make_agent(ask, server.url, is_streamed), tmp_path)

    assert verdict.status == "passed", verdict.reasons
    parity = get_parity(verdict)
    assert (parity.change, parity.status) == ("whole" if is_streamed else "streamed", "passed")
    assert parity.transcript is not None
    assert [call.name for call in parity.transcript.calls] == ["check"]
    assert len(server.received) == 2
    asked = [
        "streamGenerateContent" in received.path or received.body.get("stream") is True for received in server.received
    ]
    assert asked == [is_streamed, not is_streamed]
    assert all("content-length" in received.headers for received in server.received)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_that_streams_other_arguments_fails_the_case(
    service: str, server: ReplayServer, tmp_path: Path
) -> None:
    ask, whole, make_stream = SERVICES[service]
    server.answers[:] = [Answer(json.dumps(whole)), Answer(make_stream('{"id": "A"}'), content_type=SSE)]

    verdict = run(make_agent(ask, server.url, False), tmp_path)

    assert verdict.status == "failed"
    (reason,) = get_parity(verdict).reasons
    assert (reason.code, reason.message) == (
        "parity_difference",
        'call 1, check: id: expected "A1", got "A"\nwhole: check(id="A1")\nstreamed: check(id="A")',
    )


def test_a_client_that_blocks_is_asked_in_the_other_way_too(server: ReplayServer, tmp_path: Path) -> None:
    def agent(task: Task) -> str:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as client:
            reply: Any = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "A1"}])
        task.call("check", **json.loads(reply.choices[0].message.tool_calls[0].function.arguments))
        return "done"

    server.answers[:] = [Answer(json.dumps(COMPLETION)), Answer(stream_completion(), content_type=SSE)]

    parity = get_parity(run(agent, tmp_path))

    assert (parity.change, parity.status) == ("streamed", "passed")


def test_a_stream_that_breaks_off_is_the_services_failure_also_where_the_agent_catches_it(
    server: ReplayServer, tmp_path: Path
) -> None:
    async def agent(task: Task) -> str:
        try:
            name, arguments = await complete(server.url, False)
        except openai.OpenAIError:
            name, arguments = "check", '{"id": "A1"}'
        await task.acall(name, **json.loads(arguments))
        return "done"

    broken = stream_completion().partition('"finish_reason": "tool_calls"')[0].rpartition("data:")[0]
    server.answers[:] = [Answer(json.dumps(COMPLETION)), Answer(broken, content_type=SSE)]

    verdict = run(agent, tmp_path)

    assert verdict.status == "error"
    (reason,) = get_parity(verdict).reasons
    host = server.url.removeprefix("http://")
    assert reason.code == "provider_error"
    assert reason.message.startswith(f"{host}, asked for a streamed reply, gave none: the stream broke off: ")


def test_a_service_with_one_way_alone_is_not_comparable(server: ReplayServer, tmp_path: Path) -> None:
    refusal = Answer('{"error": {"message": "no streams"}}', status=400)
    server.answers[:] = [Answer(json.dumps(COMPLETION)), refusal]

    verdict = run(make_agent(complete, server.url, False), tmp_path)

    host = server.url.removeprefix("http://")
    assert verdict.status == "passed"
    assert [(reason.code, reason.message) for reason in get_parity(verdict).reasons] == [
        ("not_comparable", f"{host} answers 400 to a streamed request")
    ]


def make_urllib_agent(url: str) -> Callable[[Task], Any]:
    def agent(task: Task) -> str:
        from urllib.request import Request, urlopen

        head = {"content-type": "application/json"}
        with urlopen(Request(f"{url}/v1/chat/completions", b'{"model": "m"}', head)) as response:
            json.load(response)
        task.call("check", id="A1")
        return "done"

    return agent


def make_aiohttp_agent(url: str) -> Callable[[Task], Any]:
    async def agent(task: Task) -> str:
        aiohttp = pytest.importorskip("aiohttp")
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/v1/chat/completions", json={"model": "m"}) as response,
        ):
            await response.json()
        await task.acall("check", id="A1")
        return "done"

    return agent


@pytest.mark.parametrize(("make", "client"), [(make_urllib_agent, "http.client"), (make_aiohttp_agent, "aiohttp")])
def test_other_clients_are_not_comparable_and_the_reason_names_them(
    make: Callable[[str], Callable[[Task], Any]], client: str, server: ReplayServer, tmp_path: Path
) -> None:
    server.answers[:] = [Answer(json.dumps(COMPLETION))] * 2

    verdict = run(make(server.url), tmp_path)

    assert verdict.status == "passed"
    assert [(reason.code, reason.message) for reason in get_parity(verdict).reasons] == [
        ("not_comparable", f"the agent's client asks by {client}, and only requests over httpx can be changed")
    ]
    assert len(server.received) == 2


def test_an_agent_that_asks_no_model_is_not_comparable(tmp_path: Path) -> None:
    def agent(task: Task) -> str:
        task.call("check", id="A1")
        return "done"

    (reason,) = get_parity(run(agent, tmp_path)).reasons

    assert reason.message == (
        "no request of the agent's to a model was seen: by task.model, over httpx, or by a program's *_BASE_URL"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (HttpSettings(ignore_hosts=("127.0.0.1",)), "{host} is one of ignore_hosts in [tool.evalkit.http]"),
        (
            HttpSettings(cassettes=False),
            "cassettes = false in [tool.evalkit.http] lets the requests of the agent's own client pass as they are",
        ),
    ],
)
def test_what_the_project_lets_through_goes_out_as_it_is(
    settings: HttpSettings, message: str, server: ReplayServer, tmp_path: Path
) -> None:
    server.answers[:] = [Answer(json.dumps(COMPLETION))] * 2

    neighbour = Traffic(lambda input_files: TrafficParts(Observer(cast(Any, None))))
    with intercept_requests(neighbour):  # the clients of the process are patched, for another case
        (reason,) = get_parity(run(make_agent(complete, server.url, False), tmp_path, http=settings)).reasons
    release(neighbour)

    assert reason.message == message.format(host=server.url.removeprefix("http://"))
    assert [received.body.get("stream") for received in server.received] == [None, None]


PROGRAM = """
import json, os, sys
from urllib.request import Request, urlopen
task = json.load(sys.stdin)
head = {"content-type": "application/json"}
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": task["message"]}]}).encode()
with urlopen(Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, head)) as response:
    call = json.load(response)["choices"][0]["message"]["tool_calls"][0]["function"]
with urlopen(Request(os.environ["EVALKIT_FUNCTIONS_URL"] + "/call/" + call["name"], call["arguments"].encode(), head)):
    print("done")
"""


def test_a_program_in_any_language_is_asked_in_the_other_way_too(
    server: ReplayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    (tmp_path / "agent.py").write_text(PROGRAM, encoding="utf-8")
    data = {
        "agent": {"command": [sys.executable, str(tmp_path / "agent.py")]},
        "input": {"message": "m", "mock_function_responses": {"check": {"ok": True}}},
        "expected_output": {"expected_function_calls": ["check"]},
    }
    server.answers[:] = [Answer(json.dumps(COMPLETION)), Answer(stream_completion('{"id": "A"}'), content_type=SSE)]
    known = Settings(model="openai:m", root=tmp_path)

    verdict = asyncio.run(arun_with_changes(case_from_dict(data), None, known, parts={"parity": ParityCheck()}))

    assert verdict.status == "failed", verdict.reasons


@pytest.mark.parametrize(
    ("url", "body", "obstacle"),
    [
        ("https://x/v1/chat/completions", b'{"n": 2}', "a request to x asks for several replies at once (n)"),
        ("https://x/v1/chat/completions", b"[1]", "a request to x is no JSON object"),
        ("https://x/v1/embeddings", b"{}", None),
        (
            "https://x/v1beta/models/m:generateContent",
            b'{"generationConfig": {"candidateCount": 2}}',
            "a request to x asks for several replies at once (candidateCount)",
        ),
    ],
)
def test_requests_that_have_no_other_way(url: str, body: bytes, obstacle: str | None) -> None:
    toggle = StreamToggle()

    assert toggle.toggle(HttpRequest("POST", url, body)) is None
    assert toggle.obstacles == ([obstacle] if obstacle else [])
    assert toggle.modes == set()


NO_REPLIES = [b"", b"null", b"{}", b"[]", b"data: 3\n\n", b'{"choices": [3]}', b'{"content": 1}', b"\xff"]


@pytest.mark.parametrize("body", NO_REPLIES)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_what_is_no_reply_is_the_services_failure(path: str, stream: bool, body: bytes) -> None:
    toggle = StreamToggle()
    toggled = toggle.toggle(HttpRequest("POST", f"https://x{path}", json.dumps({"stream": stream}).encode()))
    assert toggled is not None

    with pytest.raises(ProviderError) as caught:
        toggled.restore(HttpResponse(200, "", (), body))

    assert toggle.failures == [caught.value]


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("tool_calls", {"content": None, "tool_calls": [CALL, {**CALL, "id": "call_2"}]}),
        (
            "tool_calls",
            {"content": None, "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]},
        ),
        ("function_call", {"content": None, "function_call": CALL["function"]}),
        ("stop", {"content": None, "refusal": "I may not."}),
        ("stop", {"content": "Done."}),
    ],
    ids=["calls", "custom", "older", "refusal", "text"],
)
def test_a_whole_reply_is_the_same_when_it_was_streamed(reason: str, message: dict[str, Any]) -> None:
    """A client may look at `content is None`, or read calls as the older API has them."""
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **message}}
    reply = {**COMPLETION, "choices": [choice]}
    streamed = restore({"stream": True, "stream_options": {"include_usage": True}}, json.dumps(reply))
    assert json.loads(restore({}, streamed)) == reply


def restore(body: dict[str, Any], response: str) -> str:
    """Return what a client of chat completions gets for a response in the other way."""
    toggle = StreamToggle()
    toggled = toggle.toggle(HttpRequest("POST", "https://x/v1/chat/completions", json.dumps(body).encode()))
    assert toggled is not None
    return toggled.restore(HttpResponse(200, "", (), response.encode())).body.decode()


def test_a_failure_that_a_client_has_healed_by_asking_again_is_none() -> None:
    toggle = StreamToggle()
    toggled = toggle.toggle(HttpRequest("POST", "https://x/v1/chat/completions", b"{}"))
    assert toggled is not None
    with pytest.raises(ProviderError):
        toggled.restore(HttpResponse(200, "", (), b"data: {"))
    toggled.restore(HttpResponse(503, "", (), b"busy"))
    assert len(toggle.failures) == 1
    toggled.restore(HttpResponse(200, "", (), stream_completion().encode()))
    assert toggle.failures == []


@pytest.mark.parametrize(
    ("whole", "streamed", "expected"),
    [
        ("We are sorry.", "We apologise for it.", True),
        ("It comes tomorrow.", "It comes tomorrow. We are sorry.", True),
        ("We are sorry for the delay.", "We are sorry for the de", False),
        ("We are sorry for the delay.", "ry for the delay.", False),
        ("We are sorry.", "We are sorry.We are sorry.", False),
        ("A-1", "A-2", False),
    ],
)
def test_prose_that_was_cut_or_doubled_is_not_worded_anew(whole: str, streamed: str, expected: bool) -> None:
    (mismatch,) = Equal(whole).explain(streamed)
    assert is_reworded(mismatch) is expected
