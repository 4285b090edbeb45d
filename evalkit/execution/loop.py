"""One event loop in a daemon thread, on which cases overlap, and which can be told from outside that it is stuck."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Sequence, Set
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from evalkit.agents.clock import keep_time
from evalkit.agents.models import aclose_shared
from evalkit.execution.flight import ScheduledRun
from evalkit.pipeline.hosting import get_closing_timeout, list_open_agents, wait_for_teardown
from evalkit.pipeline.pool import LoopPool

_owner: contextvars.ContextVar[ScheduledRun | None] = contextvars.ContextVar("evalkit_flight", default=None)
_CLOSING_S = 2.0
_MOMENT_S = 0.25

RunWork = Callable[[ScheduledRun], Coroutine[Any, Any, None]]


class BackgroundLoop:
    """Runs flights. An agent that blocks it is found by `blocked_by`; the loop is then left behind for a new one."""

    def __init__(self, concurrency: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(LoopPool(concurrency))
        keep_time(self._loop)
        self._slots = asyncio.Semaphore(concurrency)  # first come, first served
        self._loop.set_task_factory(self._create_task)  # type: ignore[arg-type]  # a coroutine is all that asyncio gives
        self._owners: WeakKeyDictionary[asyncio.Task[Any], ScheduledRun] = WeakKeyDictionary()
        self.interrupt: BaseException | None = None  # a KeyboardInterrupt that a task of an agent raised
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="evalkit-cases", daemon=True)
        self._thread.start()

    def _create_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **options)
        context = options.get("context")
        scheduled_run = _owner.get() if context is None else context.get(_owner, None)
        if scheduled_run is not None:
            self._owners[task] = scheduled_run
        return task

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._is_over:
            try:
                self._loop.run_forever()  # comes back too where an agent stops its loop; the cases on it go on
            except SystemExit:  # asyncio lets it through from a task of the agent; whoever awaits that task sees it
                continue
            except KeyboardInterrupt as error:
                self.interrupt = error
        with suppress(RuntimeError):
            self._loop.close()

    def start(self, runs: Sequence[ScheduledRun], work: RunWork) -> None:
        """Start ``work(flight)`` for each flight, in its context. One call for many: waking the loop's thread costs."""
        self._loop.call_soon_threadsafe(self._begin, runs, work)

    def _begin(self, runs: Sequence[ScheduledRun], work: RunWork) -> None:
        for scheduled_run in runs:
            context = scheduled_run.context.copy()
            context.run(_owner.set, scheduled_run)
            scheduled_run.task = self._loop.create_task(self._run_in_slot(scheduled_run, work), context=context)

    async def _run_in_slot(self, scheduled_run: ScheduledRun, work: RunWork) -> None:
        try:
            async with self._slots:
                await work(scheduled_run)
        finally:
            scheduled_run.task = None  # `_owners` would keep both for as long as there is the loop

    def find_blocking_run(self) -> ScheduledRun | None:
        """The flight whose code the loop is executing right now; None while it waits."""
        task = asyncio.current_task(self._loop)
        return None if task is None else self._owners.get(task)

    def is_stuck(self) -> bool:
        """Whether the loop comes to nothing else within a moment."""
        answered = threading.Event()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(answered.set)
        return not answered.wait(_MOMENT_S)

    def cancel(self, scheduled_run: ScheduledRun) -> None:
        """Let a flight end that nobody waits for any more."""
        task = scheduled_run.task
        if task is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        """Close what live providers hold for this loop, and end it. A loop that is stuck is left behind."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join(timeout=_CLOSING_S + get_closing_timeout())

    def _end(self) -> None:
        closing = self._loop.create_task(self._close_all())
        closing.add_done_callback(lambda _: self._stop())

    def _stop(self) -> None:
        self._is_over = True
        self._loop.stop()

    async def _close_all(self) -> None:
        """Cases first, which cancel their agents, then what else there is.

        What is ending already is left to its end: a second cancellation would cut off its clean-up.
        """
        mine = {asyncio.current_task()}
        cases = {task for task, flight in list(self._owners.items()) if flight.task is task and not task.done()}
        await _cancel_tasks(cases - mine)
        await _cancel_tasks(asyncio.all_tasks() - mine - list_open_agents())
        await wait_for_teardown()
        await aclose_shared()
        await self._loop.shutdown_asyncgens()


async def _cancel_tasks(tasks: Set[asyncio.Task[Any] | None]) -> None:
    running = [task for task in tasks if task is not None]
    for task in running:
        if not task.cancelling():
            task.cancel()
    if running:
        await asyncio.wait(running, timeout=_CLOSING_S / 2)
