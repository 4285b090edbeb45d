"""The mock MCP server over streamable HTTP, as an ASGI app that starts with its first request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from evalkit.functions.mcp_server import CallFunction, ListFunctions, build_mock_server

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

Message = MutableMapping[str, Any]
_HOSTS = ["127.0.0.1:*", "localhost:*"]


class McpApp:
    """An ASGI app. `aclose` ends what it has started.

    The session manager lives in a task of its own: its task group must be left by the task that entered it, and
    requests come in others. Each request stands alone (no sessions), so that a client may come and go.
    """

    def __init__(self, offer: ListFunctions, call: CallFunction) -> None:
        self._offer = offer
        self._call = call
        self._manager_future: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._manager_task: asyncio.Task[None] | None = None

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        if self._manager_future is None:
            self._manager_future = asyncio.get_running_loop().create_future()
            self._manager_task = asyncio.create_task(self._run(self._manager_future))
        manager = await asyncio.shield(self._manager_future)
        await manager.handle_request(scope, receive, send)

    async def _run(self, manager_future: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        try:
            manager = await asyncio.to_thread(self._build_manager)  # the first import takes a second: not on the loop
        except Exception as error:
            manager_future.set_exception(error)
            return
        async with manager.run():
            manager_future.set_result(manager)
            await asyncio.Event().wait()  # until it is cancelled

    def _build_manager(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        security = TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=_HOSTS,
            allowed_origins=[f"http://{host}" for host in _HOSTS],
        )
        server = build_mock_server(self._offer, self._call)
        return StreamableHTTPSessionManager(server, json_response=True, stateless=True, security_settings=security)

    async def aclose(self) -> None:
        if self._manager_task is not None:
            self._manager_task.cancel()
            await asyncio.wait({self._manager_task})
