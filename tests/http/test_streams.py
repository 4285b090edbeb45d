"""Streams of own clients: they reach the agent as they come, live and while they are recorded, and what was not read of
them is on record as far as it came."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evalkit.agents.task import Task
from evalkit.records.settings import HttpSettings
from evalkit.records.verdict import Verdict
from evalkit.spec.load import case_from_dict
from tests.http.conftest import asking

Run = Callable[..., Verdict]
ASKED = {**asking("hi"), "stream": True}
CALL = {"id": "call_1", "type": "function", "function": {"name": "check", "arguments": "{}"}}
# The first text is no end of a stream, though it says so.
DELTAS: list[dict[str, Any]] = [{"content": "re: [DONE] "}, {"tool_calls": [{"index": 0, **CALL}]}, {"content": "hi"}]


class SlowServer(ThreadingHTTPServer):
    """Sends the first event, and the others once the agent says that it has got it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.was_in_time: list[bool] = []
        super().__init__(("127.0.0.1", 0), SlowHandler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1/chat/completions"


class SlowHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SlowServer

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        ends = [None, None, "tool_calls"]
        events = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
            for delta, end in zip(DELTAS, ends, strict=True)
        ]
        for index, event in enumerate([*events, None]):
            if index == 1:
                self.server.was_in_time.append(self.server.gate.wait(2))
            line = f"data: {'[DONE]' if event is None else json.dumps(event)}\n\n".encode()
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *arguments: Any) -> None: ...


@pytest.fixture
def slow() -> Iterator[SlowServer]:
    server = SlowServer()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def read_first(lines: Iterator[Any], slow: SlowServer, *, rest: bool) -> None:
    next(lines)
    slow.gate.set()
    if rest:
        list(lines)


def by_httpx(slow: SlowServer, rest: bool) -> None:
    import httpx

    with httpx.Client(verify=False) as client, client.stream("POST", slow.url, json=ASKED) as response:
        read_first(response.iter_lines(), slow, rest=rest)


async def by_async_httpx(slow: SlowServer, rest: bool) -> None:
    import httpx

    async with httpx.AsyncClient(verify=False) as client, client.stream("POST", slow.url, json=ASKED) as response:
        lines = response.aiter_lines()
        await anext(lines)
        slow.gate.set()
        if rest:
            _ = [line async for line in lines]


def by_requests(slow: SlowServer, rest: bool) -> None:
    import requests

    with requests.post(slow.url, json=ASKED, stream=True, timeout=5) as response:
        read_first(response.iter_lines(chunk_size=None), slow, rest=rest)


def by_urllib(slow: SlowServer, rest: bool) -> None:
    from urllib.request import Request, urlopen

    with urlopen(
        Request(slow.url, json.dumps(ASKED).encode(), {"content-type": "application/json"}), timeout=5
    ) as answer:
        read_first(iter(answer.readline, b""), slow, rest=rest)


async def by_aiohttp(slow: SlowServer, rest: bool) -> None:
    import aiohttp

    async with aiohttp.ClientSession() as session, session.post(slow.url, json=ASKED) as response:
        await response.content.readline()
        slow.gate.set()
        if rest:
            await response.content.read()


CLIENTS: dict[str, Callable[[SlowServer, bool], Any]] = {
    "httpx": by_httpx,
    "async_httpx": by_async_httpx,
    "requests": by_requests,
    "urllib": by_urllib,
    "aiohttp": by_aiohttp,
}
MODES: dict[str, dict[str, Any]] = {
    "recorded": {"record": "all"},
    "live": {"model": "openai:m?base_url=http://127.0.0.1:9"},
    "ignored host": {"http": HttpSettings(ignore_hosts=("127.0.0.1",))},
    "cassettes off": {"http": HttpSettings(cassettes=False)},
}


def make_agent(client: str, slow: SlowServer, *, rest: bool = True) -> Callable[[Task], Any]:
    pytest.importorskip(client.removeprefix("async_"))
    use = CLIENTS[client]
    if client.startswith("a"):

        async def async_agent(task: Task) -> str:
            await use(slow, rest)
            return "re: hi"

        return async_agent

    def agent(task: Task) -> str:
        use(slow, rest)
        return "re: hi"

    return agent


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_comes_as_it_is_sent_and_its_calls_are_on_record(
    client: str, mode: str, slow: SlowServer, run: Run, cassette: Path
) -> None:
    case = case_from_dict({"input": {"message": "hi"}, "expected_output": {"forbidden_function_calls": ["check"]}})
    agent = make_agent(client, slow)
    verdict = run(agent, case, **MODES[mode])

    assert slow.was_in_time == [True]
    assert [reason.code for reason in verdict.reasons] == ["forbidden_call"]
    (turn,) = verdict.transcript.turns
    assert (turn.text, [call.name for call in turn.calls]) == ("re: [DONE] hi", ["check"])
    if mode == "recorded":
        replayed = run(agent, case)
        assert replayed.transcript.turns[0].calls == turn.calls
        assert [reason.code for reason in replayed.reasons] == ["forbidden_call"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_that_the_agent_leaves_is_read_as_far_as_it_came(client: str, slow: SlowServer, run: Run) -> None:
    agent = make_agent(client, slow, rest=False)
    verdict = run(agent, record="all")

    assert verdict.status == "passed"
    assert verdict.transcript.turns[0].text.startswith("re:")
    replayed = run(agent)
    assert replayed.status == "passed", replayed.reasons
