"""A service of chat completions on this machine, which answers whole and streamed by the same script."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], dict[str, Any]]  # the body of a request -> the message of the reply


class ModelService(ThreadingHTTPServer):
    """`requests` are the bodies that came."""

    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def model(self, options: str = "") -> str:
        """The value of --evalkit-model."""
        return f"openai:m?base_url={self.url}{options}"


class _Handler(BaseHTTPRequestHandler):
    server: ModelService

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)
        message = {"role": "assistant", "content": None, **self.server.answer(body)}
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        if body.get("stream"):
            pieces = [{"delta": delta, "index": 0, "finish_reason": None} for delta in _split(message)]
            chunks: list[dict[str, Any]] = [{"id": "r", "choices": [piece]} for piece in pieces]
            chunks.append({"id": "r", "choices": [{"delta": {}, "index": 0, "finish_reason": reason}]})
            chunks.append({"id": "r", "choices": [], "usage": usage})
            lines = [f"data: {json.dumps({'object': 'chat.completion.chunk', 'model': 'm', **c})}\n\n" for c in chunks]
            self._send("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))
        else:
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self._send(
                "application/json",
                json.dumps({"id": "r", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}),
            )

    def _send(self, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Be silent."""


def _split(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Cut a message as a stream does: arguments in pieces of three letters."""
    others = {key: value for key, value in message.items() if key not in ("role", "content", "tool_calls")}
    yield {"role": "assistant", "content": message["content"] or "", **others}
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        yield {"tool_calls": [{"index": index, **call, "function": {"name": function["name"], "arguments": ""}}]}
        for start in range(0, len(function["arguments"]), 3):
            piece = function["arguments"][start : start + 3]
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def ask(name: str, **arguments: Any) -> dict[str, Any]:
    """The message that asks for one call."""
    call = {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"tool_calls": [call]}


@contextmanager
def serve_model(answer: Answer) -> Iterator[ModelService]:
    service = ModelService(answer)
    thread = threading.Thread(target=service.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.shutdown()
        service.server_close()
