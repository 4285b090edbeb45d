"""The thread of a test, lent to a sync agent while the test waits for its verdict.

Fixtures make what belongs to their thread: a sqlite3 connection, a transaction of Django. An agent that a test hands
over is therefore called where the test runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

import pytest

Work = Callable[[], None]


class BorrowedThread(threading.Event):
    """Set when the case has its verdict. Whoever waits for that does meanwhile what is carried here."""

    __test__ = False  # no test, whatever its name looks like

    def __init__(self) -> None:
        super().__init__()
        self._work: SimpleQueue[Work | None] = SimpleQueue()

    def call_soon(self, work: Work) -> None:
        self._work.put(work)

    def set(self) -> None:
        super().set()
        self._work.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            try:
                work = self._work.get(timeout=timeout)
            except Empty:
                return self.is_set()
            if work is not None:
                work()
        return self.is_set()


class CapturePytestOutcome:
    """An agent, and what pytest itself raised in it: a skip, a timeout. That is no exception of the agent's."""

    def __init__(self, agent: Callable[..., Any]) -> None:
        self._agent = agent
        self.__name__ = getattr(agent, "__name__", type(agent).__name__)
        self.outcome: BaseException | None = None

    def __call__(self, task: Any) -> Any:
        try:
            return self._agent(task)
        except (pytest.skip.Exception, pytest.fail.Exception, pytest.exit.Exception) as error:
            self.outcome = error
            raise
