"""The default executor of a loop that runs agents: what `asyncio.to_thread`, `run_in_executor(None, ...)` and the
loop's name resolution use.

Python's own would be too small, and would outlive the run. It has a handful of threads for the whole loop, on which all
cases that overlap would have to wait for each other, against their deadlines; here each case may have as many as it
would have alone. And its threads are joined when the interpreter ends, so that an agent that was cut off in the middle
of one would keep the process alive; these are left behind.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from evalkit.pipeline.threads import run_in_daemon_thread

THREADS_PER_CASE = min(32, (os.cpu_count() or 1) + 4)  # Python's own number


class LoopPool(ThreadPoolExecutor):
    """Runs as many pieces of work at a time as `cases` loops with one case each would; asyncio wants this very base."""

    def __init__(self, cases: int) -> None:
        super().__init__(1, "evalkit-unused")  # starts a thread only in the `submit` that is replaced here
        self._lock = threading.Lock()
        self._free = cases * THREADS_PER_CASE
        self._queued: deque[partial[None]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As the base does. The case that runs is carried along, as into any thread that an agent starts."""
        from evalkit.functions.carrying import bind

        future: Future[Any] = Future()
        work = partial(_run_future, future, bind(fn), args, kwargs)
        with self._lock:
            if not self._free:
                self._queued.append(work)
                return future
            self._free -= 1
        run_in_daemon_thread(partial(self._run_queue, work))
        return future

    def _run_queue(self, work: partial[None] | None) -> None:
        while work is not None:
            work()
            with self._lock:
                work = self._queued.popleft() if self._queued else None
                self._free += work is None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nobody waits for what still runs. What has not begun is cancelled: the loop is over."""
        with self._lock:
            futures: list[Future[Any]] = [work.args[0] for work in self._queued]
            self._queued.clear()
        for future in futures:
            future.cancel()


def _run_future(future: Future[Any], fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = fn(*args, **kwargs)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
