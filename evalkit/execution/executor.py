"""Running cases for a caller that takes their verdicts in order, one by one, while others run ahead.

All cases run on one event loop in the background. With a concurrency of 1 a case starts when it is asked for; with
more, so many run at a time, of those that were announced. Sync agents wait for each other either way, unless they are
registered with ``threads=N``; their deadline counts from when they run.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence, Set
from contextlib import suppress
from itertools import chain, islice
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct, field

from evalkit.agents.clock import keep_time, now
from evalkit.agents.model_choice import aclose_shared
from evalkit.errors import EvalkitError
from evalkit.model.case import Case
from evalkit.model.settings import Settings
from evalkit.model.verdict import ERROR, Reason, Verdict
from evalkit.runner.agent_threads import LoopPool, get_closing_timeout, list_open_agents, wait_for_teardown
from evalkit.runner.judge import build_unjudged_verdict
from evalkit.runner.run_case import Watchdog, arun_case

# A case on its way: asked for, perhaps started ahead of its turn, and in the end a verdict.


class RunRequest(Struct, frozen=True):
    """A case to run; `agent` in place of the case's own; `context` that its agent should see, None for the caller's.

    `done` is set when there is a verdict, and the executor waits for it: a caller may bring one that does more.
    """

    case: Case
    agent: Any = None
    context: contextvars.Context | None = None
    done: threading.Event | None = None


class ScheduledRun(Struct, eq=False):
    """One run of a job on a loop."""

    request: RunRequest
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    watch: Watchdog = field(default_factory=Watchdog)
    done: threading.Event = field(default_factory=threading.Event)
    task: asyncio.Task[None] | None = None
    verdict: Verdict | None = None
    error: BaseException | None = None
    seconds: float = 0.0  # from its start to its verdict

    def __post_init__(self) -> None:
        self.done = self.request.done or self.done

    def copy(self) -> ScheduledRun:
        """The same job anew, for another loop."""
        return ScheduledRun(self.request, self.context)

    def finish(self, verdict: Verdict | None, error: BaseException | None = None) -> None:
        """Settle it, unless it is settled already: an agent that was left behind may come back late."""
        if not self.done.is_set():
            self.verdict, self.error = verdict, error
            self.task = None  # the loop knows whose its tasks are for as long as they live: not for ever
            self.done.set()


_LONGEST_NAP_S = 0.1  # between looks at whether an agent blocks the loop
_SHORTEST_NAP_S = 0.02  # while one does
_CANCELLED_MESSAGE = (
    "the case was cancelled by an agent on the same event loop, this one's or one that overlaps with it; "
    "asyncio.all_tasks() has the tasks of other cases too. --evalkit-concurrency 1 shows whose it is"
)
RunCase = Callable[..., Awaitable[Verdict]]
_START_GROUP = 8  # flights that are started at once: waking the loop's thread for each would cost more than it gains
_AHEAD_FACTOR = 4  # times the concurrency: so far ahead, so that a slow case does not hold up the others


class Executor:
    """Gives each case a verdict, whatever happens. Used from one thread."""

    def __init__(self, settings: Settings, concurrency: int = 1, run_case: RunCase | None = None) -> None:
        """`run` is what a case goes through, `arun_case` by default: it has its parameters, and may do more."""
        self._settings = settings
        self._run_case = run_case or arun_case
        self._concurrency = concurrency
        self._loop: BackgroundLoop | None = None
        self._runs: dict[str, ScheduledRun] = {}  # by case id: started and not taken yet
        self._last_look = 0.0  # `now` at the last look at the loop
        self.seconds = 0.0  # how long the case took whose verdict was given last, without its wait for its turn

    @property
    def window(self) -> int:
        """How many jobs ahead of the one that is asked for are worth announcing."""
        return self._concurrency * _AHEAD_FACTOR if self._concurrency > 1 else 0

    def run(self, request: RunRequest, ahead: Iterable[RunRequest] = ()) -> Verdict:
        """The verdict of `job`. Jobs `ahead`, in the order in which they will be asked for, may start meanwhile.

        KeyboardInterrupt passes through, and so does what a caller's own signal handler raises; the case is then
        cancelled.
        """
        self._launch(chain((request,), ahead))
        try:
            self._wait(request.case.id)
        except BaseException:
            self._cancel(self._runs[request.case.id])
            raise
        scheduled_run = self._runs.pop(request.case.id)
        self.seconds = scheduled_run.seconds
        if scheduled_run.error is not None:
            if isinstance(scheduled_run.error, CancelledError):
                return build_error_verdict(request.case, "not_measured", _CANCELLED_MESSAGE)
            if not isinstance(scheduled_run.error, Exception):
                raise scheduled_run.error
            return build_defect_verdict(request.case, scheduled_run.error)
        assert scheduled_run.verdict is not None
        return scheduled_run.verdict

    def interrupt(self) -> None:
        """From another thread: let `run` end with a KeyboardInterrupt, soon."""
        if self._loop is not None:
            self._loop.interrupt = KeyboardInterrupt()

    def cancel_pending(self) -> None:
        """Stop what was started ahead and will not be asked for."""
        for scheduled_run in list(self._runs.values()):
            self._cancel(scheduled_run)

    def close(self) -> None:
        """End the loop. The executor starts a new one if it is used again."""
        self.cancel_pending()
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _launch(self, requests: Iterable[RunRequest]) -> None:
        """A handful at a time: the first wait for their models while the caller still loads the others."""
        new = (
            ScheduledRun(job) if job.context is None else ScheduledRun(job, job.context)
            for job in requests
            if self._is_new(job)
        )
        while group := list(islice(new, _START_GROUP)):
            self._start(group)

    def _is_new(self, request: RunRequest) -> bool:
        return request.case.id not in self._runs

    def _start(self, runs: list[ScheduledRun]) -> None:
        self._runs.update((flight.request.case.id, flight) for flight in runs)
        if self._loop is None:
            self._loop = BackgroundLoop(self._concurrency)
        self._loop.start(runs, self._run_scheduled)

    async def _run_scheduled(self, scheduled_run: ScheduledRun) -> None:
        verdict, error = None, None
        try:
            verdict = await self._run_case(
                scheduled_run.request.case, scheduled_run.request.agent, self._settings, watch=scheduled_run.watch
            )
        except BaseException as raised:
            error = raised
        began = scheduled_run.watch.start_time
        scheduled_run.seconds = 0.0 if began is None else now() - began
        scheduled_run.finish(verdict, error)

    def _wait(self, case_id: str) -> None:
        nap = _SHORTEST_NAP_S
        self._last_look = now()
        # The flight is looked up anew each time: it may have been started again on another loop.
        while not (scheduled_run := self._runs[case_id]).done.wait(min(scheduled_run.watch.get_seconds_left(), nap)):
            loop = self._loop
            assert loop is not None
            if loop.interrupt is not None:
                raise loop.interrupt
            nap = _SHORTEST_NAP_S if self._is_blocked(loop) else _LONGEST_NAP_S
            self._replace_blocked_loop(loop)

    def _is_blocked(self, loop: BackgroundLoop) -> bool:
        """Whether an agent holds the loop just now. The others' time stands still, as if they ran alone: looked at
        often enough, the loop is found with each agent for the share of the time that it takes."""
        at = now()
        since, self._last_look = at - self._last_look, at
        holder = loop.find_blocking_run()
        if holder is not None:
            for flight in list(self._runs.values()):
                if flight is not holder:
                    flight.watch.add_delay(since)
        return holder is not None

    def _replace_blocked_loop(self, loop: BackgroundLoop) -> None:
        """If an agent has blocked the loop for longer than its deadline, go on without both: the others start again."""
        culprit = loop.find_blocking_run()
        verdict = None if culprit is None else culprit.watch.judge_hung_run()
        if culprit is not None and verdict is not None:
            culprit.finish(verdict)
            self._loop = None
            self._start([flight.copy() for flight in self._runs.values() if not flight.done.is_set()])

    def move_error_to_blocker(self, request: RunRequest, error: BaseException) -> bool:
        """`error` has ended the wait for the verdict of `job`, because it took too long. If another agent blocks the
        loop, it is that one's error, which `run` raises when it is asked for its case; the others are to be announced
        once more. Gives whether it is so."""
        culprit = None if self._loop is None else self._loop.find_blocking_run()
        if self._loop is None or culprit is None or not self._loop.is_stuck():
            return False
        culprit.finish(None, error)
        self._loop = None
        self._runs = {case_id: flight for case_id, flight in self._runs.items() if flight.done.is_set()}
        return culprit.request.case.id != request.case.id

    def _cancel(self, scheduled_run: ScheduledRun) -> None:
        self._runs.pop(scheduled_run.request.case.id, None)
        if self._loop is not None and not scheduled_run.done.is_set():
            self._loop.cancel(scheduled_run)


def build_defect_verdict(case: Case, error: BaseException) -> Verdict:
    """The verdict of a case on which evalkit itself failed: not measured, and told with the place of the defect.

    What was used wrongly is no defect: an EvalkitError says itself what to do.
    """
    if isinstance(error, EvalkitError):
        return build_error_verdict(case, error.code, str(error))
    import traceback

    place = "".join(traceback.format_exception(error)[-3:]).strip()
    return build_error_verdict(case, "not_measured", f"evalkit itself failed on this case; please report it:\n{place}")


def build_error_verdict(case: Case, code: str, message: str) -> Verdict:
    """Return the verdict of a case that could not be measured, through no fault of its own."""
    return build_unjudged_verdict(case, ERROR, Reason(code=code, message=message))


# One event loop in a daemon thread, on which cases overlap, and which can be told from outside that it is stuck.

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
