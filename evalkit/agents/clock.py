"""Time that an agent spends waiting for models and functions, overlapping waits counted once; and time for which the
code of other cases keeps it from running."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from functools import partial
from types import coroutine
from typing import Self, TypeVar
from weakref import WeakKeyDictionary

from evalkit.locks import create_lock

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
        self._lock = create_lock()
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


# Cases share an interpreter and an event loop, and one that holds either keeps all others from running. A tick on the
# loop that comes late tells for how long. Each case is given that time back, except what its own code took.

_TICK_S = 0.05
_LATE_S = 0.005
T = TypeVar("T")


class Occupancy:
    """The time for which the code of one run has held its event loop or the interpreter. `add_delay` takes the time
    that others did."""

    def __init__(self, add_delay: Callable[[float], None]) -> None:
        self.add_delay = add_delay
        self.start_time = now()
        self.sampled_s = 0.0  # seconds for which the loop was found with the run
        self._step_s = 0.0
        self._thread_s = 0.0
        self._threads: list[tuple[int, float]] = []  # clocks of threads that run its code, and what they began with
        self._last = (0.0, 0.0)

    def take(self) -> float:
        """Return the seconds since the last time."""
        threads_s = self._thread_s + sum(_read_cpu_clock(clock, began) for clock, began in list(self._threads))
        total = self._step_s + threads_s, self.sampled_s + threads_s
        taken = max(after - before for after, before in zip(total, self._last, strict=True))
        self._last = total
        return taken

    @contextmanager
    def measure_thread(self) -> Iterator[None]:
        """Count the processor time of this thread, in which code of the run is executed."""
        if not hasattr(time, "pthread_getcpuclockid"):  # macOS, Windows
            yield
            return
        clock = time.pthread_getcpuclockid(threading.get_ident())
        entry = (clock, time.clock_gettime(clock))
        self._threads.append(entry)
        try:
            yield
        finally:
            self._threads.remove(entry)
            self._thread_s += _read_cpu_clock(*entry)

    @coroutine
    def measure_steps(self, steps: Coroutine[object, object, T]) -> Generator[object, object, T]:
        """Await `steps`, and count the time of each of its steps."""
        resume: Callable[[], object] = partial(steps.send, None)
        while True:
            since = now()
            try:
                waiting = resume()
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                self._step_s += now() - since
            try:
                resume = partial(steps.send, (yield waiting))
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                resume = partial(steps.throw, error)


def _read_cpu_clock(clock: int, began: float) -> float:
    try:
        return time.clock_gettime(clock) - began
    except OSError:  # the thread has ended
        return 0.0


current_occupancy: ContextVar[Occupancy | None] = ContextVar("evalkit_occupancy", default=None)


class _LoopShare:
    """The runs under way on one event loop, and its tick."""

    def __init__(self) -> None:
        self.occupancies: set[Occupancy] = set()
        self._due: float | None = None  # when the next tick is expected

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the loop tick for as long as there are runs."""
        if self._due is None:
            self._due = now() + _TICK_S
            loop.call_later(_TICK_S, self._tick, loop, context=Context())  # in no case's context: it outlives the first

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.give_back()
        self._due = None
        if self.occupancies:
            self.start(loop)

    def give_back(self) -> None:
        """Give the runs the time for which the tick is late."""
        at = now()
        if self._due is None or at < self._due:
            return
        for occupancy in list(self.occupancies):
            delay_s = min(at - self._due, at - occupancy.start_time) - occupancy.take()
            if delay_s > _LATE_S and len(_occupancies) > 1:
                occupancy.add_delay(delay_s)
        self._due = at


_occupancies: set[Occupancy] = set()  # of all runs under way in this process
_loop_shares: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopShare] = WeakKeyDictionary()


def give_time_back() -> None:
    """Give the runs on the running loop the time back for which it, or the interpreter, is held right now."""
    share = _loop_shares.get(asyncio.get_running_loop())
    if share is not None:
        share.give_back()


@contextmanager
def share_interpreter(occupancy: Occupancy) -> Iterator[None]:
    """Give the run, on the running loop, the time back for which others hold the loop or the interpreter."""
    loop = asyncio.get_running_loop()
    share = _loop_shares.setdefault(loop, _LoopShare())
    share.start(loop)
    share.occupancies.add(occupancy)
    _occupancies.add(occupancy)
    token = current_occupancy.set(occupancy)
    try:
        yield
    finally:
        current_occupancy.reset(token)
        share.occupancies.discard(occupancy)
        _occupancies.discard(occupancy)
        occupancy.add_delay = lambda seconds: None  # timers keep the context, and the run must not live on in it
