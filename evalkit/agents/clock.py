"""Time that an agent spends waiting for models and functions, overlapping waits counted once."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from functools import partial
from typing import Self

# Clocks that continue where an agent freezes time: libraries that do so replace the functions found in modules.
now = partial(time.perf_counter)
_loop_clock = partial(time.monotonic)


def keep_time(loop: asyncio.AbstractEventLoop) -> None:
    """Let deadlines and sleeps on `loop` pass where an agent freezes time."""
    with suppress(AttributeError):  # another policy's loop, with a clock of its own
        loop.time = _loop_clock  # type: ignore[method-assign]


class WaitingTime:
    """The union of the intervals spent in `measure()`, from any thread, in seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open_waits = 0
        self._since = 0.0
        self._total = 0.0

    def measure(self) -> Self:
        """Measure a wait: ``with time.measure():``."""
        return self

    def __enter__(self) -> None:
        with self._lock:
            if self._open_waits == 0:
                self._since = now()
            self._open_waits += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._open_waits -= 1
            if self._open_waits == 0:
                self._total += now() - self._since

    @property
    def is_running(self) -> bool:
        """True while at least one wait is open."""
        return self._open_waits > 0

    def add(self, seconds: float) -> None:
        """Add a wait that was measured elsewhere."""
        with self._lock:
            self._total += seconds

    @property
    def seconds(self) -> float:
        """The total so far, with an interval that is still open."""
        with self._lock:
            return self._total + (now() - self._since if self._open_waits else 0.0)
