"""The functions of a run over HTTP, for agents that are no Python code of this process.

Below a base URL with a random token, so that nobody else on the machine can call them:

    GET  {base}/functions     [{"name", "description", "parameters", "returns"?}, ...]
    POST {base}/call/<name>   a JSON object of arguments in; {"result": ...} or {"error": {"type", "message"}} out
    {base}/mcp                the same functions as a mock MCP server (streamable HTTP)

A call may say what it knows of itself: ``?turn=0&call_id=c1&channel=native``. Each call that arrives is recorded, bad
arguments and unknown names included.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from msgspec import Struct

from evalkit.agents.remote.http1 import HttpServer
from evalkit.functions.mcp import NEEDS_EXTRA, McpApp, has_mcp
from evalkit.model.transcript import ModelCall

if TYPE_CHECKING:
    from evalkit.agents.task import Task


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CHANNELS = ("direct", "native", "text")


class FunctionUrls(Struct, frozen=True):
    """Where the functions of a run are. The MCP server's places are None where the extra `mcp` is not installed.

    `mcp_command` is for clients that start their MCP server as a process (stdio): a program and its arguments.
    """

    functions_url: str
    mcp_url: str | None = None
    mcp_command: tuple[str, ...] | None = None


class FunctionsServer(AbstractAsyncContextManager[FunctionUrls]):
    """``async with Serving(task) as served:`` the functions of `task` are at ``served.functions_url``.

    A sync agent writes ``with``: the server lives on the run's event loop, not in the agent's thread.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._token = secrets.token_urlsafe(18)
        self._app = FunctionsApp(task, self._token)
        self._server = HttpServer(self._app)

    async def __aenter__(self) -> FunctionUrls:
        await self._server.__aenter__()
        base = f"http://127.0.0.1:{self._server.port}/{self._token}"
        if not has_mcp():
            return FunctionUrls(base)
        return FunctionUrls(base, f"{base}/mcp", (sys.executable, "-m", "evalkit.functions.mcp", base))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._server.__aexit__(kind, error, trace)
        finally:
            await self._app.aclose()

    def __enter__(self) -> FunctionUrls:
        return self._task.wait(self.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.wait(self.__aexit__(kind, error, trace))


class FunctionsApp:
    """The ASGI app behind the URLs."""

    def __init__(self, task: Task, token: str) -> None:
        self._task = task
        self._base = f"/{token}/"
        self._mcp = McpApp(self._list_functions, self._call)

    async def aclose(self) -> None:
        await self._mcp.aclose()

    async def _list_functions(self) -> list[dict[str, Any]]:
        return self._task.describe_functions()

    async def _call(self, name: str, arguments: Any) -> dict[str, Any]:
        return await self._task.execute_remote_call(ModelCall(name=name, arguments=arguments, channel="direct"))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path, _, rest = scope["path"][len(self._base) :].partition("/")
        if not secrets.compare_digest(scope["path"][: len(self._base)].encode(), self._base.encode()):
            await _send_json(send, 404, {"error": {"type": "not_found", "message": "there is nothing at this URL"}})
        elif path == "mcp" and not rest:
            await self._serve_mcp(scope, receive, send)
        elif path == "functions" and not rest and scope["method"] == "GET":
            await _send_json(send, 200, await self._list_functions())
        elif path == "call" and rest and scope["method"] == "POST":
            await self._serve_call(rest, scope, receive, send)
        else:
            endpoint = f"{scope['method']} /{'/'.join(filter(None, (path, rest)))}"
            message = f"there is no {endpoint}; there are GET /functions, POST /call/<name> and /mcp"
            await _send_json(send, 404, {"error": {"type": "not_found", "message": message}})

    async def _serve_mcp(self, scope: Message, receive: Receive, send: Send) -> None:
        if has_mcp():
            await self._mcp(scope, receive, send)
        else:
            await _send_json(send, 501, {"error": {"type": "not_installed", "message": NEEDS_EXTRA}})

    async def _serve_call(self, name: str, scope: Message, receive: Receive, send: Send) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        turn, channel = query.get("turn", [""])[-1], query.get("channel", ["direct"])[-1]
        if not (turn.isdecimal() or not turn) or channel not in CHANNELS:
            message = (
                f"'turn' counts from 0 and 'channel' is one of {', '.join(CHANNELS)}; got {turn!r} and {channel!r}"
            )
            await _send_json(send, 400, {"error": {"type": "bad_request", "message": message}})
            return
        arguments, malformed = _parse_arguments((await receive())["body"])
        call = ModelCall(
            name=name,
            arguments=arguments,
            channel=channel,
            call_id=query.get("call_id", [None])[-1],
            malformed=malformed,
        )
        await _send_json(send, 200, await self._task.execute_remote_call(call, turn=int(turn) if turn else None))


def _parse_arguments(body: bytes) -> tuple[Any, str | None]:
    """The arguments, and why they could not be read, if so. Nothing at all means that there are none."""
    if not body.strip():
        return {}, None
    try:
        arguments = json.loads(body)
    except (ValueError, RecursionError) as error:
        return body.decode("utf-8", "replace"), f"the body is not JSON: {error}"
    return arguments, None


async def _send_json(send: Send, status: int, data: Any) -> None:
    body = json.dumps(data, default=str).encode("ascii")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
