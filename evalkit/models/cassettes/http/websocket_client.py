"""WebSockets of the library `websockets` on which models are asked: the texts that go out and come in, as a stream's.

OpenAI's responses are read: each ``response.create`` begins an exchange, and the response's last event ends it. What
else goes over a WebSocket of an agent is unobserved. None is recorded, which a recording says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from evalkit.models.cassettes.http.interception import FindTraffic, Patch
from evalkit.models.cassettes.http.messages import HttpRequest
from evalkit.models.cassettes.http.tee import Tee
from evalkit.models.cassettes.http.traffic import Traffic
from evalkit.models.cassettes.http.unobserved import mark_read
from evalkit.wire import openai_responses

_running: WeakKeyDictionary[object, Tee] = WeakKeyDictionary()  # by connection


def list_patches(library: str, find: FindTraffic) -> list[Patch]:
    """List what is patched in websockets, for asyncio or for threads."""
    receive = make_async_recv if library == "websockets.asyncio.connection" else make_recv
    return [("Connection", "send", make_send(find)), ("Connection", "recv", receive)]


def make_send(find: FindTraffic) -> Callable[[Any], Any]:
    """Make what takes the place of a connection's `send`, of threads and of asyncio alike."""

    def make(real: Any) -> Any:
        def send(self: Any, message: Any, *args: Any, **options: Any) -> Any:
            if (traffic := find()) is not None:
                _note_sent(self, message, traffic)
            return real(self, message, *args, **options)

        return send

    return make


def make_recv(real: Any) -> Any:
    """Make what takes the place of a connection's `recv`."""

    def recv(self: Any, *args: Any, **options: Any) -> Any:
        message = real(self, *args, **options)
        _note_received(self, message)
        return message

    return recv


def make_async_recv(real: Any) -> Any:
    """Do the same for asyncio."""

    async def recv(self: Any, *args: Any, **options: Any) -> Any:
        message = await real(self, *args, **options)
        _note_received(self, message)
        return message

    return recv


def _note_sent(connection: Any, message: object, traffic: Traffic) -> None:
    request, data = connection.request, _parse(message)
    if connection.protocol.side.name == "SERVER":  # the agent's own server
        return
    host = request.headers.get("Host", "") if request is not None else ""
    path = request.path if request is not None else ""
    kind = "" if data is None else str(data.get("type"))
    if data is None or not kind.startswith("response.") or not urlsplit(path).path.endswith(openai_responses.PATHS):
        traffic.observer.note_channel(host)
        return
    mark_read(*connection.remote_address[:2])
    if kind != "response.create":  # a message about a response that is under way
        return
    if connection in _running:  # two at once: nobody knows whose the next event is
        traffic.observer.note_channel(host)
    traffic.note_unplayable(f"ws://{host}{path}")
    body = {**data.get("response", {}), **data, "stream": True}
    tee = traffic.observer.observe(HttpRequest("POST", f"http://{host}{path}", json.dumps(body).encode()))
    if tee is not None:
        _running[connection] = tee


def _note_received(connection: object, message: object) -> None:
    tee, data = _running.get(connection), _parse(message)
    if tee is None or data is None:
        return
    if not tee.has_begun:
        tee.begin(200, "", ())
    tee.feed(f"data: {json.dumps(data)}\n\n".encode())
    if data.get("type") in (*openai_responses.ENDINGS, "error"):
        del _running[connection]
        tee.end(is_whole=True)


def _parse(message: object) -> dict[str, Any] | None:
    try:
        data = json.loads(message)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return data if isinstance(data, dict) else None
