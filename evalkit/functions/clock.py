"""The run's clock: mocked latency counts, and real time passes beside it."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from time import perf_counter


class RunClock:
    """`virtual_ms`: what functions took as the mocks have it (calls of one batch overlap). As a context: `wall_ms`.

    `wall_ms` is the real time during which at least one call was inside, so that a caller can tell its own code's
    time from the dispatcher's. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._since = 0.0
        self._wall_s = 0.0
        self.virtual_ms = 0.0
        self._overlapping: dict[Hashable, float] = {}

    @property
    def wall_ms(self) -> float:
        with self._lock:
            running = perf_counter() - self._since if self._inside else 0.0
            return (self._wall_s + running) * 1000

    def advance(self, ms: float) -> None:
        if ms:
            with self._lock:
                self.virtual_ms += ms

    def overlap(self, batch: Hashable, ms: float) -> None:
        """One call of `batch`, whose calls overlap: together they take as long as the longest."""
        with self._lock:
            before = self._overlapping.get(batch, 0.0)
            if ms > before:
                self._overlapping[batch] = ms
                self.virtual_ms += ms - before

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._since = perf_counter()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._wall_s += perf_counter() - self._since
