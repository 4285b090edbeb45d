"""Whose run a call is that a framework makes: of the context, of the case, or of the only one there is.

Frameworks start tasks and threads of their own, and agents do. What has lost its context must not reach a real tool.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Generic, Protocol, TypeVar

from evalkit.adapters.recording import Recorder
from evalkit.errors import MockError
from evalkit.functions.active import CASE
from evalkit.functions.carrying import carry, stop_carrying


def once(hook: Callable[[], None]) -> Callable[[], None]:
    """`hook`, which changes a framework for good: the first call in a process does it, and the others nothing."""
    lock = threading.Lock()
    is_done = False

    @wraps(hook)
    def hooked() -> None:
        nonlocal is_done
        with lock:
            if not is_done:
                is_done = True
                hook()

    return hooked


class Run(Protocol):
    """One run of a framework's agent."""

    recorder: Recorder


R = TypeVar("R", bound=Run)


class Runs(Generic[R]):
    """The runs of one framework that go on in this process."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._current: ContextVar[R | None] = ContextVar(f"evalkit_{framework}", default=None)
        self._going: list[tuple[R, Any]] = []
        self._lock = threading.Lock()

    @contextmanager
    def entered(self, run: R) -> Iterator[None]:
        """While inside, calls of this context are those of `run`."""
        with self._lock:
            self._going.append((run, CASE.get()))
            carry(self._framework)
        token = self._current.set(run)
        try:
            yield
        finally:
            self._current.reset(token)
            with self._lock:
                self._going = [(other, case) for other, case in self._going if other is not run]
                if not self._going:
                    stop_carrying(self._framework)

    def of(self, what: str) -> R | None:
        """The run that a call of `what` belongs to; None outside of all. MockError where it can't be told."""
        run = self._current.get()
        case = CASE.get()  # kept by the threads and executors that an agent starts
        with self._lock:
            going = [other for other, its in self._going if case is None or its is case]
        if run is not None:
            if run in going:
                return run
            raise _refused(what, "from a thread or task of a run that is over")
        if len(going) > 1:
            error = _refused(what, f"outside of any run while {len(going)} go on, so nobody knows whose call it is")
            for other in going:
                other.recorder.task.note_fault(error)
            raise error
        return going[0] if going else None


def _refused(what: str, how: str) -> MockError:
    hint = "hand work to older threads with evalkit.bind(function), or run one case at a time"
    return MockError(f"{what} was called {how}; {hint}")
