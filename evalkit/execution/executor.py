"""Runs of cases for a caller that takes their verdicts in order, one by one, while others run ahead.

All cases run on one event loop in the background. With a concurrency of 1 a case starts when it is asked for; with
more, so many of the announced cases run at a time. Sync agents wait for each other either way, unless they are
registered with ``threads=N``; their deadline counts from when they run.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import traceback
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from evalkit.agents.clock import keep_time, now
from evalkit.agents.offline import keep_guard, remove_guard
from evalkit.errors import EvalkitError
from evalkit.functions.context_propagation import go_outside
from evalkit.functions.threads import start_daemon_thread
from evalkit.hooks import SessionPart
from evalkit.lazy import LazyModule, is_loaded
from evalkit.records.case import Case
from evalkit.records.settings import Settings
from evalkit.records.verdict import ERROR, Reason, Verdict
from evalkit.runner.agent_threads import (
    LoopPool,
    get_closing_timeout,
    list_open_agents,
    wait_for_teardown,
)
from evalkit.runner.judge import build_unjudged_verdict
from evalkit.runner.run_case import Watchdog, arun_case

if TYPE_CHECKING:
    from evalkit.agents import model_choice
else:
    model_choice = LazyModule("evalkit.agents.model_choice")

_LONGEST_NAP_S = 0.1  # between looks at whether an agent blocks the loop
_SHORTEST_NAP_S = 0.02  # while one does
_CANCELLED_MESSAGE = (
    "the case was cancelled by an agent on the same event loop, this one's or one that overlaps with it; "
    "asyncio.all_tasks() has the tasks of other cases too. --evalkit-concurrency 1 shows whose it is"
)
_BLOCKED_MESSAGE = (
    "a callback that belongs to no case under way blocked the event loop twice while this case ran; "
    "--evalkit-concurrency 1 shows which case leaves it"
)
_START_GROUP = 8  # runs that are started at once: waking the loop's thread for each would cost more than it gains
_AHEAD_FACTOR = 4  # times the concurrency: so far ahead, so that a slow case does not hold up the others
_CLOSING_S = 2.0
_MOMENT_S = 0.25
_STUCK_LOOKS = 12  # in a row at a loop that does nothing, and whose code is of no run under way
RunCase = Callable[..., Awaitable[Verdict]]


class RunRequest(Struct, frozen=True):
    """A case to run; `agent` in place of the case's own; `context` for its agent, None for the caller's.

    `done` is set when there is a verdict, and the executor waits for it: a caller may bring an event that does more.
    `on_verdict` gets the verdict of a case that ran ahead while the executor waits for another, within a tenth of a
    second: it may be asked for long after.
    """

    case: Case
    agent: object = None
    context: contextvars.Context | None = None
    done: threading.Event | None = None
    on_verdict: Callable[[Verdict], None] | None = None


class ExecutorRequest(Struct, frozen=True, kw_only=True):
    """What an executor must know of its session."""

    root: Path
    settings: Settings
    concurrency: int
    stops_early: bool  # the session may stop at any verdict, so none should wait for another
    is_distributed: bool  # the session has several processes already
    python_path: tuple[str, ...]  # pytest's `pythonpath`
    parts: Mapping[str, SessionPart]  # those that run a passed case again
    secrets: tuple[str, ...]
    secret_keys: tuple[str, ...]


class CaseExecutor(Protocol):
    """What runs the cases of a session, in this process or elsewhere."""

    def make_ready(self, folders: Sequence[Path]) -> str | None:
        """The cases to run are known, and lie in `folders`. Return a line that says where they run; None for here."""

    @property
    def window(self) -> int:
        """The number of requests ahead of the current one that are worth announcing."""

    @property
    def seconds(self) -> float:
        """The duration of the case whose verdict was returned last."""

    @property
    def under_way(self) -> int:
        """The number of cases whose agents run now, as far as it is known."""

    def run(self, request: RunRequest, ahead: Iterable[RunRequest] = ()) -> Verdict:
        """Return the verdict of `request`; cases `ahead` may start meanwhile."""

    def cancel_pending(self) -> None:
        """Stop the cases that were started ahead and will not be asked for."""

    def close(self) -> None:
        """Stop everything."""


class ScheduledRun(Struct, eq=False):
    """A run of a request on a loop."""

    request: RunRequest
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    watch: Watchdog = field(default_factory=Watchdog)
    done: threading.Event = field(default_factory=threading.Event)
    task: asyncio.Task[None] | None = None
    verdict: Verdict | None = None
    error: BaseException | None = None
    seconds: float = 0.0  # from its start to its verdict
    is_handed_on: bool = False  # `on_verdict` has had it
    is_repeated: bool = False  # it was under way on a loop that a callback of no case blocked

    def __post_init__(self) -> None:
        self.done = self.request.done or self.done

    def copy(self) -> ScheduledRun:
        """Return a new run of the same request, for another loop."""
        return ScheduledRun(self.request, self.context, is_repeated=self.is_repeated)

    def finish(self, verdict: Verdict | None, error: BaseException | None = None) -> None:
        """Set the result, unless there is one already: an abandoned agent may come back late."""
        if not self.done.is_set():
            self.verdict, self.error = verdict, error
            self.task = None
            self.done.set()


class Executor:
    """An executor that gives each case a verdict, whatever happens. It is used from one thread."""

    def __init__(self, settings: Settings, concurrency: int = 1, run_case: RunCase | None = None) -> None:
        """`run_case` has the parameters of `arun_case`, the default, and may do more."""
        self._settings = settings
        self._run_case = run_case or arun_case
        self._concurrency = concurrency
        self._loop: BackgroundLoop | None = None
        self._runs: dict[str, ScheduledRun] = {}  # by case id: started, and its verdict not returned yet
        self._last_look = 0.0  # `now` at the last look at the loop
        self._stuck_looks = 0
        self.seconds = 0.0  # of the case whose verdict was returned last, without its wait for its turn

    @property
    def window(self) -> int:
        """The number of requests ahead of the current one that are worth announcing."""
        return self._concurrency * _AHEAD_FACTOR if self._concurrency > 1 else 0

    @property
    def under_way(self) -> int:
        """The number of cases whose agents run now; it may be read from any thread."""
        return sum(run.watch.start_time is not None and not run.done.is_set() for run in list(self._runs.values()))

    def make_ready(self, folders: Sequence[Path]) -> None:
        """There is nothing to make ready."""

    def run(self, request: RunRequest, ahead: Iterable[RunRequest] = ()) -> Verdict:
        """Return the verdict of `request`. Requests `ahead`, in the order of later calls, may start meanwhile.

        KeyboardInterrupt passes through, and so does an exception of a caller's own signal handler; the case is then
        cancelled.
        """
        new = (
            ScheduledRun(item) if item.context is None else ScheduledRun(item, item.context)
            for item in chain((request,), ahead)
            if item.case.id not in self._runs
        )
        # In small groups: the first wait for their models while the caller still loads the others.
        while group := list(islice(new, _START_GROUP)):
            self._start(group)
        try:
            self._wait(request.case.id)
        except KeyboardInterrupt:
            self.cancel_pending()
            raise
        except BaseException:
            self._hand_on_verdicts()
            self._cancel(self._runs[request.case.id])
            raise
        scheduled_run = self._runs.pop(request.case.id)
        self.seconds = scheduled_run.seconds
        error = scheduled_run.error
        if error is None:
            assert scheduled_run.verdict is not None
            return scheduled_run.verdict
        if isinstance(error, CancelledError):
            return build_error_verdict(request.case, "not_measured", _CANCELLED_MESSAGE)
        if not isinstance(error, Exception):
            raise error
        return build_defect_verdict(request.case, error)

    def interrupt(self) -> None:
        """Make `run`, which runs in another thread, raise KeyboardInterrupt soon."""
        if self._loop is not None:
            self._loop.interrupt = KeyboardInterrupt()

    def cancel_pending(self) -> None:
        """Cancel the runs that were started ahead and will not be asked for. Verdicts that are there are handed on."""
        self._hand_on_verdicts()
        for scheduled_run in reversed(list(self._runs.values())):  # the last first: none may start in another's place
            self._cancel(scheduled_run)
        remove_guard(self)

    def close(self) -> None:
        """Stop the loop. The executor starts a new one if it is used again."""
        self.cancel_pending()
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _start(self, runs: list[ScheduledRun]) -> None:
        self._runs.update((run.request.case.id, run) for run in runs)
        keep_guard(self)
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
        # The run is looked up anew each time: it may have been started again on another loop.
        while not (scheduled_run := self._runs[case_id]).done.wait(min(scheduled_run.watch.get_seconds_left(), nap)):
            self._hand_on_verdicts()
            loop = self._loop
            assert loop is not None
            if loop.interrupt is not None:
                raise loop.interrupt
            # Time for which the loop is held is given back to all others (`share_interpreter`): at frequent looks, the
            # loop is found with each agent for the share of the time that it takes.
            at = now()
            since, self._last_look = at - self._last_look, at
            holder = loop.find_blocking_run()
            if holder is not None and not holder.done.is_set():
                nap, self._stuck_looks = _SHORTEST_NAP_S, 0
                holder.watch.add_hold(since)
            else:
                nap, self._stuck_looks = _LONGEST_NAP_S, self._stuck_looks + 1 if loop.is_stuck() else 0
            self._replace_blocked_loop(loop)

    def _hand_on_verdicts(self) -> None:
        """Hand on the verdicts that nobody has asked for yet. The loop's thread does not do it: with the thread that
        loads the following cases it would contend for the interpreter in every case.
        """
        for run in list(self._runs.values()):
            hand_on = run.request.on_verdict
            if run.verdict is not None and hand_on is not None and not run.is_handed_on:
                run.is_handed_on = True
                hand_on(run.verdict)

    def _replace_blocked_loop(self, loop: BackgroundLoop) -> None:
        """Abandon the loop, and an agent that has blocked it for longer than its deadline; start the others on a new
        loop.

        What blocks it may be of no run under way: what an ended one left behind, or a callback without a context. The
        runs that had begun are then repeated; one to which that happens again is an error.
        """
        culprit = loop.find_blocking_run()
        verdict = None if culprit is None else culprit.watch.judge_hung_run()
        if culprit is not None and verdict is not None:
            culprit.finish(verdict)
        elif self._stuck_looks < _STUCK_LOOKS:
            return
        else:
            for run in [run for run in self._runs.values() if run.task is not None and not run.done.is_set()]:
                if run.is_repeated:
                    run.finish(build_error_verdict(run.request.case, "not_measured", _BLOCKED_MESSAGE))
                run.is_repeated = True
        self._stuck_looks = 0
        self._start([run.copy() for run in self._abandon_loop(loop)])

    def _abandon_loop(self, loop: BackgroundLoop) -> list[ScheduledRun]:
        """Leave `loop` to what blocks it. Return the runs without a verdict: should it ever go on, they are cancelled,
        since their cases are run elsewhere."""
        self._loop = None
        runs = [run for run in self._runs.values() if not run.done.is_set()]
        for run in runs:
            run.done = threading.Event()  # that of the request belongs to the new run
            loop.cancel(run)
        return runs

    def move_error_to_blocker(self, request: RunRequest, error: BaseException) -> bool:
        """Give `error`, a timeout of the wait for `request`, to the agent that blocks the loop, if there is one.

        `run` raises it when it is asked for that agent's case; the others are to be announced once more. Return whether
        the error is another case's.
        """
        culprit = None if self._loop is None else self._loop.find_blocking_run()
        if self._loop is None or culprit is None or not self._loop.is_stuck():
            return False
        culprit.finish(None, error)
        self._abandon_loop(self._loop)
        self._runs = {case_id: run for case_id, run in self._runs.items() if run.done.is_set()}
        return culprit.request.case.id != request.case.id

    def _cancel(self, scheduled_run: ScheduledRun) -> None:
        self._runs.pop(scheduled_run.request.case.id, None)
        if self._loop is not None and not scheduled_run.done.is_set():
            self._loop.cancel(scheduled_run)


def build_defect_verdict(case: Case, error: BaseException) -> Verdict:
    """Return the verdict of a case on which evalkit itself failed: not measured, with the place of the defect.

    An EvalkitError is no defect but wrong use, and explains itself.
    """
    if isinstance(error, EvalkitError):
        return build_error_verdict(case, error.code, str(error))
    try:
        place = "".join(traceback.format_exception(error)[-3:]).strip()
    except Exception:  # an exception of the agent's stands beside it, and can't be read
        place = "".join(traceback.format_tb(error.__traceback__)[-3:]).strip()
    return build_error_verdict(case, "not_measured", f"evalkit itself failed on this case; please report it:\n{place}")


def build_error_verdict(case: Case, code: str, message: str) -> Verdict:
    """Return the verdict of a case that could not be measured."""
    return build_unjudged_verdict(case, ERROR, Reason(code=code, message=message))


_owner: contextvars.ContextVar[ScheduledRun | None] = contextvars.ContextVar("evalkit_scheduled_run", default=None)


def is_in_case() -> bool:
    """Return whether the code that calls this is an agent's, which an executor runs in this process."""
    return _owner.get() is not None


RunWork = Callable[[ScheduledRun], Coroutine[object, object, None]]


class BackgroundLoop:
    """An event loop in a thread that runs cases. `find_blocking_run` finds an agent that blocks it; the loop is then
    abandoned.
    """

    def __init__(self, concurrency: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(LoopPool(concurrency))
        keep_time(self._loop)
        self._concurrency = concurrency
        self._queue: dict[ScheduledRun, RunWork] = {}
        self._running: set[ScheduledRun] = set()
        self.interrupt: BaseException | None = None  # a KeyboardInterrupt that a task of an agent raised
        self._is_over = False
        self._thread = start_daemon_thread(self._run, "evalkit-cases")

    def _run(self) -> None:
        go_outside()
        asyncio.set_event_loop(self._loop)
        while not self._is_over:
            try:
                self._loop.run_forever()  # comes back too where an agent stops its loop; the cases on it go on
            except SystemExit:  # asyncio lets it through from a task of the agent; whoever awaits that task sees it
                continue
            except KeyboardInterrupt as error:
                self.interrupt = error.with_traceback(None)  # as in `run_case`
        with suppress(RuntimeError):
            self._loop.close()

    def start(self, runs: Sequence[ScheduledRun], work: RunWork) -> None:
        """Start ``work(run)`` for each run, in its context. One call for many: waking the loop's thread costs."""

        def begin() -> None:
            self._queue.update((scheduled_run, work) for scheduled_run in runs)
            self._fill_slots()

        self._loop.call_soon_threadsafe(begin)

    def _fill_slots(self) -> None:
        while self._queue and len(self._running) < self._concurrency:
            scheduled_run = next(iter(self._queue))
            work = self._queue.pop(scheduled_run)
            context = scheduled_run.context.copy()
            context.run(_owner.set, scheduled_run)
            self._running.add(scheduled_run)
            scheduled_run.task = self._loop.create_task(work(scheduled_run), context=context)
            scheduled_run.task.add_done_callback(partial(self._release_slot, scheduled_run))

    def _release_slot(self, scheduled_run: ScheduledRun, task: asyncio.Task[None]) -> None:
        self._running.discard(scheduled_run)
        scheduled_run.finish(None, CancelledError())  # an agent may have cancelled it before its first step
        self._fill_slots()

    def find_blocking_run(self) -> ScheduledRun | None:
        """Return the run whose code the loop is executing right now, in a task or a callback; None while it waits."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        while frame is not None and frame.f_code is not asyncio.Handle._run.__code__:
            frame = frame.f_back
        handle = None if frame is None else frame.f_locals.get("self")
        context = getattr(handle, "_context", None)
        return context.get(_owner) if isinstance(context, contextvars.Context) else None

    def is_stuck(self) -> bool:
        """Return whether the loop does nothing else within a moment."""
        answered = threading.Event()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(answered.set)
        return not answered.wait(_MOMENT_S)

    def cancel(self, scheduled_run: ScheduledRun) -> None:
        """Cancel a run, also one that the loop has been told to start and has not yet come to."""

        def cancel_task() -> None:
            if self._queue.pop(scheduled_run, None) is None and scheduled_run.task is not None:
                scheduled_run.task.cancel()

        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(cancel_task)

    def close(self) -> None:
        """Close what live providers hold for this loop, and stop it. A stuck loop is abandoned.

        So is one with a task that swallows its cancellation: Python would resume the coroutine once more to destroy it,
        and one that swallows everything would never let the process end.
        """
        is_closed = threading.Event()

        def stop(closing: asyncio.Task[bool]) -> None:
            if not closing.cancelled() and (closing.exception() is not None or closing.result()):
                self._is_over = True
                self._loop.stop()
            is_closed.set()

        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._close_all()).add_done_callback(stop))
            is_closed.wait(timeout=_CLOSING_S + get_closing_timeout())
        if self._is_over:
            self._thread.join(timeout=_CLOSING_S)

    async def _close_all(self) -> bool:
        """Cancel cases first, which cancel their agents, then all other tasks. Return whether all of them have ended.

        Tasks that are ending already are left alone: a second cancellation would cut off their clean-up.
        """
        mine = {asyncio.current_task()}
        await _cancel_tasks({run.task for run in self._running} - mine)
        await _cancel_tasks(asyncio.all_tasks() - mine - list_open_agents())
        await wait_for_teardown()
        if is_loaded(model_choice):
            await model_choice.aclose_shared()
        await self._loop.shutdown_asyncgens()
        return not asyncio.all_tasks() - mine


async def _cancel_tasks(tasks: Set[asyncio.Task[object] | None]) -> None:
    running = [task for task in tasks if task is not None]
    for task in running:
        if not task.cancelling():
            task.cancel()
    if running:
        await asyncio.wait(running, timeout=_CLOSING_S / 2)
