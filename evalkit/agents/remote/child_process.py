"""A child process: it leads a session and process group of its own, and is ended together with all that it has started.

On Linux, descendants that left the group are found by a mark in their environment.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from evalkit.agents.child_guard import start_as
from evalkit.agents.remote.reaper import TERM_S, Reaper, find_survivors, send_signal

OWN_PYTHON = "python"  # as a command it means the interpreter that runs evalkit
LONGEST_STDERR = 2_000  # characters of stderr in a message
KILL_S = 0.5  # how long to wait for what was killed
LINGER_S = 0.25  # how long stdout may stay open, in the hands of a grandchild, when the child has ended
STDERR_KEPT = 64_000  # bytes of the end of stderr

_reaper = Reaper()


def find_executable(word: str) -> str:
    """Return the program that the first word of a command means."""
    return sys.executable if word == OWN_PYTHON else word


def describe_exit(status: int) -> str:
    """Describe how a process ended, by its exit status; a negative one is a signal."""
    name = next((number.name for number in signal.Signals if number == -status), f"signal {-status}")
    return f"was ended by {name}" if status < 0 else f"exited with status {status}"


def format_stderr(child: ChildProcess) -> str:
    """Format the end of what a process wrote to stderr, to stand at the end of a message."""
    text = child.stderr
    if not text:
        return "; it wrote nothing to stderr"
    tail = text if len(text) <= LONGEST_STDERR else "…" + "".join(text[-LONGEST_STDERR:].split(None, 1)[1:])
    return "; its stderr ends:\n" + "\n".join(f"  {line}" for line in tail.splitlines())


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
        _reaper.join(self._mark, self._group)

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
            _reaper.forget(self._mark)
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
        send_signal(self._group, self._mark, number)


P = TypeVar("P", bound=ChildProcess)


async def start_process(
    words: Sequence[str], protocol: type[P], *, cwd: Path, env: Mapping[str, str], limit: int, mark: str
) -> P:
    """Start the command. `mark` is a text in `env` that nothing else on this machine has. Raises OSError."""
    with start_as(None):
        _reaper.watch(mark.encode())  # however this interpreter ends from now on, it leaves nothing behind
    try:
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: protocol(limit, mark.encode()), *words, cwd=cwd, env=dict(env), start_new_session=True
        )
    except OSError:  # nothing was started
        _reaper.forget(mark.encode())
        raise
    return child
