"""The observation of WebSockets on which models are asked: the texts that go out and come in, as a stream's events.

OpenAI's responses are read. What else goes over a WebSocket of an agent is unobserved.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from evalkit.cassettes.http.messages import HttpRequest
from evalkit.cassettes.http.observer import Observer
from evalkit.cassettes.http.tee import Tee
from evalkit.cassettes.http.unobserved import mark_read
from evalkit.wire import openai_responses

FindObserver = Callable[[], Observer | None]


class SocketObservation:
    """One connection: each ``response.create`` begins an exchange, and the response's last event ends it."""

    def __init__(self, observer: Observer, url: str, peer: tuple[str, int]) -> None:
        self._peer = peer
        self._observer = observer
        self._url = url.replace("ws", "http", 1)
        self._running: Tee | None = None

    def send(self, message: object) -> None:
        data = _parse(message)
        if data is None or data.get("type") != "response.create":
            if data is None or "type" not in data:
                self._observer.note_channel(urlsplit(self._url).netloc)
            return
        body = {**data.get("response", {}), **data, "type": "response.create", "stream": True}
        mark_read(*self._peer)
        self._running = self._observer.observe(HttpRequest("POST", self._url, json.dumps(body).encode()))
        if self._running is not None:
            self._running.begin(200, "", ())

    def receive(self, message: object) -> None:
        data = _parse(message)
        if self._running is None or data is None:
            return
        self._running.feed(f"data: {json.dumps(data)}\n\n".encode())
        if data.get("type") in (*openai_responses.ENDINGS, "error"):
            self._running.end()
            self._running = None


def _parse(message: object) -> dict[str, Any] | None:
    try:
        data = json.loads(message)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return data if isinstance(data, dict) else None


_connections: WeakKeyDictionary[object, SocketObservation] = WeakKeyDictionary()


def _find(connection: Any, find: FindObserver) -> SocketObservation | None:
    known = _connections.get(connection)
    observer = find()
    if known is None and observer is not None:
        request = getattr(connection, "request", None)
        host = request.headers.get("Host", "") if request is not None else ""
        known = _connections[connection] = SocketObservation(
            observer, f"ws://{host}{getattr(request, 'path', '')}", tuple(connection.remote_address[:2])
        )
    return known


def make_send(find: FindObserver, *, is_async: bool) -> Callable[[Any], Any]:
    def make(real: Any) -> Any:
        def send(self: Any, message: Any, *args: Any, **options: Any) -> Any:
            if (seen := _find(self, find)) is not None:
                seen.send(message)
            return real(self, message, *args, **options)

        return send

    return make


def make_recv(find: FindObserver, *, is_async: bool) -> Callable[[Any], Any]:
    def make(real: Any) -> Any:
        async def recv_async(self: Any, *args: Any, **options: Any) -> Any:
            message = await real(self, *args, **options)
            if (seen := _find(self, find)) is not None:
                seen.receive(message)
            return message

        def recv(self: Any, *args: Any, **options: Any) -> Any:
            message = real(self, *args, **options)
            if (seen := _find(self, find)) is not None:
                seen.receive(message)
            return message

        return recv_async if is_async else recv

    return make
