"""The functions of a run over HTTP, for agents that are not Python code of this process.

Below a base URL with a random token, so that no other program on the machine can call them:

    GET  {base}/functions     [{"name", "description", "parameters", "returns"?}, ...]
    POST {base}/call/<name>   a JSON object of arguments in; {"result": ...} or {"error": {"type", "message"}} out
    {base}/mcp                the same functions as a mock MCP server (streamable HTTP)
    {base}/openai/v1/...      the model's service, answered from the case's cassette; /gemini and /anthropic likewise

A call may carry its origin: ``?turn=0&call_id=c1&channel=native``. Each call that arrives is recorded, bad arguments
and unknown names included.

The server is a small HTTP/1.1 server on 127.0.0.1 that lives as long as the run: h11 implements the protocol, an ASGI
app answers. It accepts what any HTTP client in any language sends (chunked bodies, kept connections,
`Expect: 100-continue`), one request at a time per connection, the body whole before the app is called. `send_request`
is the client for services elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, suppress
from tempfile import mkstemp
from types import TracebackType
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import h11
from msgspec import Struct

from evalkit.agents.remote.spans import PATH as SPANS_PATH
from evalkit.agents.remote.spans import SpanError, SpanReceiver
from evalkit.cassettes.http.messages import HttpResponse
from evalkit.cassettes.http.unobserved import OWN_HOSTS
from evalkit.errors import EvalkitError
from evalkit.functions.mcp import NEEDS_EXTRA, McpApp, has_mcp
from evalkit.jsonvalue import JsonDict
from evalkit.model.transcript import ModelCall

MAX_BODY = 10_000_000  # bytes of a request
SETTLE_S = 0.5  # the time that a call which the agent has not waited for has left when the agent is done
CHANNELS = ("direct", "native", "text")
_CHUNK = 65_536
# What belongs to the connection to a service, and not to the one to a program.
_CONNECTION_HEADERS = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})

T = TypeVar("T")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOGGER = logging.getLogger("evalkit.agent")


class ServedTask(Protocol):
    """The part of a task that the server works on. `was_served`: something came for a function, or to a model."""

    was_served: bool

    def describe_functions(self) -> list[JsonDict]: ...
    async def execute_remote_call(
        self, call: ModelCall, *, turn: int | None = None, agent: str | None = None
    ) -> JsonDict: ...
    def wait(self, awaitable: Awaitable[T]) -> T: ...


class Relay(Protocol):
    """The model's side, for programs whose own client asks a model."""

    def find_url(self, path: str, query: str) -> str | None: ...
    async def answer(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpResponse: ...


class DisconnectedError(Exception):
    """The other side is gone."""


class RejectedMessageError(Exception):
    """A message that is broken or too large. `status` is the status that a server answers."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Channel:
    """An HTTP/1.1 connection, on the side of the server or the client: h11's state machine over an asyncio stream.

    `is_busy`: a message has begun, and its answer is not complete.
    """

    def __init__(self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection = connection
        self._reader = reader
        self._writer = writer
        self.is_busy = False
        self._is_at_end = False

    async def read_head(self) -> h11.Request | h11.Response | h11.ConnectionClosed:
        """Read the first event of the next message. Interim responses are skipped."""
        try:
            event = await self._read_event()
            while isinstance(event, h11.InformationalResponse):
                event = await self._read_event()
        except RejectedMessageError:
            if self._is_at_end:
                raise DisconnectedError from None
            raise
        if not isinstance(event, (h11.Request, h11.Response, h11.ConnectionClosed)):
            raise DisconnectedError
        self.is_busy = not isinstance(event, h11.ConnectionClosed)
        return event

    async def read_body(self, limit: int) -> bytes:
        """Read the rest of the message. RejectedMessageError beyond `limit` bytes."""
        parts: list[bytes] = []
        size = 0
        while True:
            event = await self._read_event()
            if isinstance(event, h11.EndOfMessage):
                return b"".join(parts)
            if not isinstance(event, h11.Data):
                raise DisconnectedError
            size += len(event.data)
            if size > limit:
                raise RejectedMessageError(413, f"a body may have {limit:,} bytes")
            parts.append(bytes(event.data))

    async def _read_event(self) -> Any:
        while True:
            try:
                event = self.connection.next_event()
            except h11.RemoteProtocolError as error:
                raise RejectedMessageError(error.error_status_hint, str(error)) from None
            if event is h11.PAUSED:
                raise DisconnectedError  # it sends another message before our answer
            if event is not h11.NEED_DATA:
                return event
            if self.connection.they_are_waiting_for_100_continue:
                await self.write(h11.InformationalResponse(status_code=100, headers=[]))
            data = await self._reader.read(_CHUNK)
            self._is_at_end = not data
            self.connection.receive_data(data)

    async def wait_until_closed(self) -> None:
        """Wait until the other side has closed. Messages that it sends meanwhile are kept."""
        while data := await self._reader.read(_CHUNK):
            self.connection.receive_data(data)

    async def write(self, event: Any) -> None:
        data = self.connection.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()
        if isinstance(event, h11.EndOfMessage):
            self.is_busy = False

    def is_reusable(self) -> bool:
        """Return whether both sides are done with a message and want to go on."""
        return self.connection.our_state is h11.DONE and self.connection.their_state is h11.DONE

    def close(self) -> None:
        """Close after everything is written."""
        self._writer.close()

    def abort(self) -> None:
        """Close now, even if something is not written yet."""
        self._writer.transport.abort()


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


class FunctionUrls(Struct, frozen=True):
    """The URLs of the functions of a run. Those of the MCP server are None where the extra `mcp` is not installed.

    `mcp_command` is for clients that start their MCP server as a process (stdio): a program and its arguments.
    """

    functions_url: str
    mcp_url: str | None = None
    mcp_command: tuple[str, ...] | None = None


class FunctionsServer(AbstractAsyncContextManager[FunctionUrls]):
    """``async with FunctionsServer(task) as served:`` the functions of `task` are at ``served.functions_url``.

    A sync agent writes ``with``: the server lives on the run's event loop, not in the agent's thread.
    """

    def __init__(self, task: ServedTask, relay: Relay | None = None, spans: SpanReceiver | None = None) -> None:
        self._task = task
        self._token = secrets.token_urlsafe(18)
        self._app = FunctionsApp(task, self._token, relay, spans)
        self._server = HttpServer(self._app, self._app.note_loss)
        self._url_file: str | None = None

    async def __aenter__(self) -> FunctionUrls:
        await self._server.__aenter__()
        base = f"http://127.0.0.1:{self._server.port}/{self._token}"
        if not has_mcp():
            return FunctionUrls(base)
        handle, self._url_file = mkstemp(prefix="evalkit-", suffix=".url")  # readable by its owner alone
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(base)
        return FunctionUrls(base, f"{base}/mcp", (sys.executable, "-m", "evalkit.functions.mcp", self._url_file))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._url_file is not None:
                with suppress(OSError):
                    os.unlink(self._url_file)
            await self._server.__aexit__(kind, error, trace)
        finally:
            self._task.was_served |= self._app.was_asked
            await self._app.aclose()

    def __enter__(self) -> FunctionUrls:
        return self._task.wait(self.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.wait(self.__aexit__(kind, error, trace))


class FunctionsApp:
    """The ASGI app behind the URLs."""

    def __init__(self, task: ServedTask, token: str, relay: Relay | None, spans: SpanReceiver | None = None) -> None:
        self._task = task
        self._relay = relay
        self._spans = spans
        self._base = f"/{token}/"
        self._mcp = McpApp(self._list_functions, self._call)
        self.was_asked = False

    async def aclose(self) -> None:
        await self._mcp.aclose()

    def note_loss(self, target: bytes, why: str) -> None:
        """Remember that an export of spans is lost: what it held can't be judged."""
        path = target.decode("latin-1").partition("?")[0]
        if self._spans is not None and path.startswith(f"{self._base}{SPANS_PATH}/v1/traces"):
            self._spans.note_loss(f"an export did not arrive: {why}")

    async def _list_functions(self) -> list[JsonDict]:
        return self._task.describe_functions()

    async def _call(self, name: str, arguments: object) -> JsonDict:
        return await self._task.execute_remote_call(ModelCall(name=name, arguments=arguments, channel="direct"))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path, _, rest = scope["path"][len(self._base) :].partition("/")
        if not secrets.compare_digest(scope["path"][: len(self._base)].encode(), self._base.encode()):
            await send_json(send, 404, {"error": {"type": "not_found", "message": "there is nothing at this URL"}})
            return
        self.was_asked |= path != SPANS_PATH
        if path == "mcp" and not rest:
            if has_mcp():
                await self._mcp(scope, receive, send)
            else:
                await send_json(send, 501, {"error": {"type": "not_installed", "message": NEEDS_EXTRA}})
        elif path == "functions" and not rest and scope["method"] == "GET":
            await send_json(send, 200, await self._list_functions())
        elif path == "call" and rest and scope["method"] == "POST":
            await self._serve_call(rest, scope, receive, send)
        elif path == SPANS_PATH and self._spans is not None and scope["method"] == "POST":
            await _receive_spans(self._spans, rest, scope, receive, send)
        elif self._relay is not None and (url := self._relay.find_url(f"{path}/{rest}", _read_query(scope))):
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            try:
                response = await self._relay.answer(scope["method"], url, headers, (await receive())["body"])
            except EvalkitError as error:  # 400: clients try again after others
                await send_json(send, 400, {"error": {"type": error.code, "code": error.code, "message": str(error)}})
                return
            kept = [
                (name.lower(), value) for name, value in response.headers if name.lower() not in _CONNECTION_HEADERS
            ]
            lines = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in kept]
            lines.append((b"content-length", str(len(response.body)).encode()))
            await send({"type": "http.response.start", "status": response.status, "headers": lines})
            await send({"type": "http.response.body", "body": response.body})
        else:
            endpoint = f"{scope['method']} /{'/'.join(filter(None, (path, rest)))}"
            message = f"there is no {endpoint}; there are GET /functions, POST /call/<name> and /mcp"
            await send_json(send, 404, {"error": {"type": "not_found", "message": message}})

    async def _serve_call(self, name: str, scope: Message, receive: Receive, send: Send) -> None:
        query = parse_qs(_read_query(scope))
        turn, channel = query.get("turn", [""])[-1], query.get("channel", ["direct"])[-1]
        if not (turn.isdecimal() or not turn) or channel not in CHANNELS:
            message = (
                f"'turn' counts from 0 and 'channel' is one of {', '.join(CHANNELS)}; got {turn!r} and {channel!r}"
            )
            await send_json(send, 400, {"error": {"type": "bad_request", "message": message}})
            return
        body, malformed = (await receive())["body"], None
        try:
            arguments = json.loads(body) if body.strip() else {}
        except (ValueError, RecursionError) as error:
            arguments, malformed = body.decode("utf-8", "replace"), f"the body is not JSON: {error}"
        call = ModelCall(
            name=name,
            arguments=arguments,
            channel=channel,
            call_id=query.get("call_id", [None])[-1],
            malformed=malformed,
        )
        agent = query.get("agent", [None])[-1]
        result = await self._task.execute_remote_call(call, turn=int(turn) if turn else None, agent=agent)
        await send_json(send, 200, result)


async def _receive_spans(spans: SpanReceiver, signal: str, scope: Message, receive: Receive, send: Send) -> None:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    try:
        kind, body = spans.receive(signal, headers, (await receive())["body"])
    except SpanError as error:  # 400: exporters don't try again
        await send_json(send, 400, {"error": {"type": "unreadable", "message": str(error)}})
        return
    lines = [(b"content-type", kind.encode("ascii")), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": lines})
    await send({"type": "http.response.body", "body": body})


def _read_query(scope: Message) -> str:
    query: bytes = scope["query_string"]
    return query.decode("latin-1")


async def send_json(send: Send, status: int, data: object) -> None:
    body = json.dumps(data, default=str).encode("ascii")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# -- The client: one request per connection, which ends with the task that sends it


class UnreachableError(Exception):
    """There was no answer, or none that is HTTP. `is_refused`: nobody listens there."""

    def __init__(self, message: str, *, is_refused: bool = False) -> None:
        super().__init__(message)
        self.is_refused = is_refused


class ServiceResponse(Struct, frozen=True):
    """A response. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def send_request(
    method: str, url: str, headers: Mapping[str, str], body: bytes, *, limit: int
) -> ServiceResponse:
    """Send `body` to `url`; UnreachableError without an answer, RejectedMessageError for a body beyond `limit` bytes.

    No redirect is followed and no proxy is used. There is no time limit but the task's.
    """
    parts, (host, port) = urlsplit(url), get_peer(url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=secure)
    except OSError as error:
        why = f"connecting to {host}:{port} failed: {error.strerror or error}"  # without strerror: several attempts
        raise UnreachableError(why, is_refused=True) from None
    channel = Channel(h11.Connection(h11.CLIENT), reader, writer)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        all_headers = {
            "host": parts.netloc.rpartition("@")[2],
            "content-length": str(len(body)),
            "connection": "close",
            **headers,
        }
        lines = [(name.encode("latin-1"), value.encode("utf-8")) for name, value in all_headers.items()]
        await channel.write(h11.Request(method=method.encode("ascii"), target=target.encode("utf-8"), headers=lines))
        await channel.write(h11.Data(data=body))
        await channel.write(h11.EndOfMessage())
        head = await channel.read_head()
        if not isinstance(head, h11.Response):
            raise DisconnectedError
        content = await channel.read_body(limit)
        named = {name.decode("latin-1"): value.decode("utf-8", "replace") for name, value in head.headers}
        return ServiceResponse(head.status_code, named, content)
    except (DisconnectedError, ConnectionError, RejectedMessageError) as error:
        if isinstance(error, RejectedMessageError) and error.status == 413:
            raise
        why = str(error) if isinstance(error, RejectedMessageError) else "the connection was closed"
        raise UnreachableError(f"it did not answer the request: {why}") from None
    finally:
        channel.abort()


def get_peer(url: str) -> tuple[str | None, int]:
    """Return the host and the port of `url`."""
    parts = urlsplit(url)
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
