"""The executor of a worker of a cluster: each thread of the process has a parcel in hand, and cases of all overlap."""

from __future__ import annotations

import threading
from typing import Any

from evalkit.execution.executor import Executor
from evalkit.model.settings import Settings


class SharedExecutor(Executor):
    """An executor that several threads use, each for cases of its own."""

    def __init__(self, *arguments: Any) -> None:
        self._starting = threading.RLock()
        self._local = threading.local()
        super().__init__(*arguments)

    @property  # of the case that this thread took last
    def seconds(self) -> float:
        return getattr(self._local, "seconds", 0.0)

    @seconds.setter
    def seconds(self, value: float) -> None:
        self._local.seconds = value

    def _start(self, runs: Any) -> None:
        with self._starting:
            super()._start(runs)

    def _replace_blocked_loop(self, loop: Any) -> None:
        with self._starting:
            if self._loop is not None and loop is self._loop:  # else another thread was first
                super()._replace_blocked_loop(self._loop)


def build_shared_executor(settings: Settings, concurrency: int, *, faults: bool) -> SharedExecutor:
    """What runs the cases of a run; a sweep of faults is run where it is asked for."""
    if not faults:
        return SharedExecutor(settings, concurrency)
    from evalkit.probing.sweeping import arun_with_faults

    return SharedExecutor(settings, concurrency, arun_with_faults)
