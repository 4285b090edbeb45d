"""The model's side of one run: where its turns come from, the turns so far, and which of their calls are still open."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from evalkit.agents.clock import WaitingTime
from evalkit.agents.settings import TaskSettings
from evalkit.errors import (
    BudgetSpentError,
    EvalkitError,
    IncompleteCallError,
    MissingCassetteError,
    SpecError,
    StaleCassetteError,
    UsageError,
)
from evalkit.model.case import Declaration
from evalkit.model.transcript import ModelCall, ModelRequest, ModelTurn
from evalkit.providers.turns import Chunk
from evalkit.streaming.accumulate import StreamAccumulator

if TYPE_CHECKING:
    from evalkit.providers.base import Provider


LOGGER = logging.getLogger("evalkit.model")

# Faults that decide the verdict even if the agent swallows the exception: going on would measure something else.
DECISIVE_ERRORS = (MissingCassetteError, StaleCassetteError, BudgetSpentError, SpecError, UsageError)


class ModelSession:
    """Asks the model of a task, and keeps what came. `fault` is why the run can't be measured, if it can't."""

    def __init__(
        self,
        open_model: Callable[[], Provider],
        settings: TaskSettings,
        waiting_time: WaitingTime,
        queueing_time: WaitingTime,
        case_id: str,
    ) -> None:
        self.provider: Provider | None = None
        self.fault: EvalkitError | None = None
        self._queueing_time = queueing_time
        # Around evalkit's own requests, where those of the agent's client are caught.
        self.interception_bypass: Callable[[], AbstractContextManager[None]] = nullcontext
        self._open_model = open_model
        self._settings = settings
        self._waiting_time = waiting_time
        self._case_id = case_id
        self._turns: list[ModelTurn] = []
        self._pending_calls = PendingToolCalls()
        self._streams: list[RunningStream] = []
        self._lock = threading.Lock()

    @property
    def turns(self) -> tuple[ModelTurn, ...]:
        """So far; one that is still coming, as far as it has come."""
        with self._lock:
            if not self._streams:
                return tuple(self._turns)
            streams = {running.index: running for running in self._streams}
            return tuple(
                streams[index].build_turn() if index in streams else turn for index, turn in enumerate(self._turns)
            )

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """`Task.turn`."""
        self._log(request)
        with self._count_waiting():
            reply = await self._open_provider().turn(request)
            await self._wait_recorded_time(reply)
        self.add(reply)
        return reply

    def add(self, reply: ModelTurn) -> None:
        """One more turn, whose calls code may carry out from now on."""
        with self._lock:
            self._turns.append(reply)
            self._pending_calls.add_turn(len(self._turns) - 1, reply)

    def record(self, reply: ModelTurn) -> int:
        """One more turn, whose calls a framework carries out itself. Its index."""
        with self._lock:
            self._turns.append(reply)
            return len(self._turns) - 1

    def claim(self, index: int, calls: tuple[ModelCall, ...]) -> None:
        """A framework carries out `calls`, those of turn `index`, which was seen on the wire already."""
        with self._lock:
            self._pending_calls.discard_turn(index)
            self._turns[index] = replace(self._turns[index], calls=calls)

    def replace_last_turn(self, turn: ModelTurn) -> None:
        """`Task.amend`."""
        with self._lock:
            self._turns[-1] = turn

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """`Task.stream`."""
        from evalkit.providers.turns import fetch_pieces

        self._log(request)
        with self._count_waiting():
            pieces = fetch_pieces(self._open_provider(), request)
        running: RunningStream | None = None
        try:
            while (piece := await self._read_piece(pieces)) is not None:
                running = running or self._begin(request)
                if isinstance(piece, ModelTurn):
                    self._end(running, piece)
                    return
                running.feed(piece)
                yield piece
        finally:
            if running is not None:
                self._end(running, running.build_turn())
            await pieces.aclose()

    async def _read_piece(self, pieces: AsyncGenerator[Chunk | ModelTurn]) -> Chunk | ModelTurn | None:
        with self._count_waiting():
            piece = await anext(pieces, None)
            if isinstance(piece, ModelTurn):
                await self._wait_recorded_time(piece)
            return piece

    def _begin(self, request: ModelRequest) -> RunningStream:

        with self._lock:
            running = RunningStream(len(self._turns), request.functions)
            self._turns.append(running.build_turn())
            self._streams.append(running)
        return running

    def _end(self, running: RunningStream, turn: ModelTurn) -> None:
        """The stream is over, unless it was before."""
        with self._lock:
            if running in self._streams:
                self._pending_calls.add(running.index, running.finish())
                self._streams.remove(running)
                self._turns[running.index] = turn

    def finish_turn(self) -> int:
        """The index of the latest turn, all of whose calls are carried out now."""
        with self._lock:
            self._pending_calls.clear()
            return len(self._turns) - 1

    def get_attribution(self, name: str, arguments: Mapping[str, Any], functions: DeclaredFunctions) -> dict[str, Any]:
        """Turn, channel and id of the model's call that code is carrying out now, if it is one."""
        with self._lock:
            for running in self._streams:
                self._pending_calls.add(running.index, running.take_certain_calls())
            return self._pending_calls.take(name, arguments, functions)

    @contextmanager
    def _count_waiting(self) -> Iterator[None]:
        """Around everything that waits for the model."""
        try:
            with self._waiting_time.measure(), self.interception_bypass(), self._count_queueing():
                yield
        except DECISIVE_ERRORS as error:
            self.fault = self.fault or error
            raise

    @contextmanager
    def _count_queueing(self) -> Iterator[None]:
        """Count apart what is waited for a turn at the model's service: the deadline stands still meanwhile."""
        if self.provider is not None and self.provider.name == "cassette":
            yield
            return
        from evalkit.providers.pacing import queue_context

        token = queue_context.set(self._queueing_time.measure)
        try:
            yield
        finally:
            queue_context.reset(token)

    def _open_provider(self) -> Provider:
        if self.provider is None:
            self.provider = self._open_model()
        return self.provider

    async def _wait_recorded_time(self, reply: ModelTurn) -> None:
        """Take the time that a recorded reply took, where the run asks for real time."""
        if self._settings.real_sleep and self.provider is not None and self.provider.name == "cassette":
            await asyncio.sleep(reply.duration_ms / 1000)

    def _log(self, request: ModelRequest) -> None:
        if LOGGER.isEnabledFor(logging.INFO):
            from evalkit.cassettes.fingerprint import describe_request

            data = describe_request(request)
            counts = (len(data["messages"]), len(data["functions"]))
            details = {"case_id": self._case_id, "request": data}
            LOGGER.info("asking the model: messages=%d functions=%d", *counts, extra=details)


# Which call of the model's is being carried out when code calls a function: its turn, its channel, its id.
#
# The calls of the latest turn come first: what an older turn asked for and nobody carried out was most likely given up.
# A reply without native calls may hold calls as text, which a loop of the agent's own reads and carries out; they are
# looked for only when code calls a function that no native call asked for.


class DeclaredFunctions(Protocol):
    """The functions of a run: `canonical` gives the name that an alias stands for."""

    @property
    def declarations(self) -> tuple[Declaration, ...]: ...
    @property
    def canonical(self) -> Callable[[str], str]: ...


class PendingToolCalls:
    """Calls that the model has asked for and code may still carry out. The caller holds a lock."""

    def __init__(self) -> None:
        self._calls: list[tuple[int, ModelCall]] = []
        self._texts: list[tuple[int, str]] = []

    def add(self, index: int, calls: Sequence[ModelCall]) -> None:
        self._calls.extend((index, call) for call in calls)

    def add_turn(self, index: int, turn: ModelTurn) -> None:
        """The calls of a whole turn, or the text that may hold some."""
        self.add(index, turn.calls)
        if turn.text and not turn.calls:
            self._texts.append((index, turn.text))

    def clear(self) -> None:
        """They are carried out now, all of them."""
        self._calls.clear()
        self._texts.clear()

    def discard_turn(self, index: int) -> None:
        """Those of turn `index` are somebody else's to carry out."""
        self._calls = [(turn, call) for turn, call in self._calls if turn != index]
        self._texts = [(turn, text) for turn, text in self._texts if turn != index]

    def take(self, name: str, arguments: Mapping[str, Any], declared: DeclaredFunctions) -> dict[str, Any]:
        """What the record of a call should say of its origin; the call is no longer open. Empty if no model asked."""
        if not self._calls and not self._texts:
            return {}
        self._read_texts(declared)
        canonical = declared.canonical(name)
        best = -1
        for position, (turn, call) in enumerate(self._calls):
            same = declared.canonical(call.name) == canonical and _is_equal(call.arguments, arguments)
            if same and (best < 0 or turn > self._calls[best][0]):
                best = position
        if best < 0:
            return {}
        turn, call = self._calls.pop(best)
        return {"turn": turn, "channel": call.channel, "call_id": call.call_id, "repairs": call.repairs}

    def _read_texts(self, declared: DeclaredFunctions) -> None:
        if not self._texts:
            return
        from evalkit.textcalls.search import parse_text_calls

        functions = declared.declarations
        for index, text in self._texts:
            parsed = parse_text_calls(text, functions) if functions else parse_text_calls(text)
            self.add(
                index,
                [
                    ModelCall(name=it.name, arguments=it.arguments, channel="text", repairs=it.repairs, raw=it.raw)
                    for it in parsed.calls
                ],
            )
        self._texts.clear()


def _is_equal(expected: Any, actual: Any) -> bool:
    try:
        return bool(expected == actual)
    except Exception:  # patched code passes what it likes: arrays have no truth value
        return False


# A reply that is still coming: which of its calls are certain by now, and the turn that it would make.


class RunningStream:
    """evalkit's own view of a stream that an agent reads. `index` is that of its model turn.

    It is kept apart from the agent's: a call that the agent makes before it is whole here was not the model's.
    """

    def __init__(self, index: int, functions: Iterable[Any]) -> None:
        self.index = index
        self._accumulator = StreamAccumulator(list(functions) or None)
        self._channel = "native"

    def feed(self, chunk: Chunk) -> None:
        self._channel = "text" if chunk.wire == "text" else "native"
        chunk.feed(self._accumulator)

    def take_certain_calls(self) -> list[ModelCall]:
        """The calls that have become certain since it was last asked."""
        return [
            ModelCall(
                name=call.name,
                arguments=call.arguments,
                call_id=call.id,
                channel=self._channel,
                repairs=call.repairs,
            )
            for call in self._accumulator.take()
        ]

    def finish(self) -> list[ModelCall]:
        """The calls that only the end has made certain. What is unfinished is none."""
        try:
            self._accumulator.close()
        except IncompleteCallError:
            return self.take_certain_calls()
        return self.take_certain_calls()

    def build_turn(self) -> ModelTurn:
        """The turn of a stream that nobody read to its end."""
        calls = () if self._channel == "text" else self._accumulator.completed
        model_calls = tuple(ModelCall(name=call.name, arguments=call.arguments, call_id=call.id) for call in calls)
        return ModelTurn(text=self._accumulator.text, calls=model_calls, finish_reason="truncated")
