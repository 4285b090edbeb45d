"""Threads for agents' code: daemon threads that are used again, the thread that an open agent keeps, a loop's executor.

A pool of the standard library would join its threads when the interpreter ends, and a hung agent would keep the
process alive. These threads are not joined.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any
from warnings import catch_warnings, simplefilter
from weakref import WeakSet

from msgspec import Struct

from evalkit.agents.clock import current_occupancy
from evalkit.functions.context_propagation import bind
from evalkit.functions.threads import AGENT_THREADS, start_daemon_thread
from evalkit.locks import create_lock

_numbers = count(1)
_idle: list[_Worker] = []


class _Worker:
    """A thread that takes one piece of work at a time, and is listed as idle in between."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        # In no case's context: it outlives the first one that it works for.
        Context().run(start_daemon_thread, self._run, f"{AGENT_THREADS}{next(_numbers)}")

    def execute(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            finally:
                del work  # what an agent holds must not live on until the next one comes
                _idle.append(self)


def run_in_daemon_thread(work: Callable[[], None]) -> None:
    """Run `work` in a daemon thread. It must not raise."""
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.execute(work)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a forked child has none of these threads


# An agent usually runs in any thread, in a fresh copy of the caller's context. An open agent stays in one thread and
# one context from its set-up to its tear-down, and a caller may lend a thread of its own.

Work = Callable[[], None]
TEARDOWN_S = 10.0  # how long a tear-down may take

_open: WeakSet[asyncio.Task[None]] = WeakSet()


class AgentThread(Struct, frozen=True):
    """The thread that runs an agent's code: `submit` gives it work, which must not raise. `context` None: each call
    has a copy of the caller's.

    `cut_off` ends the work whose time is over, if that can be done. `is_from_outside` tells an exception that the
    thread's owner has raised in the agent's code from those of the agent.
    """

    submit: Callable[[Work], None] = run_in_daemon_thread
    context: Context | None = None
    is_async: bool = False  # the context belongs to tasks of the event loop, which may enter it at any time
    cut_off: Callable[[], None] = lambda: None
    is_from_outside: Callable[[BaseException], bool] = lambda error: False

    def get_thread_context(self) -> Context:
        """Return the context for work in a thread."""
        if self.context is None:
            return copy_context()
        return self.context.copy() if self.is_async else self.context


current_agent_thread: ContextVar[AgentThread] = ContextVar("evalkit_agent_thread", default=AgentThread())  # noqa: B039  # frozen


_local = threading.local()
_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()  # of all threads


@atexit.register
def _close_loops() -> None:
    for loop in list(_loops):
        with suppress(RuntimeError):  # an agent has left it running
            loop.close()


@contextmanager
def offer_event_loop() -> Iterator[None]:
    """Let this thread have an event loop for ``asyncio.get_event_loop()``, as the main thread of a script has one.

    A thread keeps its loop from one agent to the next, as a script does from one call to the next. The main thread's
    own is used, if there is one that is open.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and _has_open_loop():
        yield
        return
    loop: asyncio.AbstractEventLoop | None = getattr(_local, "loop", None)
    if loop is None or loop.is_closed() or loop.is_running():
        loop = _local.loop = asyncio.new_event_loop()
        _loops.add(loop)
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        if not is_main:
            asyncio.set_event_loop(None)


def _has_open_loop() -> bool:
    with catch_warnings():
        simplefilter("ignore", DeprecationWarning)  # that there is none, and one is made
        try:
            loop = asyncio.get_event_loop()
        except RuntimeError:
            return False
    _local.main_loop = loop  # one that was made belongs to nobody else: it is kept, and closed at the end
    _loops.add(loop)
    return not loop.is_closed()


class DedicatedThread:
    """A daemon thread that does one piece of work after the other, until it is released."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        run_in_daemon_thread(self._run)

    def submit(self, work: Work) -> None:
        self._work.put(work)

    def release(self) -> None:
        """End the thread once its work is done."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def register_open_agent(task: asyncio.Task[None]) -> None:
    """Register the task of an open agent, which ends with the tear-down and is not to be cancelled before."""
    _open.add(task)


def list_open_agents() -> set[asyncio.Task[None]]:
    """Return the tasks of agents that are open, on any loop."""
    return {task for task in list(_open) if not task.done()}


def get_closing_timeout() -> float:
    """Return for how long to wait for a loop that is to be closed."""
    return TEARDOWN_S if list_open_agents() else 0.0


async def wait_for_teardown() -> None:
    """Wait until the agents that are open on this loop are torn down."""
    loop = asyncio.get_running_loop()
    here = {task for task in list_open_agents() if task.get_loop() is loop}
    if here:
        await asyncio.wait(here, timeout=TEARDOWN_S)


# The default executor of a loop that runs agents: for `asyncio.to_thread`, `run_in_executor(None, ...)` and name
# resolution. Python's own has a handful of threads, on which overlapping cases would wait for each other, against their
# deadlines; and its threads are joined when the interpreter ends.

THREADS_PER_CASE = min(32, (os.cpu_count() or 1) + 4)  # Python's own number


class LoopPool(ThreadPoolExecutor):
    """An executor that runs as much work at a time as `cases` loops with one case each would; asyncio needs this
    base."""

    def __init__(self, cases: int) -> None:
        super().__init__(1, "evalkit-unused")  # starts a thread only in the `submit` that is replaced here
        self._lock = create_lock()
        self._free = cases * THREADS_PER_CASE
        self._queued: deque[tuple[Future[Any], Work]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn` like the base class does, in the context of the case, which threads of agents also have."""
        future: Future[Any] = Future()
        function = bind(fn)
        occupancy = current_occupancy.get()

        def run_function() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                with nullcontext() if occupancy is None else occupancy.measure_thread():
                    result = function(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            if not self._free:
                self._queued.append((future, run_function))
                return future
            self._free -= 1
        run_in_daemon_thread(partial(self._run_queue, run_function))
        return future

    def _run_queue(self, work: Work | None) -> None:
        while work is not None:
            work()
            with self._lock:
                work = self._queued.popleft()[1] if self._queued else None
                self._free += work is None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what has not begun. Running work is not waited for: the loop is over."""
        with self._lock:
            futures = [future for future, _ in self._queued]
            self._queued.clear()
        for future in futures:
            future.cancel()
