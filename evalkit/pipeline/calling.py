"""Calling one agent once: sync or async, within its deadline, whatever it raises or returns."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from types import coroutine
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from evalkit.agents.clock import now
from evalkit.agents.resolution import AgentUnderTest
from evalkit.agents.task import Task
from evalkit.pipeline.hosting import host

if TYPE_CHECKING:
    from traceback import FrameSummary

# How long a cancelled agent may take to clean up before it is left behind.
GRACE_S = 0.5

_abandoned: list[str] = []
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, asyncio.Semaphore]] = WeakKeyDictionary()


class Outcome(Struct, frozen=True):
    """What came of a call: a value, an exception, or nothing within the deadline.

    `abandoned` tells that the agent is still running somewhere: a thread can't be killed. `stuck_in` are the calls that
    it was in when its time was over, outermost first.
    """

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    abandoned: bool = False
    stuck_in: Sequence[FrameSummary] = ()


async def call_agent(
    agent: AgentUnderTest, task: Task, timeout_s: float, *, ended_late: Callable[[], None] = lambda: None
) -> Outcome:
    """Run ``agent.run(task)`` for at most `timeout_s` seconds.

    `ended_late` is called, from any thread, when an abandoned agent ends after all. Raises nothing but CancelledError,
    when the caller itself is cancelled; the agent is cancelled with it.
    """
    if agent.is_async:
        return await _within(_captured(agent.run, task), task, timeout_s, agent, ended_late)
    outcome = await _in_thread(agent, task, timeout_s, ended_late)
    if outcome.error is None and inspect.isawaitable(outcome.value):
        return await _within(_awaited(outcome.value), task, timeout_s, agent, ended_late)
    return outcome


def slot(agent: AgentUnderTest) -> AbstractAsyncContextManager[Any]:
    """The right to run: at most `threads` runs of a sync agent overlap on a loop, async ones as many as there are.

    A run that was abandoned gives its slot back.
    """
    if agent.is_async:
        return nullcontext()
    slots = _slots.setdefault(asyncio.get_running_loop(), {})
    try:
        return slots.setdefault(agent.run, asyncio.Semaphore(agent.threads))
    except TypeError:  # an unhashable callable
        return slots.setdefault(id(agent.run), asyncio.Semaphore(agent.threads))


async def _captured(run: Any, task: Task) -> Outcome:
    """The agent's coroutine with its exceptions as values: asyncio would let SystemExit tear the loop down."""
    try:
        value = run(task)
        return Outcome(await value if inspect.isawaitable(value) else value)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _being_cancelled():
            raise
        return Outcome(error=error)


async def _awaited(value: Any) -> Outcome:
    try:
        return Outcome(await value)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _being_cancelled():
            raise
        return Outcome(error=error)


def _being_cancelled() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


async def _within(
    coroutine: Any, task: Task, timeout_s: float, agent: AgentUnderTest, ended_late: Callable[[], None]
) -> Outcome:
    running: asyncio.Task[Outcome] = asyncio.create_task(coroutine, context=host.get().context)
    grace_s = max(GRACE_S, agent.grace_s)
    until = _spent(task) + timeout_s
    try:
        await _others_first()  # an agent that waits for nothing is done then: there is nothing to be timed
        if running.done() or await _done(running, task, until):
            return _outcome_of(running)
        stuck_in = _calls_of(running)
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=grace_s)
        if not done:
            abandon(agent.name)
            running.add_done_callback(lambda _: ended_late())
        elif not running.cancelled():
            running.result()  # collects what it ended with, so that asyncio does not complain of it
        return Outcome(timed_out=True, abandoned=not done, stuck_in=stuck_in)
    except asyncio.CancelledError:
        running.cancel()
        await asyncio.wait({running}, timeout=grace_s)
        raise


def _outcome_of(ended: asyncio.Task[Outcome]) -> Outcome:
    """An agent may cancel its own task, or have it cancelled by a library: it has then raised like any other."""
    try:
        return ended.result()
    except asyncio.CancelledError as error:
        return Outcome(error=error)


async def _in_thread(agent: AgentUnderTest, task: Task, timeout_s: float, ended_late: Callable[[], None]) -> Outcome:
    """Run a sync agent in its thread, with this context's variables."""
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[Outcome] = loop.create_future()
    where = host.get()
    context = where.context_of_thread()

    def settle(outcome: Outcome) -> None:
        if not finished.done():
            finished.set_result(outcome)

    late = _Both(ended_late)
    threads: list[int] = []

    def work() -> None:
        threads.append(threading.get_ident())
        try:
            outcome = Outcome(context.run(agent.run, task))
        except BaseException as error:
            outcome = Outcome(error=error)
        late.happened()
        with suppress(RuntimeError):  # the loop is closed: this run was abandoned long ago
            loop.call_soon_threadsafe(settle, outcome)

    until = _spent(task) + timeout_s
    where.carry(work)
    if await _done(finished, task, until):
        return finished.result()
    from evalkit.pipeline.stuck import calls_of_thread

    stuck_in = [call for ident in threads for call in calls_of_thread(ident)]
    abandon(agent.name)
    late.happened()
    return Outcome(timed_out=True, abandoned=True, stuck_in=stuck_in)


def _calls_of(running: asyncio.Task[Any]) -> list[FrameSummary]:
    """Imported for the first agent that does not come back."""
    from evalkit.pipeline.stuck import calls_of_task

    return calls_of_task(running)


@coroutine
def _others_first() -> Generator[None]:
    """Give every task that is ready one step. What `asyncio.sleep(0)` does, which tests of agents may replace."""
    yield


def _spent(task: Task) -> float:
    """A clock in seconds that stands still while the case waits for its turn at the model."""
    return now() - task.queued.seconds


async def _done(future: asyncio.Future[Outcome], task: Task, until: float) -> bool:
    """Whether `future` is done before `_spent` is `until`."""
    while True:
        left = until - _spent(task)
        done, _ = await asyncio.wait({future}, timeout=max(left, 0.02 if task.queued.is_going_on else 0.0))
        if done or until <= _spent(task):
            return bool(done)


class _Both:
    """Calls `then` when two things have happened: the agent was given up, and it ended."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._awaited = 2
        self._lock = threading.Lock()

    def happened(self) -> None:
        with self._lock:
            self._awaited -= 1
        if not self._awaited:
            self._then()


def abandon(name: str) -> None:
    """Count a run of agent `name` that is left behind."""
    _abandoned.append(name)


def abandoned_agents() -> int:
    """How many agents of this process ran past their deadline and could not be stopped."""
    return len(_abandoned)
