"""How long a reply may take, what a server that does not stream gets, and what is not tried again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from evalkit.errors import ProviderError
from evalkit.models.providers.pacing import RetryPolicy
from evalkit.models.providers.table import open_provider
from tests.providers.asking import HELLO, ask_provider
from tests.servers.replay import Answer, ReplayServer

Step = float | str  # a pause, or a piece of the reply's text
WHOLE = {"choices": [{"message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}]}


@contextmanager
def serve(*steps: Step) -> Iterator[str]:
    """Serve a reply in pieces, with pauses between them; one that is asked for whole comes at their end."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if not body.get("stream"):
                time.sleep(sum(step for step in steps if isinstance(step, float)))
                self._send(json.dumps(WHOLE), "application/json")
                return
            for step in steps:
                if isinstance(step, float):
                    time.sleep(step)
                else:
                    self._send(f"data: {json.dumps({'choices': [{'delta': {'content': step}}]})}\n\n")
            self._send('data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')

        def _send(self, text: str, content_type: str = "text/event-stream") -> None:
            if not getattr(self, "has_begun", False):
                self.has_begun = True
                self.send_response(200)
                self.send_header("content-type", content_type)
                self.end_headers()
            self.wfile.write(text.encode())
            self.wfile.flush()

        def log_message(self, *arguments: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def ask(url: str, options: str) -> str:
    return ask_provider(open_provider(f"openai:m?base_url={url}&retries=0{options}")).text


def test_a_reply_that_streams_may_take_longer_than_the_limit_of_silence() -> None:
    with serve(0.6, "a", 0.2, "b", 0.2, "c", 0.2, "d") as url:
        assert ask(url, "&timeout_s=0.4") == "abcd"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("&timeout_s=0.2", r"sent nothing more of its reply for 0\.2 s; \?timeout_s= allows more"),
        ("&first_timeout_s=0.1", r"did not begin to reply within 0\.1 s; \?first_timeout_s= allows more"),
        ("&timeout_s=0.2&stream=0", r"did not answer within 0\.2 s, the limit of a whole reply; \?timeout_s= allows"),
    ],
)
def test_a_limit_that_has_passed_is_named_with_its_setting(options: str, why: str) -> None:
    with serve(0.3, "a", 0.5, "b") as url, pytest.raises(ProviderError, match=rf"openai \(m\) {why}"):
        ask(url, options)


# -- servers that do not stream


def refuse(status: int) -> Callable[[Any], Answer]:
    """Answer whole replies alone."""
    return lambda body: (
        Answer('{"error": {"message": "no streams here"}}', status) if body.get("stream") else Answer(json.dumps(WHOLE))
    )


class Deciding(ReplayServer):
    """A server whose answers depend on the request."""

    decide: Callable[[Any], Answer]

    def reply(self, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        super().reply(path, body, headers)
        return self.decide(json.loads(body))


@pytest.fixture
def deciding() -> Iterator[Deciding]:
    server = Deciding()
    yield server
    server.close()


async def no_sleep(seconds: float) -> None: ...


def ask_twice(server: ReplayServer, options: str = "") -> list[bool]:
    """Return for each request that came of two turns whether it asked for a stream."""
    provider: Any = open_provider(f"openai:m?api=chat&base_url={server.url}/v1{options}")
    provider._policy = RetryPolicy(sleep=no_sleep)
    ask_provider(provider, HELLO, HELLO)
    return ["stream" in received.body for received in server.received]


@pytest.mark.parametrize("status", [400, 422, 500, 501])
def test_a_server_that_refuses_streams_is_asked_for_whole_replies(deciding: Deciding, status: int) -> None:
    deciding.decide = refuse(status)
    assert ask_twice(deciding) == [True, False, False]


def test_who_asks_for_streams_gets_no_other_replies(deciding: Deciding) -> None:
    deciding.decide = refuse(400)
    with pytest.raises(ProviderError, match="no streams here"):
        ask_twice(deciding, "&stream=1")


def test_a_server_that_knows_no_streams_is_understood(deciding: Deciding) -> None:
    deciding.decide = lambda body: Answer(json.dumps(WHOLE))
    assert ask_twice(deciding) == [True, True]


# -- what is tried again


@pytest.mark.parametrize(
    ("answers", "attempts", "why"),
    [
        ([(500, "image input is not supported")], 3, "given up after 3 attempts, which were answered alike"),
        ([(500, "busy"), (500, "still busy")], 5, "gave up after 5 attempts"),
        ([(502, "bad gateway")], 5, "gave up after 5 attempts"),
        ([(501, "not implemented")], 1, "not implemented$"),
        ([(400, "the context is full")], 1, "the context is full$"),
    ],
)
def test_what_can_never_be_served_is_not_tried_five_times(
    deciding: Deciding, answers: list[tuple[int, str]], attempts: int, why: str
) -> None:
    def decide(body: Any) -> Answer:
        status, message = answers[(len(deciding.received) - 1) % len(answers)]
        return Answer(json.dumps({"error": {"message": message}}), status)

    deciding.decide = decide
    provider: Any = open_provider(f"openai:m?api=chat&stream=0&base_url={deciding.url}/v1")
    provider._policy = RetryPolicy(sleep=no_sleep)
    with pytest.raises(ProviderError, match=why):
        ask_provider(provider)
    assert len(deciding.received) == attempts


def test_a_base_url_without_a_scheme_is_told_at_once() -> None:
    provider: Any = open_provider("openai:m?base_url=127.0.0.1:8080/v1")
    provider._policy = RetryPolicy(sleep=no_sleep)
    with pytest.raises(ProviderError, match=r"a base_url begins with http:// or https://$"):
        ask_provider(provider)
