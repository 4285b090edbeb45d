"""The fake dispatcher: it answers function calls from a case's mocks, and records every one of them.

A call counts from the moment it is made: unknown functions, unmocked calls and malformed arguments are recorded like
any other. Its index, sequence element and rule are assigned when it is opened, which for the calls of one model turn
happens in reply order before anything is awaited. Arguments on record are a snapshot; results handed out are copies.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import weakref
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from evalkit.errors import FunctionError, MockError
from evalkit.functions.answering import Answering
from evalkit.functions.attempt import Attempt, Origin, error_result
from evalkit.functions.clock import RunClock
from evalkit.functions.ledger import Ledger
from evalkit.functions.mockchecks import broken_returns, return_problems
from evalkit.functions.mocks import MockSet, Real, Static, leaves
from evalkit.functions.routing import Routes
from evalkit.model.case import Declaration
from evalkit.model.settings import Settings
from evalkit.model.transcript import FunctionCall, ModelCall


class FakeDispatcher:
    """One run's functions. Thread-safe, and safe to await from many tasks.

    `state` is the dict that `$call` mocks change and ``{{ state... }}`` reads; `task` is handed to callables that ask
    for it; `implementations` (name -> callable) are real functions that `{$real: true}` may reach. `user_turn` is
    written into the records.
    """

    def __init__(
        self,
        mocks: MockSet | None,
        declarations: Iterable[Declaration] = (),
        *,
        input: Any = None,
        settings: Settings | None = None,
        state: dict[str, Any] | None = None,
        case_id: str = "",
    ) -> None:
        self._settings = settings or Settings()
        self._clock = RunClock()
        self._routes = Routes(mocks or MockSet(), declarations)
        self.state: dict[str, Any] = {} if state is None else state
        self.user_turn = 0
        self._ledger = Ledger(mocks or MockSet(), self._routes, input, self.state, case_id)
        self._answering = Answering(self._routes, self._settings, input, self.state, self._ledger.roots)

    @property
    def task(self) -> Any:
        """The task that calls; None when nobody holds it any more. The task holds the dispatcher: a circle of the two
        would stay in memory until the garbage collector's next long look."""
        return self._answering.task()

    @task.setter
    def task(self, task: Any) -> None:
        self._answering.task = weakref.ref(task)

    @property
    def implementations(self) -> dict[str, Callable[..., Any]]:
        return self._answering.implementations

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        return self._routes.declarations

    @property
    def canonical(self) -> Callable[[str], str]:
        """From a name or alias to the name that calls are recorded under."""
        return self._routes.canonical

    def attributed(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """How a call that patched code makes came about, as far as the task knows: turn, channel, id."""
        known: Callable[..., dict[str, Any]] | None = getattr(self.task, "attributed", None)
        return {} if known is None else known(name, arguments)

    @property
    def names(self) -> tuple[str, ...]:
        """Every function that is declared or mocked, by canonical name."""
        return self._routes.names

    @property
    def calls(self) -> tuple[FunctionCall, ...]:
        """Every call so far, in order of `index`; one that is still running is an error of type ``unfinished``."""
        return self._ledger.calls()

    @property
    def fault(self) -> MockError | None:
        """The first mock that broke: the run could not be measured."""
        return self._ledger.fault

    @property
    def virtual_ms(self) -> float:
        """Milliseconds that the functions took on the run's clock; calls of one batch overlap."""
        return self._clock.virtual_ms

    def unused(self) -> tuple[str, ...]:
        """A sentence for each mock that was never called, rule that answered nothing, and element never reached."""
        return self._ledger.unused()

    def blame(self, error: MockError) -> MockError:
        """Note that the run can't be measured, for a reason that no call shows. The first reason stays."""
        self._ledger.fault = self._ledger.fault or error
        return error

    def declare(self, declarations: Iterable[Declaration]) -> None:
        """Add functions, e.g. of an instruction file. MockError where a mock breaks the `returns` that this brings."""
        added = tuple(declarations)
        self._routes.declare(added)
        for declaration in added:
            mock = self._routes.mock(declaration.name)
            if declaration.returns is not None and mock is not None:
                found = (leaf for leaf in leaves(mock[1]) if isinstance(leaf, Static))
                plain = (leaf for leaf in found if not leaf.templated and not leaf.is_fault)
                for leaf in plain:
                    for path, message in return_problems(leaf.value, declaration.returns):
                        raise self.blame(MockError(broken_returns(declaration.name, path, message)))

    def call(
        self,
        name: str,
        arguments: Any = None,
        *,
        turn: int | None = None,
        channel: str = "direct",
        call_id: str | None = None,
        repairs: Sequence[str] = (),
        malformed: str | None = None,
        offered: Container[str] | None = None,
        real: Callable[[], Any] | None = None,
    ) -> Any:
        """The function's result. FunctionError where it fails, and the agent is meant to see it; MockError where the
        mock is broken.

        `malformed` says why the arguments could not be read. Of `offered`, the names that the model was told of, all
        others are unknown functions. `real` calls the patched function itself; the caller is then patched code, which
        gets what a callable returned as it is, not as JSON.
        """
        origin = Origin(turn, self.user_turn, channel, call_id, tuple(repairs), malformed)
        attempt = self._ledger.open(name, arguments, origin, offered, real)
        try:
            self._complete(attempt)
        finally:
            self._clock.advance(attempt.duration_ms)
        return _outcome(attempt)

    async def acall(
        self,
        name: str,
        arguments: Any = None,
        *,
        turn: int | None = None,
        channel: str = "direct",
        call_id: str | None = None,
        repairs: Sequence[str] = (),
        malformed: str | None = None,
        offered: Container[str] | None = None,
        real: Callable[[], Any] | None = None,
    ) -> Any:
        """`call` for async code: async callables and real latency are awaited."""
        origin = Origin(turn, self.user_turn, channel, call_id, tuple(repairs), malformed)
        attempt = self._ledger.open(name, arguments, origin, offered, real)
        try:
            await self._acomplete(attempt)
        finally:
            self._clock.advance(attempt.duration_ms)
        return _outcome(attempt)

    async def acall_batch(
        self, calls: Iterable[ModelCall], *, turn: int | None = None, offered: Container[str] | None = None
    ) -> list[tuple[ModelCall, Any]]:
        """The calls of one model turn: opened in reply order, then run side by side.

        Each comes with its result, or with ``{"error": {"type": ..., "message": ...}}`` where it failed.
        """
        made = [(call, self._open(call, turn, offered)) for call in calls]
        attempts = [attempt for _, attempt in made]
        try:
            if any(map(self._answering.must_wait, attempts)):
                await asyncio.gather(*map(self._acomplete, attempts))
            else:
                for attempt in attempts:
                    await self._acomplete(attempt)
        finally:
            self._clock.advance(max((attempt.duration_ms for attempt in attempts), default=0.0))
        return [(call, _outcome_as_data(attempt)) for call, attempt in made]

    async def carry_out(
        self,
        call: ModelCall,
        *,
        turn: int | None,
        offered: Container[str] | None = None,
        real: Callable[[], Any] | None = None,
        refused: FunctionError | None = None,
        as_is: bool = False,
    ) -> Any:
        """One call of a model turn, carried out by a framework's own loop, side by side with the turn's others.

        `refused`: the framework does not make the call, which is recorded as failed. `as_is`: without a mock `real`
        runs, whatever the settings allow. For the rest see `call`.
        """
        origin = Origin(
            turn, self.user_turn, call.channel, call.call_id, call.repairs, call.malformed, refused=refused, as_is=as_is
        )
        attempt = self._ledger.open(call.name, call.arguments, origin, offered, real)
        try:
            await self._acomplete(attempt)
        finally:
            self._clock.overlap(turn, attempt.duration_ms)
        return _outcome(attempt)

    def _open(self, call: ModelCall, turn: int | None, offered: Container[str] | None) -> Attempt:
        origin = Origin(turn, self.user_turn, call.channel, call.call_id, call.repairs, call.malformed)
        return self._ledger.open(call.name, call.arguments, origin, offered, None)

    def _complete(self, attempt: Attempt) -> None:
        started = time.perf_counter()
        try:
            self._answering.begin(attempt)
            if attempt.pending is not None:
                self._take(attempt, attempt.pending)
            if self._settings.real_sleep and attempt.delay_ms:
                time.sleep(attempt.delay_ms / 1000)
        except BaseException as error:  # the run is being stopped; the call stays on record
            attempt.error = error
            raise
        finally:
            self._finish(attempt, started)

    def _finish(self, attempt: Attempt, started: float) -> None:
        if attempt.chosen is not None and isinstance(attempt.chosen.leaf, Real) and not attempt.origin.as_is:
            attempt.elapsed_ms = (time.perf_counter() - started) * 1000
        self._answering.finish(attempt)
        self._ledger.close(attempt)

    def _take(self, attempt: Attempt, awaitable: Awaitable[Any]) -> None:
        from evalkit.functions.callables import wait_for

        try:
            attempt.raw = wait_for(awaitable)
        except (Exception, SystemExit) as error:
            attempt.error = self._answering.understood(attempt, error)

    async def _acomplete(self, attempt: Attempt) -> None:
        started = time.perf_counter()
        attempt.in_loop = True
        try:
            self._answering.begin(attempt)
            if attempt.pending is not None:
                await self._atake(attempt, attempt.pending)
            if self._settings.real_sleep and attempt.delay_ms:
                await asyncio.sleep(attempt.delay_ms / 1000)
        except BaseException as error:  # the run is being stopped; the call stays on record
            attempt.error = error
            raise
        finally:
            self._finish(attempt, started)

    async def _atake(self, attempt: Attempt, awaitable: Awaitable[Any]) -> None:
        try:
            raw = await awaitable
            attempt.raw = await raw if inspect.isawaitable(raw) else raw
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise  # we are being stopped; otherwise the callable let a cancellation of its own escape
            attempt.error = self._answering.understood(attempt, error)


def _outcome(attempt: Attempt) -> Any:
    if attempt.error is not None:
        raise attempt.error
    return attempt.value


def _outcome_as_data(attempt: Attempt) -> Any:
    return attempt.value if attempt.error is None else error_result(attempt.error)
