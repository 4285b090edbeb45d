"""The mock MCP server over streamable HTTP, as an ASGI app that starts with its first request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from evalkit.functions.mcp_server import Call, Offer, mock_server

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

Message = MutableMapping[str, Any]
_HOSTS = ["127.0.0.1:*", "localhost:*"]


class McpApp:
    """An ASGI app. `aclose` ends what it has started.

    The session manager lives in a task of its own: its task group must be left by the task that entered it, and
    requests come in others. Each request stands alone (no sessions), so that a client may come and go.
    """

    def __init__(self, offer: Offer, call: Call) -> None:
        self._offer = offer
        self._call = call
        self._started: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._host: asyncio.Task[None] | None = None

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        if self._started is None:
            self._started = asyncio.get_running_loop().create_future()
            self._host = asyncio.create_task(self._run(self._started))
        manager = await asyncio.shield(self._started)
        await manager.handle_request(scope, receive, send)

    async def _run(self, started: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        try:
            manager = await asyncio.to_thread(self._manager)  # the first import takes a second: not on the loop
        except Exception as error:
            started.set_exception(error)
            return
        async with manager.run():
            started.set_result(manager)
            await asyncio.Event().wait()  # until it is cancelled

    def _manager(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        security = TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=_HOSTS,
            allowed_origins=[f"http://{host}" for host in _HOSTS],
        )
        server = mock_server(self._offer, self._call)
        return StreamableHTTPSessionManager(server, json_response=True, stateless=True, security_settings=security)

    async def aclose(self) -> None:
        if self._host is not None:
            self._host.cancel()
            await asyncio.wait({self._host})
