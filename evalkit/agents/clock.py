"""How long an agent waited for models and functions, overlapping waits counted once."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import asyncio


# Seconds that go on where an agent freezes time: what does that swaps the clocks that it finds in modules.
now = partial(time.perf_counter)
_loop_clock = partial(time.monotonic)


def keep_time(loop: asyncio.AbstractEventLoop) -> None:
    """Let deadlines and sleeps on `loop` pass where an agent freezes time."""
    with suppress(AttributeError):  # another policy's loop, with a clock of its own
        loop.time = _loop_clock  # type: ignore[method-assign]


class WaitingTime:
    """The union of the intervals spent in `waiting()`, from any thread, in seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open_waits = 0
        self._since = 0.0
        self._total = 0.0

    def measure(self) -> Self:
        """``with clock.waiting():`` around a wait."""
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
        """Whether somebody is inside right now."""
        return self._open_waits > 0

    def add(self, seconds: float) -> None:
        """Count a wait that somebody else measured."""
        with self._lock:
            self._total += seconds

    @property
    def seconds(self) -> float:
        """So far, an interval that is still open included."""
        with self._lock:
            return self._total + (now() - self._since if self._open_waits else 0.0)
