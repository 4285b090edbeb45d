"""A small HTTP/1.1 server on 127.0.0.1 for an ASGI app: h11 implements the protocol.

It accepts what any HTTP client in any language sends (chunked bodies, kept connections, `Expect: 100-continue`), one
request at a time per connection, the body whole before the app is called.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import h11

from evalkit.agents.remote.channel import Channel, DisconnectedError, RejectedMessageError
from evalkit.jsonvalue import JsonDict
from evalkit.models.cassettes.http.unobserved import OWN_HOSTS

MAX_BODY = 10_000_000  # bytes of a request
SETTLE_S = 0.5  # the time that a call which the agent has not waited for has left when the agent is done

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOGGER = logging.getLogger("evalkit.agent")


class HttpServer:
    """``async with HttpServer(app) as server``: `server.port` answers until the block ends.

    `note_loss` gets the target of each request whose body did not arrive, and why.
    """

    def __init__(self, app: App, note_loss: Callable[[bytes, str], None] = lambda target, why: None) -> None:
        self._app = app
        self._note_loss = note_loss
        self._connections: dict[asyncio.Task[None], Channel] = {}
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> HttpServer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        OWN_HOSTS.add(f"127.0.0.1:{self.port}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        try:
            if kind is None:
                # Answer pending requests: a client may be gone while its last request is still on the way through the
                # loop.
                for _ in range(10):  # from a connection that waits to be accepted to a request that was read
                    await asyncio.sleep(0)
                busy = {task for task, channel in self._connections.items() if channel.is_busy}
                if busy:
                    await asyncio.wait(busy, timeout=SETTLE_S)
        finally:
            self._server.close()
            connections = dict(self._connections)
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)
            for channel in connections.values():
                channel.abort()
            OWN_HOSTS.discard(f"127.0.0.1:{self.port}")

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = Channel(h11.Connection(h11.SERVER), reader, writer)
        task = asyncio.get_running_loop().create_task(self._serve(channel))
        self._connections[task] = channel
        task.add_done_callback(self._connections.pop)

    async def _serve(self, channel: Channel) -> None:
        try:
            while await self._serve_request(channel) and channel.is_reusable():
                channel.connection.start_next_cycle()
        except (DisconnectedError, ConnectionError):
            pass  # the client is gone
        finally:
            channel.close()

    async def _serve_request(self, channel: Channel) -> bool:
        """Handle one request; False when the client has no more."""
        try:
            request = await channel.read_head()
            if not isinstance(request, h11.Request):
                return False
            try:
                body = await channel.read_body(MAX_BODY)
            except BaseException as error:  # too large, cut off, or still on its way when the run ended
                self._note_loss(request.target, str(error) or "it was cut off")
                raise
        except RejectedMessageError as refused:
            response = AsgiResponse(channel, b"")
            await response.send_text(refused.status, str(refused))
            return False
        response = AsgiResponse(channel, request.method)
        try:
            await self._app(_build_scope(request, self.port), _RequestBody(channel, body).receive, response.send)
        except (DisconnectedError, ConnectionError):
            raise
        except Exception:
            LOGGER.exception("the functions' server failed on %r", request.target)
            await response.send_text(500, "evalkit failed on this request; its log has the traceback")
        return True


def _build_scope(request: h11.Request, port: int) -> JsonDict:
    raw_path, _, query = request.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": request.http_version.decode("ascii"),
        "method": request.method.decode("ascii"),
        "scheme": "http",
        "path": unquote(raw_path.decode("latin-1")),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": [(name, value) for name, value in request.headers],
        "client": None,
        "server": ("127.0.0.1", port),
    }


class _RequestBody:
    """`receive` of an ASGI app: the body, and then the message that the client has gone."""

    def __init__(self, channel: Channel, body: bytes) -> None:
        self._channel = channel
        self._body: bytes | None = body

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._channel.wait_until_closed()
        return {"type": "http.disconnect"}


class AsgiResponse:
    """`send` of an ASGI app."""

    def __init__(self, channel: Channel, method: bytes) -> None:
        self._channel = channel
        self._has_body = method != b"HEAD"
        self._start: Message | None = None
        self._has_started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        if not self._has_started:
            assert self._start is not None, "ASGI: the start of a response comes before its body"
            headers = [(name, value) for name, value in self._start.get("headers", ())]
            await self._channel.write(h11.Response(status_code=self._start["status"], headers=headers))
            self._has_started = True
        if message.get("body") and self._has_body:
            await self._channel.write(h11.Data(data=message["body"]))
        if not message.get("more_body", False):
            await self._channel.write(h11.EndOfMessage())

    async def send_text(self, status: int, text: str) -> None:
        """Send a whole response of text, unless another has begun."""
        if self._has_started:
            raise DisconnectedError
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        with suppress(h11.LocalProtocolError):  # the request was so broken that there is no answering it
            await self.send({"type": "http.response.start", "status": status, "headers": headers})
            await self.send({"type": "http.response.body", "body": text.encode()})


async def send_json(send: Send, status: int, data: object) -> None:
    body = json.dumps(data, default=str).encode("ascii")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def read_headers(scope: Message) -> dict[str, str]:
    """Read the headers of a request, by their names in lower case."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
