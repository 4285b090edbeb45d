"""The connections to MCP servers of this process: the loop that they live on, and the servers that cases share."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar

from evalkit.features.mcp.connection import END_S, ServerConnection
from evalkit.features.mcp.process import CLOSE_S
from evalkit.functions.threads import AGENT_THREADS, start_daemon_thread
from evalkit.locks import create_lock

T = TypeVar("T")


class HostLoop:
    """The event loop of all connections, in a daemon thread that begins with the first one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = create_lock()

    def start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # By its name the offline guard knows that code of agents may run in it.
                start_daemon_thread(self._loop.run_forever, f"{AGENT_THREADS}mcp")
            return self._loop

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` there, and wait for it here. Cancelled here, it is cancelled there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.start()))


HOST = HostLoop()


class ServerPool:
    """The servers that cases of this process share: each is started once, and again after a crash."""

    def __init__(self) -> None:
        self._connections: dict[str, asyncio.Task[ServerConnection]] = {}

    @property
    def has_servers(self) -> bool:
        return bool(self._connections)

    async def get(self, make: Callable[[], ServerConnection], key: str, *, is_service: bool) -> ServerConnection:
        """Return the open connection of `key`; made and opened if there is none. To be run on HOST's loop.

        A program that could not be started is not tried again by each case; a service may have come up since.
        """
        opening = self._connections.get(key)
        while opening is not None and opening.done():
            is_done = is_service if opening.exception() else not await opening.result().answers()
            latest = self._connections.get(key)  # another case may have started a new one meanwhile
            if latest is opening:
                opening = None if is_done else opening
                break
            opening = latest
        if opening is None:
            opening = self._connections[key] = asyncio.get_running_loop().create_task(
                self._open(make()), context=Context()
            )
        return await asyncio.shield(opening)

    async def _open(self, connection: ServerConnection) -> ServerConnection:
        await connection.open()
        return connection

    async def close(self) -> None:
        openings, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*map(self._close, openings), return_exceptions=True)

    async def _close(self, opening: asyncio.Task[ServerConnection]) -> None:
        await (await opening).close()


POOL = ServerPool()


@atexit.register
def close_servers() -> None:
    """End the servers that are still running, at the end of this process. If that is killed, the reaper does it."""
    if POOL.has_servers:
        future = asyncio.run_coroutine_threadsafe(POOL.close(), HOST.start())
        with suppress(Exception):
            future.result(timeout=CLOSE_S + 2 * END_S)
