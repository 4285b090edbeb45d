"""A child process with all that it starts: limited in output, ended as a whole, and never left behind.

It leads a session and process group of its own. On Linux, descendants that left the group are found by a mark in their
environment.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

TERM_S = 1.0  # between SIGTERM and SIGKILL
KILL_S = 0.5  # how long to wait for what was killed
LINGER_S = 0.25  # how long stdout may stay open, in the hands of a grandchild, when the child has ended
STDERR_KEPT = 64_000  # bytes of the end of stderr

_PROC = Path("/proc")
_live_groups: set[int] = set()  # groups that must not outlive this interpreter


class ChildProcess(asyncio.SubprocessProtocol):
    """``child = await start(...)``, ``await child.finished(stdin)``, and always ``await child.end()``."""

    def __init__(self, limit: int, mark: bytes) -> None:
        self.stdout = bytearray()
        self.is_flooded = False
        self._limit = limit
        self._mark = mark
        self._stderr = bytearray()
        self._is_closed = False  # stdout is at its end
        self._loop = asyncio.get_running_loop()
        self._completion: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.SubprocessTransport | None = None
        self._group = 0

    @property
    def returncode(self) -> int | None:
        """The exit status; negative: the signal that ended it; None: it is still running."""
        return None if self._transport is None else self._transport.get_returncode()

    @property
    def stderr(self) -> str:
        """The end of what it wrote to stderr."""
        return bytes(self._stderr[-STDERR_KEPT:]).decode("utf-8", "backslashreplace").strip()

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        self._group = transport.get_pid()
        _register_group(self._group)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr += data
            if len(self._stderr) > 2 * STDERR_KEPT:
                del self._stderr[:-STDERR_KEPT]
        elif not self.is_flooded:
            self.stdout += data
            if len(self.stdout) > self._limit:
                self.is_flooded = True
                self._finish()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._is_closed = True
            if self.returncode is not None:
                self._finish()

    def process_exited(self) -> None:
        if self._is_closed:
            self._finish()
        else:
            self._loop.call_later(LINGER_S, self._finish)

    def _finish(self) -> None:
        if not self._completion.done():
            self._completion.set_result(None)

    # What is asked of it

    async def send_and_wait(self, stdin: bytes) -> None:
        """Hand it `stdin`, and wait until it has ended, or printed more than its limit."""
        assert self._transport is not None
        pipe = self._transport.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        pipe.write(stdin)  # one that does not read it is free to
        pipe.close()
        await self._completion

    async def end(self) -> bool:
        """End it and all that it has started. True if SIGTERM was not enough for the process itself."""
        try:
            if not self._find_survivors():
                return False
            self._send_signal(signal.SIGTERM)
            await self._wait_until_gone(TERM_S)
            is_stubborn = self.returncode is None
            if self._find_survivors():
                self._send_signal(signal.SIGKILL)
                await self._wait_until_gone(KILL_S)
            return is_stubborn
        except BaseException:  # we are being stopped ourselves
            self._send_signal(signal.SIGKILL)
            raise
        finally:
            _live_groups.discard(self._group)
            if self._transport is not None:
                self._transport.close()

    async def _wait_until_gone(self, seconds: float) -> None:
        """Wait until nothing is left, for a limited time."""
        until, pause = self._loop.time() + seconds, 0.005
        while self._find_survivors() and self._loop.time() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _find_survivors(self) -> list[int]:
        if self.returncode is None:
            return [self._group]
        return find_survivors(self._group, self._mark)

    def _send_signal(self, number: signal.Signals) -> None:
        if not hasattr(os, "killpg"):
            assert self._transport is not None
            with suppress(ProcessLookupError):
                self._transport.kill()
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, number)
        for pid in find_survivors(self._group, self._mark):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


async def start_process(
    words: Sequence[str], *, cwd: Path, env: Mapping[str, str], limit: int, mark: str
) -> ChildProcess:
    """Start the command. `mark` is a text in `env` that nothing else on this machine has. Raises OSError."""
    _, child = await asyncio.get_running_loop().subprocess_exec(
        lambda: ChildProcess(limit, mark.encode()), *words, cwd=cwd, env=dict(env), start_new_session=True
    )
    return child


def find_survivors(group: int, mark: bytes) -> list[int]:
    """The processes of `group`, and on Linux all that have `mark` in their environment. Zombies do not count."""
    if not _PROC.is_dir():
        return _find_group(group)
    running = [entry for entry in os.scandir(_PROC) if entry.name.isdecimal()]
    return [int(entry.name) for entry in running if _is_member(entry.path, group, mark)]


def _find_group(group: int) -> list[int]:
    try:
        os.killpg(group, 0)
    except (AttributeError, ProcessLookupError, PermissionError):
        return []
    return [group]


def _is_member(process: str, group: int, mark: bytes) -> bool:
    try:
        with open(f"{process}/stat", "rb") as file:
            state, _, its_group = file.read().rpartition(b")")[2].split(None, 3)[:3]
        if state in b"ZX":
            return False
        if int(its_group) == group:
            return True
        with open(f"{process}/environ", "rb") as file:
            return mark in file.read()
    except OSError:  # it has just ended, or is somebody else's
        return False


def _register_group(group: int) -> None:
    """Kill `group` when the interpreter ends before it does: an interrupted run leaves nothing behind."""
    if not _live_groups:
        atexit.unregister(_stop_live_groups)
        atexit.register(_stop_live_groups)
    _live_groups.add(group)


def _stop_live_groups() -> None:
    for group in tuple(_live_groups):
        with suppress(OSError, AttributeError):
            os.killpg(group, signal.SIGKILL)
