"""What a model's service can do wrong: its case is an error, in time, never passed and never the agent's failure."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import evalkit
from evalkit.records.settings import Settings
from evalkit.runner.run_case import run_case
from evalkit.spec.load import case_from_dict

KEY = "canary-key-of-the-service-4711"
DONE = json.dumps({"choices": [{"message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}]})
Connection = socket.socket


def reply(body: str | bytes, status: str = "200 OK", *headers: str) -> bytes:
    payload = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    lines = [
        f"HTTP/1.1 {status}",
        "content-type: application/json",
        f"content-length: {len(payload)}",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + payload


def drip(connection: Connection) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.05)


def hang(connection: Connection) -> None:
    with suppress(OSError):
        while connection.recv(1000):
            pass


def wrong(message: object, **choice: object) -> bytes:
    return reply(json.dumps({"choices": [{"message": message, "finish_reason": "stop", **choice}]}))


FAULTS: dict[str, bytes | Callable[[Connection], None]] = {
    "hangs": hang,
    "drips": drip,
    "closes": b"",
    "no HTTP": b"\x00\x01\x02\r\n\r\n",
    "half a head": b"HTTP/1.1 200",
    "half a body": reply(DONE)[:-20],
    "longer than it says": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n" + DONE.encode(),
    "a length that is none": b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n" + DONE.encode(),
    "400": reply('{"error": {"message": "no"}}', "400 Bad Request"),
    "401": reply("no", "401 Unauthorized"),
    "403 HTML": reply("<html>no</html>", "403 Forbidden"),
    "404": reply("", "404 Not Found"),
    "429": reply("{}", "429 Too Many Requests", "retry-after: 1"),
    "429 for a year": reply("{}", "429 Too Many Requests", "retry-after: 31536000"),
    "429 that says nonsense": reply("{}", "429 Too Many Requests", "retry-after: nan", "x-ratelimit-reset-tokens: -1s"),
    "500": reply("no", "500 Internal Server Error"),
    "503": reply("no", "503 Service Unavailable"),
    "529": reply("no", "529 Overloaded"),
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "no body": reply(""),
    "null": reply("null"),
    "a list": reply("[]"),
    "a number": reply("3"),
    "an empty object": reply("{}"),
    "no choices": reply('{"choices": []}'),
    "choices that are null": reply('{"choices": null}'),
    "a choice that is a number": reply('{"choices": [3]}'),
    "no JSON": reply("done"),
    "half a JSON": reply(DONE[:-5]),
    "bytes": reply(b"\xff\xfe\x00"),
    "deep": reply("[" * 100_000),
    "a message that is a number": wrong(3),
    "a message that is null": wrong(None),
    "calls that are a text": wrong({"content": None, "tool_calls": "check"}),
    "a gzip that is none": reply(DONE, "200 OK", "content-encoding: gzip"),
    "redirects to itself": reply("", "307 Temporary Redirect", "location: /v1/chat/completions"),
    "redirects to nowhere": reply("", "302 Found", "location: http://127.0.0.1:9/"),
}


class Service:
    """Answers each connection with the same bytes, or hands it to a function. `received` has what clients sent."""

    def __init__(self, answer: bytes | Callable[[Connection], None]) -> None:
        self._answer = answer
        self.received = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with suppress(OSError), connection:
            self.received += connection.recv(100_000)
            if callable(self._answer):
                self._answer(connection)
            else:
                connection.sendall(self._answer)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Service]]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    services: list[Service] = []

    def start(answer: bytes | Callable[[Connection], None]) -> Service:
        services.append(Service(answer))
        return services[-1]

    yield start
    for service in services:
        service.close()


def run(service: Service, **options: Any) -> evalkit.Verdict:
    """A case that any answer would pass."""
    query = "&".join(f"{name}={value}" for name, value in {"retries": 0, "timeout_s": 0.5, **options}.items())
    case = case_from_dict({"input": {"message": "x"}, "expected_output": {"forbidden_function_calls": ["drop"]}})

    async def ask(task: evalkit.Task) -> str:
        return (await task.turn(evalkit.ModelRequest(messages=tuple(task.messages)))).text or ""

    model = f"openai:m?base_url={service.url}/v1&{query}"
    return run_case(case, agent=ask, settings=Settings(model=model, deadline_s=5))  # what drips is no silence


@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_service_is_an_error(serve: Callable[..., Service], fault: str, stream: str) -> None:
    began = time.monotonic()
    verdict = run(serve(FAULTS[fault]), stream=stream)
    assert verdict.status == "error", verdict.reasons
    assert "evalkit itself failed" not in verdict.reasons[0].message
    assert KEY not in json.dumps(verdict.to_json())
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    "status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"]
)
def test_the_key_does_not_follow_a_redirect_to_another_host(serve: Callable[..., Service], status: str) -> None:
    thief = serve(reply(DONE))
    elsewhere = thief.url.replace("127.0.0.1", "localhost")
    service = serve(reply("", status, f"location: {elsewhere}/v1/chat/completions"))
    run(service)
    assert KEY.encode() in service.received
    assert KEY.encode() not in thief.received
