"""Calls of an agent: one at a time, sync or async, within a deadline, whatever it raises or returns."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from contextvars import Context
from functools import partial
from traceback import FrameSummary, StackSummary
from types import FrameType, coroutine
from weakref import WeakKeyDictionary

from msgspec import Struct

from evalkit.agents.clock import Occupancy, current_occupancy, give_time_back, now
from evalkit.agents.contract import AgentUnderTest
from evalkit.agents.task import Task
from evalkit.locks import create_lock
from evalkit.runner.agent_threads import Work, current_agent_thread, offer_event_loop

# How long a cancelled agent may take to clean up before it is abandoned.
GRACE_S = 0.5
_FORKED_STATUS = 70  # of a forked child that came back from the agent: EX_SOFTWARE

_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, asyncio.Semaphore]] = WeakKeyDictionary()


class CallOutcome(Struct, frozen=True):
    """Outcome of a call: a value, an exception, or nothing within the deadline.

    `abandoned`: the agent is still running somewhere, since a thread can't be killed. `stuck_in` are the calls that it
    was in when its time was over, outermost first; `hung_request` says of the model's service that it did not answer.
    """

    value: object = None
    error: BaseException | None = None
    timed_out: bool = False
    abandoned: bool = False
    stuck_in: Sequence[FrameSummary] = ()
    hung_request: str = ""


async def call_agent(
    agent: AgentUnderTest, task: Task, timeout_s: float, *, on_late_end: Callable[[], None] = lambda: None
) -> CallOutcome:
    """Run ``agent.run(task)`` for at most `timeout_s` seconds.

    `on_late_end` is called, from any thread, when an abandoned agent ends after all. Raises CancelledError when the
    caller itself is cancelled, and the agent with it; and what the owner of the agent's thread has raised in it.
    """
    if agent.is_async:
        return await _run_within(partial(agent.run, task), task, timeout_s, agent, on_late_end)
    # A sync agent runs in its thread, with this context's variables.
    agent_thread = current_agent_thread.get()
    context = agent_thread.get_thread_context()
    late = _BothEvents(on_late_end)
    threads: list[int] = []
    occupancy = current_occupancy.get()

    def run_agent() -> object:
        threads.append(threading.get_ident())
        try:
            with nullcontext() if occupancy is None else occupancy.measure_thread(), offer_event_loop():
                return context.run(agent.run, task)
        finally:
            late.record()

    until = _read_clock(task) + timeout_s
    finished = start_in_thread(agent_thread.submit, run_agent)
    if not await _wait_until_done(finished, task, until):
        stuck_in = [call for ident in threads for call in list_thread_calls(ident)]
        hung_request = task.describe_hung_request(timeout_s)
        late.record()
        agent_thread.cut_off()
        return CallOutcome(timed_out=True, abandoned=True, stuck_in=stuck_in, hung_request=hung_request)
    outcome = finished.result()
    if outcome.error is not None and agent_thread.is_from_outside(outcome.error):
        raise outcome.error
    if outcome.error is None and inspect.isawaitable(outcome.value):
        return await _run_within(lambda: outcome.value, task, timeout_s, agent, on_late_end)
    return outcome


def get_slot(agent: AgentUnderTest) -> AbstractAsyncContextManager[object]:
    """Return the right to run. At most `threads` runs of a sync agent overlap on a loop, any number of async ones.

    A run that was abandoned gives its slot back.
    """
    if agent.is_async:
        return nullcontext()
    slots = _slots.setdefault(asyncio.get_running_loop(), {})
    try:
        return slots.setdefault(agent.run, asyncio.Semaphore(agent.threads))
    except TypeError:  # an unhashable callable
        return slots.setdefault(id(agent.run), asyncio.Semaphore(agent.threads))


async def _capture_outcome(start: Callable[[], object]) -> CallOutcome:
    """Await what `start` returns. Exceptions become values: asyncio would let SystemExit end the loop."""
    owner = os.getpid()
    try:
        value, occupancy = start(), current_occupancy.get()
        if occupancy is not None and inspect.iscoroutine(value):
            return CallOutcome(await occupancy.measure_steps(value))
        return CallOutcome(await value if inspect.isawaitable(value) else value)
    except BaseException as error:
        current = asyncio.current_task()
        is_cancelled = issubclass(type(error), asyncio.CancelledError)  # isinstance asks the agent's exception
        if is_cancelled and current is not None and current.cancelling() > 0:
            raise
        return CallOutcome(error=error)
    finally:
        _end_forked_child(owner)


async def _run_within(
    start: Callable[[], object], task: Task, timeout_s: float, agent: AgentUnderTest, on_late_end: Callable[[], None]
) -> CallOutcome:
    running: asyncio.Task[CallOutcome] = asyncio.create_task(
        _capture_outcome(start), context=current_agent_thread.get().context
    )
    grace_s = max(GRACE_S, agent.grace_s)
    until = _read_clock(task) + timeout_s
    try:
        await _yield_to_others()  # an agent that waits for nothing is done then: there is nothing to be timed
        if running.done() or await _wait_until_done(running, task, until):
            try:
                return running.result()
            except asyncio.CancelledError as error:  # the agent, or a library, cancelled its own task
                return CallOutcome(error=error)
        stuck_in, hung_request = list_task_calls(running), task.describe_hung_request(timeout_s)
        task.is_out_of_time = True
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=grace_s)
        if not done:
            running.add_done_callback(lambda _: on_late_end())
        elif not running.cancelled():
            running.result()  # collects what it ended with, so that asyncio does not complain of it
        return CallOutcome(timed_out=True, abandoned=not done, stuck_in=stuck_in, hung_request=hung_request)
    except asyncio.CancelledError:
        running.cancel()
        await asyncio.wait({running}, timeout=grace_s)
        raise


def start_in_thread(submit: Callable[[Work], None], function: Callable[[], object]) -> asyncio.Future[CallOutcome]:
    """Start `function` in the thread that `submit` gives work to. Return a future of its outcome, for this loop."""
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[CallOutcome] = loop.create_future()

    def set_outcome(outcome: CallOutcome) -> None:
        if not finished.done():
            finished.set_result(outcome)

    def run_function() -> None:
        owner = os.getpid()
        try:
            outcome = CallOutcome(function())
        except BaseException as error:
            outcome = CallOutcome(error=error)
        _end_forked_child(owner)
        with suppress(RuntimeError):  # the loop is closed: this run was abandoned long ago
            loop.call_soon_threadsafe(set_outcome, outcome)

    submit(run_function)
    return finished


def _end_forked_child(owner: int) -> None:
    """End this process if it is a child that the agent has forked, and that came back from its code: it would wait for
    ever, or go on with the cases of its parent."""
    if os.getpid() != owner:
        os._exit(_FORKED_STATUS)


@coroutine
def _yield_to_others() -> Generator[None]:
    """Give every ready task one step, like `asyncio.sleep(0)`, which tests of agents may replace."""
    yield


def _read_clock(task: Task) -> float:
    """Return the time of a clock, in seconds, that stands still while the case waits for its turn at the model."""
    return now() - task.queueing_time.seconds


async def _wait_until_done(future: asyncio.Future[CallOutcome], task: Task, until: float) -> bool:
    """Wait until `future` is done or `_read_clock` is `until`. Return whether it is done.

    Not by `asyncio.wait`: its timer would keep the case's context, and so the run, until the loop next comes to it.
    """
    loop = asyncio.get_running_loop()
    while not future.done():
        waiter: asyncio.Future[None] = loop.create_future()

        def release(*_: object, waiter: asyncio.Future[None] = waiter) -> None:
            if not waiter.done():
                waiter.set_result(None)

        remaining = max(until - _read_clock(task), 0.02 if task.queueing_time.is_running else 0.0)
        timer = loop.call_later(remaining, release, context=Context())
        future.add_done_callback(release, context=Context())
        try:
            await waiter
        finally:
            timer.cancel()
            future.remove_done_callback(release)
        give_time_back()
        if until <= _read_clock(task):
            break
    return future.done()


class _BothEvents:
    """Callback `then` that runs once both have happened: the agent was abandoned, and it ended."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._awaited = 2
        self._lock = create_lock()

    def record(self) -> None:
        with self._lock:
            self._awaited -= 1
        if not self._awaited:
            self._then()


# The calls that an agent hangs in, outermost first.


def list_task_calls(task: asyncio.Task[object]) -> list[FrameSummary]:
    """Return the coroutines that a suspended task is in: each awaits the next, as far as a task or a future."""
    frames: list[FrameType] = []
    waiting: object = task.get_coro()
    while (kind := next((kind for kind in ("cr", "ag", "gi") if hasattr(waiting, f"{kind}_frame")), None)) is not None:
        frame = getattr(waiting, f"{kind}_frame")
        if frame is not None:
            frames.append(frame)
        if frame is not None and frame.f_code is Occupancy.measure_steps.__code__:
            waiting = frame.f_locals["steps"]
        else:
            waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return _extract_summaries(frames)


def list_thread_calls(ident: int) -> list[FrameSummary]:
    """Return the functions that a running thread is in; [] if it has ended."""
    frame = sys._current_frames().get(ident)
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return _extract_summaries(reversed(frames))


def _extract_summaries(frames: Iterable[FrameType]) -> list[FrameSummary]:
    return list(StackSummary.extract(((frame, frame.f_lineno) for frame in frames), lookup_lines=False))
