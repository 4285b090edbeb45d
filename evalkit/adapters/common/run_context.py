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

from evalkit.adapters.common.recording import TaskRecorder
from evalkit.errors import MockError
from evalkit.functions.patching.context_propagation import CURRENT_CASE, start_propagation, stop_propagation


def run_once(hook: Callable[[], None]) -> Callable[[], None]:
    """`hook`, which changes a framework for good: the first call in a process does it, and the others nothing."""
    lock = threading.Lock()
    is_done = False

    @wraps(hook)
    def run_hook() -> None:
        nonlocal is_done
        with lock:
            if not is_done:
                is_done = True
                hook()

    return run_hook


class FrameworkRun(Protocol):
    """One run of a framework's agent."""

    recorder: TaskRecorder


R = TypeVar("R", bound=FrameworkRun)


class ActiveRuns(Generic[R]):
    """The runs of one framework that go on in this process."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._current: ContextVar[R | None] = ContextVar(f"evalkit_{framework}", default=None)
        self._entries: list[tuple[R, Any]] = []
        self._lock = threading.Lock()

    @contextmanager
    def enter(self, run: R) -> Iterator[None]:
        """While inside, calls of this context are those of `run`."""
        with self._lock:
            self._entries.append((run, CURRENT_CASE.get()))
            start_propagation(self._framework)
        token = self._current.set(run)
        try:
            yield
        finally:
            self._current.reset(token)
            with self._lock:
                self._entries = [(other, case) for other, case in self._entries if other is not run]
                if not self._entries:
                    stop_propagation(self._framework)

    def find(self, subject: str) -> R | None:
        """The run that a call of `what` belongs to; None outside of all. MockError where it can't be told."""
        run = self._current.get()
        case = CURRENT_CASE.get()  # kept by the threads and executors that an agent starts
        with self._lock:
            runs = [other for other, its in self._entries if case is None or its is case]
        if run is not None:
            if run in runs:
                return run
            raise _make_refusal(subject, "from a thread or task of a run that is over")
        if len(runs) > 1:
            error = _make_refusal(
                subject, f"outside of any run while {len(runs)} go on, so nobody knows whose call it is"
            )
            for other in runs:
                other.recorder.task.record_fault(error)
            raise error
        return runs[0] if runs else None


def _make_refusal(subject: str, circumstances: str) -> MockError:
    hint = "hand work to older threads with evalkit.bind(function), or run one case at a time"
    return MockError(f"{subject} was called {circumstances}; {hint}")
