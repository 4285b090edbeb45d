"""Threads beside agents: evalkit's own, and those that were there before a run.

One rule for code without the context of a case, in a thread that was there before: it may do the work of the only case
that runs (a client with a loop of its own, a queue's worker), or that of nobody (telemetry, a heartbeat). What only the
case's work does, a request to a model or a call of a patched function, counts for that case; what all code does,
connecting to a service or asking Python for the time, does not, and goes on as if no case ran.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

AGENT_THREADS = "evalkit-agent-"  # the names of threads in which sync agents run begin so


class OlderThreads:
    """The threads that are there before a run begins, but for those of agents."""

    def __init__(self) -> None:
        self._threads = {thread for thread in threading.enumerate() if not thread.name.startswith(AGENT_THREADS)}

    def include_current(self) -> bool:
        """Return whether the thread here is one of them.

        Python knows a thread that it did not start by a number, which the next thread gets when the first has ended;
        the system's own number is another one then.
        """
        thread = threading.current_thread()
        is_same = not isinstance(thread, threading._DummyThread) or thread.native_id == threading.get_native_id()
        return is_same and thread in self._threads


def start_daemon_thread(run: Callable[[], object], name: str) -> threading.Thread:
    """Start a thread that does not keep the process alive. By its name other parts know whose code runs in it."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
