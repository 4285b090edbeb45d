"""A local server that answers like a model's API, and readers of the recorded exchanges."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

CORPORA = Path(__file__).parents[2].parent / "shared" / "corpora"


@dataclass
class Answer:
    """One canned HTTP response."""

    body: str | bytes
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Received:
    """One request as the server got it."""

    path: str
    body: Any
    headers: dict[str, str]


class ReplayServer:
    """Answers request after request with `answers`, in order, and keeps what it `received`."""

    answer = Answer

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.received: list[Received] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        replay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet: otherwise each answer waits for a delayed ACK

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {key.lower(): value for key, value in self.headers.items()}
                replay.received.append(Received(self.path, json.loads(body or b"null"), headers))
                answer = replay.answers.pop(0) if replay.answers else Answer('{"error": {"code": 599}}', status=599)
                payload = answer.body.encode() if isinstance(answer.body, str) else answer.body
                self.send_response(answer.status)
                for key, value in {"content-type": answer.content_type, **answer.headers}.items():
                    self.send_header(key, value)
                self.send_header("content-length", answer.headers.get("content-length", str(len(payload))))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *arguments: Any) -> None:
                pass

        return Handler

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def server() -> Iterator[ReplayServer]:
    running = ReplayServer()
    yield running
    running.close()


@pytest.fixture
def replay(server: ReplayServer) -> ReplayServer:
    server.answers.clear()
    server.received.clear()
    return server


@pytest.fixture(scope="session")
def corpus() -> Callable[[str], list[dict[str, Any]]]:
    def rows(name: str) -> list[dict[str, Any]]:
        path = CORPORA / f"{name}.jsonl.gz"
        if not path.exists():
            pytest.skip(f"the recorded exchanges ({path.name}) are not on this machine")
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    return rows


@pytest.fixture
def answer() -> type[Answer]:
    return Answer
