"""The functions of a run as a mock MCP server, beside its other endpoints: streamable HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from evalkit.agents.remote.http_server import Message, Receive, Send, send_json
from evalkit.agents.remote.server import CallFunction, ListFunctions
from evalkit.features.mcp.mock_server import build_mock_server
from evalkit.features.mcp.spec import has_mcp

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

NEEDS_EXTRA = "the mock MCP server needs the package 'mcp': pip install 'pytest-evalkit[mcp]'"
_HOSTS = ["127.0.0.1:*", "localhost:*"]


class McpEndpoint:
    """The functions of a run at ``/mcp`` of its server (streamable HTTP).

    The session manager lives in a task of its own: its task group must be left by the task that entered it, and
    requests come in others. Each request stands alone (no sessions), so that a client may come and go.
    """

    counts_as_use: ClassVar[bool] = True
    module: ClassVar[str] = build_mock_server.__module__

    def __init__(self, offer: ListFunctions, call: CallFunction) -> None:
        self.needs_extra = "" if has_mcp() else NEEDS_EXTRA
        self._offer = offer
        self._call = call
        self._manager_future: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._manager_task: asyncio.Task[None] | None = None

    async def answer(self, rest: str, scope: Message, receive: Receive, send: Send) -> bool:
        """Answer a message of a client. `rest`: there is nothing below."""
        if rest:
            return False
        if self.needs_extra:
            await send_json(send, 501, {"error": {"type": "not_installed", "message": self.needs_extra}})
            return True
        if self._manager_future is None:
            self._manager_future = asyncio.get_running_loop().create_future()
            self._manager_task = asyncio.create_task(self._run(self._manager_future))
        manager = await asyncio.shield(self._manager_future)
        await manager.handle_request(scope, receive, send)
        return True

    def note_loss(self, rest: str, why: str) -> None:
        """The client sees it."""

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
        """End the session manager."""
        if self._manager_task is not None:
            self._manager_task.cancel()
            await asyncio.wait({self._manager_task})
