"""Daemon threads for sync agents, used again when they are done.

A pool of the standard library would join its threads when the interpreter ends, and a hung agent would keep the
process alive. These are left behind instead.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import Context
from itertools import count
from queue import SimpleQueue

_numbers = count(1)
_idle: list[_Worker] = []


class _Worker:
    """One thread. It takes a piece of work at a time, and lines up as idle between them."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        thread = threading.Thread(target=self._run, name=f"evalkit-agent-{next(_numbers)}", daemon=True)
        Context().run(thread.start)  # in no case's context: it outlives the first one that it works for

    def execute(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            finally:
                del work  # what an agent holds must not live on until the next one comes
                _idle.append(self)


def run_in_daemon_thread(work: Callable[[], None]) -> None:
    """Run `work` in a thread that nobody waits for. It must not raise."""
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.execute(work)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a forked child has none of these threads
