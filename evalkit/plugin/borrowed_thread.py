"""The thread of pytest, lent to the sync agent of the case that it waits for.

Fixtures make objects that belong to their thread: a sqlite3 connection, a transaction of Django. An agent that a test
hands over is therefore called where the test runs. And where cases run one at a time, agents are called as a script
calls them, in the main thread: there are handlers of signals, debuggers and what else works in no other thread.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from types import FrameType

from evalkit.functions.threads import start_daemon_thread
from evalkit.runner.agent_threads import AgentThread, current_agent_thread

_SIGNAL = getattr(signal, "SIGURG", None)  # ignored by default, and by what agents use
_GRACE_S = 0.2  # work that is done leaves its thread by itself
_AGAIN_S = 0.5


class Overdue(BaseException):
    """Raised in an agent whose time is over."""


class BorrowedThread(threading.Event):
    """A thread that calls a sync agent while it waits for this event, the verdict.

    `is_cut_off`: the agent is, when its time is over; that takes the main thread. Else it is left to end.
    """

    __test__ = False  # no test, whatever its name looks like

    def __init__(self, *, is_cut_off: bool = False) -> None:
        super().__init__()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_cut_off = is_cut_off
        self._is_working = False
        self._is_overdue = False

    def lend(self) -> Context:
        """Return a copy of this context in which sync agents run in this thread."""
        context = copy_context()
        agent_thread = AgentThread(self.call_soon, cut_off=self.cut_off, is_from_outside=is_raised_by_handler)
        context.run(current_agent_thread.set, agent_thread)
        return context

    def call_soon(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def cut_off(self) -> None:
        """Interrupt the agent, whose time is over. Called from another thread."""
        if self._is_cut_off and self._is_working:
            self._is_overdue = True
            start_daemon_thread(self._interrupt, "evalkit-cut-off")

    def set(self) -> None:
        super().set()
        self._work.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            try:
                work = self._work.get(timeout=timeout)
            except Empty:
                return self.is_set()
            if work is not None and self._is_cut_off:
                self._run(work)
            elif work is not None:
                work()
        return self.is_set()

    def _run(self, work: Callable[[], None]) -> None:
        assert _SIGNAL is not None, "see `can_cut_off`"
        previous = signal.signal(_SIGNAL, self._raise_overdue)
        self._is_overdue, self._is_working = False, True
        try:
            work()
        except Overdue:  # it came when the work was done
            pass
        finally:
            self._is_working = False
            signal.signal(_SIGNAL, previous)

    def _raise_overdue(self, number: int, frame: FrameType | None) -> None:
        if self._is_working and self._is_overdue:
            raise Overdue

    def _interrupt(self) -> None:
        """Send the signal that interrupts the main thread, and again where the agent has swallowed the exception."""
        time.sleep(_GRACE_S)
        main = threading.main_thread().ident
        while self._is_working and self._is_overdue and main is not None and _SIGNAL is not None:
            signal.pthread_kill(main, _SIGNAL)
            time.sleep(_AGAIN_S)


def can_cut_off() -> bool:
    """Return whether this thread can be interrupted in what it does: the main one, where there are signals."""
    return _SIGNAL is not None and threading.current_thread() is threading.main_thread()


def is_raised_by_handler(error: BaseException) -> bool:
    """Return whether the handler of an alarm, as pytest-timeout sets one, has raised `error` in the agent's code."""
    alarm = getattr(signal, "SIGALRM", None)
    code = None if alarm is None else getattr(signal.getsignal(alarm), "__code__", None)
    trace = error.__traceback__
    while trace is not None:
        if code is not None and trace.tb_frame.f_code is code:
            return True
        trace = trace.tb_next
    return False
