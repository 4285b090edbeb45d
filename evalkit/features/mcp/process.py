"""A program that is an MCP server, on stdin and stdout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from evalkit.agents.remote.child_process import LINGER_S, ChildProcess

CLOSE_S = 1.0  # in which a program ends by itself once its input has ended


class ServerProcess(ChildProcess):
    """A server on stdin and stdout: each line is a message. `deliver` gets them; `finish` is called at their end."""

    def __init__(self, limit: int, mark: bytes) -> None:
        super().__init__(limit, mark)
        self.deliver: Callable[[bytes], None] | None = None  # lines are kept until there is one
        self.finish: Callable[[], None] = lambda: None
        self._exit = asyncio.Event()
        self._stderr_end = asyncio.Event()

    @property
    def has_ended_output(self) -> bool:
        return self._is_closed

    def process_exited(self) -> None:
        super().process_exited()
        self._exit.set()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            super().pipe_data_received(fd, data)
            return
        self.stdout += data
        if self.deliver is not None and b"\n" in data:
            *lines, rest = bytes(self.stdout).split(b"\n")
            self.stdout[:] = rest
            for line in lines:
                if line.strip():
                    self.deliver(line)
        if len(self.stdout) > self._limit:
            self.is_flooded = True
            self.finish()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        super().pipe_connection_lost(fd, exc)
        if fd == 1:
            self.finish()
        elif fd == 2:
            self._stderr_end.set()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            pipe = self._transport.get_pipe_transport(0)
            if isinstance(pipe, asyncio.WriteTransport) and not pipe.is_closing():
                pipe.write(data)

    async def wait_for_exit(self, seconds: float) -> None:
        """Wait until its exit status is known, for a limited time; not at all while its output goes on.

        What it wrote to stderr may be read after its end, or never where something that it has started keeps it open.
        """
        if self._is_closed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._exit.wait(), seconds)
                await asyncio.wait_for(self._stderr_end.wait(), LINGER_S)

    async def close(self) -> None:
        """End its input, as MCP has it, and a while later itself and all that it has started."""
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        if isinstance(pipe, asyncio.WriteTransport):
            pipe.close()
        try:
            await self._wait_until_gone(CLOSE_S)
        finally:
            await self.end()
