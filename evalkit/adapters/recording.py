"""What a framework's agent does in one run of a case, told to its task: turns, and the calls that they ask for.

A framework carries out its model's calls itself, so nothing has to be guessed: each call is known by the id under which
the model's reply asked for it, and is recorded with the name and the arguments that the model wrote, whatever the
framework made of them. Calls that the framework refuses (arguments that do not fit, a tool that it does not have) were
made by the model all the same, and are recorded as failed.

Where the agent's model client speaks HTTP and the run has a cassette, the turn has been seen on the wire before the
framework tells of it. Such a turn is claimed, not counted twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary, ref

from msgspec.structs import replace

from evalkit.agents.task import Task
from evalkit.errors import BudgetSpentError, FunctionError, MockError
from evalkit.functions.attempt import MockedError
from evalkit.functions.targets import find
from evalkit.model.case import Declaration
from evalkit.model.transcript import ModelCall, ModelTurn

# How many milliseconds a call waits for those before it in its reply.
PATIENCE = 100

_recorders: WeakKeyDictionary[Task, Recorder] = WeakKeyDictionary()


class Recorder:
    """One per task; `Recorder.of(task)` finds it. `histories` keeps each agent's conversation between user turns."""

    def __init__(self, task: Task) -> None:
        self._task = ref(task)  # it is found by its task, which must not live on because of that
        self.histories: dict[Any, Any] = {}
        self._placed: set[int] = set()
        self._declared: set[str] = set()
        self._lock = threading.Lock()

    @classmethod
    def of(cls, task: Task) -> Recorder:
        found = _recorders.get(task)
        if found is None:
            found = _recorders[task] = cls(task)
        return found

    @property
    def task(self) -> Task:
        task = self._task()
        if task is None:
            raise MockError("an agent's run goes on after the end of its case: its functions are gone")
        return task

    def declare(self, tools: Iterable[tuple[str, str | None, Mapping[str, Any] | None]]) -> None:
        """Add the tools of the framework's agent, (name, description, JSON Schema of the arguments) each, to the
        functions of the run. What the case declares itself stays as it is.
        """
        with self._lock:
            known = {
                name for declared in self.task.functions.declarations for name in (declared.name, *declared.aliases)
            }
            new = [tool for tool in tools if tool[0] not in known and tool[0] not in self._declared]
            self._declared.update(name for name, _, _ in new)
        if new:
            self.task.declare(
                Declaration(name=name, description=description or "", parameters=parameters)
                for name, description, parameters in new
            )

    def place(self, turn: ModelTurn, since: int, waited_ms: float) -> int:
        """The index of `turn`, the reply to a request made when there were `since` turns; added unless it was seen on
        the wire.
        """
        with self._lock:
            index = self._seen(turn, since)
            if index is None:
                # Offline, with a cassette at hand, only a model without a wire answers: a test double, at once.
                ms = waited_ms if self.task.tape is None else 0.0
                index = self.task.record_turn(_lasting(turn, ms), waited_ms=ms)
                if self.task.booking is not None:
                    self.task.booking.add(turn)
            else:
                self.task.claim_turn(index, turn.calls)
            self._placed.add(index)
            return index

    def _seen(self, turn: ModelTurn, since: int) -> int | None:
        """The turn on the wire that `turn` is. It may hold more calls there: some only bring structured output."""
        wanted = [call.name for call in turn.calls]
        turns = self.task.turns
        names = {
            index: [call.name for call in turns[index].calls]
            for index in range(since, len(turns))
            if index not in self._placed
        }
        same = [index for index, found in names.items() if found == wanted]
        more = [index for index, found in names.items() if _holds(found, wanted)]
        same_text = [index for index in same or more if turns[index].text.strip() == turn.text.strip()]
        return next(iter(same_text or same or more), None)


class Dialogue:
    """One run of one agent with its model: request, reply, calls, in this order. Agents in agents have their own."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._since = 0
        self._began = 0.0
        self._calls: dict[str, list[tuple[int, ModelCall]]] = {}  # test doubles give several calls one id
        self._awaited: dict[int, list[ModelCall]] = {}  # by turn: what it asked for and has not begun yet
        self._here: set[int] = set()  # of these, what waits for its turn

    def asks(self) -> None:
        """The model is being asked. Raises BudgetSpentError if nothing is left to ask it for."""
        booking = self.recorder.task.booking
        try:
            if booking is not None:
                booking.check()
        except BudgetSpentError as error:
            self.recorder.task.note_fault(error)  # whatever the framework makes of it
            raise
        self._since = len(self.recorder.task.turns)
        self._began = perf_counter()

    def replied(self, turn: ModelTurn, ids: Iterable[str] | None = None) -> int:
        """The model has answered. The index of the turn. `ids` are those by which the framework knows the calls, where
        it does not go by those on the wire.
        """
        index = self.recorder.place(turn, self._since, (perf_counter() - self._began) * 1000)
        known = (call.call_id for call in turn.calls) if ids is None else ids
        for key, call in zip(known, turn.calls, strict=True):
            if key is not None:
                self._calls.setdefault(key, []).insert(0, (index, call))
                self._awaited.setdefault(index, []).append(call)
        return index

    def asked_for(self, name: str, arguments: Any, call_id: str | None) -> int:
        """How well a call fits one that a reply has asked for: 0 not at all, 3 in id, name and arguments."""
        fits = [_fit(call, name, arguments) for _, call in self._calls.get(call_id or "", ())]
        return max(fits, default=0)

    async def call(
        self,
        name: str,
        arguments: Any,
        call_id: str | None,
        *,
        real: Callable[[], Any] | None = None,
        as_is: bool = False,
        unconverted: bool = False,
    ) -> Any:
        """What the dispatcher answers to a call that the framework carries out.

        `name` and `arguments` are for calls that no reply asked for: code that calls a tool. Or they are `unconverted`,
        just what the model wrote unless the agent's own code has changed it: then the change is recorded. `real` calls
        the real tool, for ``{$real: true}``; with `as_is` it runs unless the case mocks it. Raises FunctionError where
        the function fails, or the exception that the mock names.
        """
        turn, call = self._known(name, arguments, call_id)
        await self._in_order(turn, call)
        if unconverted and not _equal(call.arguments, arguments):
            call = replace(call, arguments=arguments)
        try:
            return await self.recorder.task.carry_out(call, turn=turn, real=real, as_is=as_is)
        except MockedError as error:
            if error.exception is None:
                raise
            raise find(error.exception, "builtins:TimeoutError").value(error.message) from None

    async def refused(
        self,
        name: str,
        arguments: Any,
        call_id: str | None,
        why: str,
        *,
        type: str = "invalid_arguments",
        as_is: bool = False,
    ) -> None:
        """The framework has refused a call, if not otherwise said because of its arguments. Recorded as failed. `as_is`
        as in `call`: without a mock it is no unmocked call.
        """
        turn, call = self._known(name, arguments, call_id)
        await self._in_order(turn, call)
        with suppress(FunctionError):
            await self.recorder.task.carry_out(call, turn=turn, refused=FunctionError(type, why), as_is=as_is)

    async def unknown(self, call_id: str, offered: Container[str]) -> None:
        """A reply asks for a tool that is none of the `offered` ones. Recorded as an unknown function."""
        turn, call = min(self._calls[call_id], key=lambda made: made[1].name in offered)
        self._settle(turn, call)
        with suppress(FunctionError):
            await self.recorder.task.carry_out(call, turn=turn, offered=offered)

    async def _in_order(self, turn: int | None, call: ModelCall) -> None:
        """Let the calls that the reply asked for before this one begin first, whichever callbacks of the agent's own
        hold them up; but not for long, since one that a guardrail stops never begins.
        """
        awaited = self._awaited.get(-1 if turn is None else turn, [])
        if not any(each is call for each in awaited):
            return
        self._here.add(id(call))
        patience = PATIENCE
        try:
            while awaited[0] is not call:
                await asyncio.sleep(0.001)  # no event: the others may run on other loops
                patience -= 1  # counted, not timed: the loop itself may be held up
                if not patience:
                    awaited[:] = [each for each in awaited if id(each) in self._here]
        finally:
            self._settle(turn, call)

    def _settle(self, turn: int | None, call: ModelCall) -> None:
        awaited = self._awaited.get(-1 if turn is None else turn, [])
        awaited[:] = [each for each in awaited if each is not call]

    def _known(self, name: str, arguments: Any, call_id: str | None) -> tuple[int | None, ModelCall]:
        made = self._calls.get(call_id or "")
        if not made:
            return None, ModelCall(name=name, arguments=arguments, call_id=call_id, channel="direct")
        return max(made, key=lambda each: _fit(each[1], name, arguments))


def _fit(call: ModelCall, name: str, arguments: Any) -> int:
    return 1 + (1 + _equal(call.arguments, arguments) if call.name == name else 0)


def _equal(asked: Any, made: Any) -> bool:
    try:
        return bool(asked == made)
    except Exception:  # what a framework has made of arguments need not be comparable
        return False


def _holds(names: list[str], wanted: list[str]) -> bool:
    """Whether `wanted` are among `names`, in this order."""
    left = iter(names)
    return all(name in left for name in wanted)


def _lasting(turn: ModelTurn, ms: float) -> ModelTurn:
    return replace(turn, duration_ms=ms) if ms else turn
