"""An agent that is opened for one run: its set-up, its tear-down, and what is said where one of them goes wrong.

Both belong to the run (functions answer from the mocks meanwhile), and neither counts as the agent's time. The
tear-down follows every set-up that came to its end: after a failure, after the deadline, after Ctrl-C.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any

from evalkit.agents.resolution import AgentUnderTest, agent_of
from evalkit.model.transcript import RunFault
from evalkit.pipeline.calling import GRACE_S, Outcome, abandon
from evalkit.pipeline.faults import SET_UP, TEAR_DOWN, interrupt_in, phase_fault, phase_fault_of
from evalkit.pipeline.hosting import TEARDOWN_S, Host, OneThread, host, keep_open
from evalkit.pipeline.threads import in_daemon_thread

if TYPE_CHECKING:
    from evalkit.pipeline.attempt import Attempt


class Lifetime:
    """``async with Lifetime(going) as agent:``, None if there is none; `going.fault` then says why."""

    def __init__(self, going: Attempt) -> None:
        opening = going.plan.agent.opening
        assert opening is not None, "only an agent with a set-up is opened"
        going.task.attend()
        self._going = going
        self._opening = opening
        self._lent = host.get()
        self._own_thread: OneThread | None = None
        self._carry = self._lent.carry
        if not opening.is_async and self._carry is in_daemon_thread:
            self._own_thread = OneThread()
            self._carry = self._own_thread.carry
        self._context = copy_context()
        self._manager: Any = None
        self._ready: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._ended = Outcome()
        self._is_elsewhere = False  # the tear-down, since the agent's thread is lost
        # A context is entered by one thread at a time: where a thread has it, the task has a copy.
        context = self._context if opening.is_async else None
        self._task = asyncio.create_task(self._live(), context=context)
        keep_open(self._task)

    async def __aenter__(self) -> AgentUnderTest | None:
        self._going.phase = SET_UP
        try:
            return await self._set_up()
        except BaseException:
            await self._give_up()
            raise

    async def _set_up(self) -> AgentUnderTest | None:
        going, name = self._going, self._going.plan.agent.name
        done, _ = await asyncio.wait({self._ready}, timeout=going.plan.in_force.deadline_s)
        if not done:
            await self._give_up()
            going.time_out(abandoned=not self._task.done())
            return None
        outcome = self._ready.result()
        if outcome.error is not None:
            self._failed(outcome.error, SET_UP)
            return None
        if not callable(outcome.value):
            kind = type(outcome.value).__name__
            self._fail(phase_fault(SET_UP, name, f"gave a {kind}; it gives the agent, a callable that takes the task"))
            return None
        going.phase = ""
        host.set(Host(self._carry, self._context, self._opening.is_async))
        return agent_of(name, outcome.value)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        host.set(self._lent)
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        self._is_elsewhere = self._is_elsewhere or self._going.is_left_behind or cancelled
        try:
            if self._was_set_up():
                await self._tear_down()
        finally:
            self._release()

    def _was_set_up(self) -> bool:
        return self._ready.done() and self._ready.result().error is None

    async def _give_up(self) -> None:
        """On a set-up that has not come to its end. One that comes to it after all is torn down at once."""
        self._is_elsewhere = True
        self._over.set()
        if self._opening.is_async and not self._was_set_up():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=GRACE_S)
        self._release()

    def _release(self) -> None:
        if self._own_thread is not None:
            self._own_thread.release()
            self._own_thread = None

    async def _tear_down(self) -> None:
        going, name = self._going, self._going.plan.agent.name
        going.phase = TEAR_DOWN
        going.task.queued.add(TEARDOWN_S)  # whoever watches the case waits for so much longer
        self._over.set()
        done, _ = await asyncio.wait({self._task}, timeout=TEARDOWN_S)
        if not done:
            self._task.cancel()
            abandon(name)
            going.leave_behind("its tear-down")
            self._fail(phase_fault(TEAR_DOWN, name, f"was still running after {TEARDOWN_S:g} s"))
        elif self._ended.error is not None:
            self._failed(self._ended.error, TEAR_DOWN)
        going.phase = ""

    def _failed(self, error: BaseException, phase: str) -> None:
        interrupt = interrupt_in(error)
        if interrupt is not None:
            raise interrupt
        plan = self._going.plan
        self._fail(phase_fault_of(error, phase, plan.agent.name, plan.root))

    def _fail(self, fault: RunFault) -> None:
        """What ended the run before comes first; what else went wrong is a warning then."""
        if self._going.fault is None:
            self._going.fault = fault
        else:
            self._going.warnings.append(fault.message)

    # One task from set-up to tear-down: some resources must be left where they were entered.

    async def _live(self) -> None:
        try:
            value = await (self._entered() if self._opening.is_async else self._threaded(self._enter))
        except BaseException as error:
            self._settle(Outcome(error=error))
            return
        self._settle(Outcome(value))
        with suppress(asyncio.CancelledError):  # the loop is closed: the tear-down is due now
            await self._over.wait()
        try:
            await (self._manager.__aexit__(None, None, None) if self._opening.is_async else self._threaded(self._leave))
        except BaseException as error:
            self._ended = Outcome(error=error)
        if self._going.is_left_behind:
            self._going.ended_late()

    def _settle(self, outcome: Outcome) -> None:
        if not self._ready.done():
            self._ready.set_result(outcome)

    async def _entered(self) -> Any:
        self._manager = self._opening.manager(self._going.task)
        return await self._manager.__aenter__()

    def _enter(self) -> Any:
        self._manager = self._opening.manager(self._going.task)
        return self._manager.__enter__()

    def _leave(self) -> None:
        self._manager.__exit__(None, None, None)

    async def _threaded(self, step: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        finished: asyncio.Future[Outcome] = loop.create_future()
        context = self._context.copy() if self._is_elsewhere else self._context

        def settle(outcome: Outcome) -> None:
            if not finished.done():
                finished.set_result(outcome)

        def work() -> None:
            try:
                outcome = Outcome(context.run(step))
            except BaseException as error:
                outcome = Outcome(error=error)
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(settle, outcome)

        (in_daemon_thread if self._is_elsewhere else self._carry)(work)
        outcome = await finished
        if outcome.error is not None:
            raise outcome.error
        return outcome.value
