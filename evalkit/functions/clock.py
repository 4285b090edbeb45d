"""The run's clock: what functions take as the mocks have it."""

from __future__ import annotations

import threading
from collections.abc import Hashable


class RunClock:
    """`virtual_ms`: milliseconds of mocked latency; calls of one batch overlap. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.virtual_ms = 0.0
        self._overlapping: dict[Hashable, float] = {}

    def advance(self, ms: float) -> None:
        if ms:
            with self._lock:
                self.virtual_ms += ms

    def add_overlapping(self, batch: Hashable, ms: float) -> None:
        """One call of `batch`, whose calls overlap: together they take as long as the longest."""
        with self._lock:
            longest_ms = self._overlapping.get(batch, 0.0)
            if ms > longest_ms:
                self._overlapping[batch] = ms
                self.virtual_ms += ms - longest_ms
