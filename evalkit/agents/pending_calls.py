"""Calls that the model has asked for and code may still execute.

A call that code makes is recorded with the turn, channel and id of the model's call that it executes, if there is one.
Calls of the latest turn come first: calls that an older turn asked for and nobody executed were most likely given up.
A reply without native calls may hold calls as text, which the agent's own loop reads and executes; its text is searched
only when code calls a function that no native call asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from evalkit.agents.text_replies import parse_text, to_model_calls
from evalkit.errors import IncompleteCallError
from evalkit.functions.call_log import DIRECT, CallContext, CallLog, FunctionTable
from evalkit.jsonvalue import JsonObject
from evalkit.models.providers.turns import Chunk
from evalkit.models.streaming import StreamAccumulator
from evalkit.records.case import Declaration
from evalkit.records.transcript import CallAnswer, HostedCall, ModelCall, ModelTurn


class PendingToolCall(Struct, eq=False):
    """A call that the model has asked for. `since` is the number of function calls that had been made by then."""

    turn: int
    position: int
    call: ModelCall
    user_turn: int
    since: int
    is_forced: bool = False
    is_executed: bool = False
    is_answered: bool = False


class PendingToolCalls:
    """Calls that the model has asked for and code may still execute. The caller holds a lock."""

    def __init__(self, call_log: CallLog) -> None:
        self._call_log = call_log
        self._calls: list[PendingToolCall] = []  # those that were executed too: their answers come back
        self._texts: list[tuple[int, str]] = []

    def add(
        self, index: int, calls: Sequence[ModelCall], since: int | None = None, forced_name: str | None = None
    ) -> None:
        """Add calls of turn `index`."""
        first_call = len(self._call_log) if since is None else since
        first_position = sum(pending.turn == index for pending in self._calls)
        user_turn = self._call_log.user_turn
        for position, call in enumerate(calls, first_position):
            is_forced = call.name == forced_name
            self._calls.append(PendingToolCall(index, position, call, user_turn, first_call, is_forced))

    def add_turn(self, index: int, turn: ModelTurn, forced_name: str | None = None) -> None:
        """Add the calls of a whole turn, or the text that may hold some."""
        self.add(index, turn.calls, forced_name=forced_name)
        if turn.text and not turn.calls:
            self._texts.append((index, turn.text))

    def discard_turn(self, index: int, kept: Sequence[ModelCall] = ()) -> None:
        """Forget the calls of a turn that another component executes, all but those that are `kept`."""
        for pending in self._calls:
            is_kept = any(pending.call is call for call in kept)
            pending.is_executed = pending.is_executed or (pending.turn == index and not is_kept)
        self._texts = [(turn, text) for turn, text in self._texts if turn != index]

    def discard_call(self, turn: int | None, call: ModelCall) -> None:
        """Forget one call of a turn."""
        match = next((pending for pending in self._list_open() if pending.turn == turn and pending.call == call), None)
        if match is not None:
            match.is_executed = True

    def take(self, name: str, arguments: JsonObject, functions: FunctionTable, defaults: JsonObject) -> CallContext:
        """Return the context of the call that fits, which is executed now; DIRECT if none fits.

        If none is the same, it is one that is so with the `defaults` of the parameters that it leaves out.
        """
        if not self._calls and not self._texts:
            return DIRECT
        for index, text in self._texts:
            self.add(index, to_model_calls(parse_text(text, functions.declarations)))
        self._texts.clear()
        full_name = functions.resolve_name(name)
        named = [
            pending
            for pending in self._list_open()
            if functions.resolve_name(pending.call.name) == full_name and isinstance(pending.call.arguments, dict)
        ]
        fitting = [pending for pending in named if is_equal(pending.call.arguments, arguments)]
        if not fitting and defaults:
            filled = {parameter: default for parameter, default in defaults.items() if parameter in arguments}
            fitting = [pending for pending in named if is_equal({**filled, **pending.call.arguments}, arguments)]
        if not fitting:
            return DIRECT
        best = max(fitting, key=lambda pending: pending.turn)  # the first of the latest turn
        best.is_executed = True
        context = CallContext.of_call(best.call, best.turn, position=best.position)
        return replace(context, written=best.call.arguments) if defaults else context

    def take_answered(self, answer: CallAnswer) -> PendingToolCall | None:
        """Return the call that `answer` belongs to, by its id or else by its name; None if it has its answer."""
        latest_first = sorted(self._calls, key=lambda pending: (-pending.turn, pending.position))
        for pending in latest_first:
            call_id, name = pending.call.call_id, pending.call.name
            is_same = call_id == answer.call_id if call_id and answer.call_id else name == answer.name
            if is_same and not pending.is_answered:
                pending.is_answered = True
                return pending
        return None

    def take_unanswered(self) -> list[PendingToolCall]:
        """Return the calls that the model itself chose to make. What stood in a text may be an example."""
        unanswered = [
            pending for pending in self._list_open() if not pending.is_forced and pending.call.channel != "text"
        ]
        self._calls.clear()
        return unanswered

    def _list_open(self) -> list[PendingToolCall]:
        return [pending for pending in self._calls if not (pending.is_executed or pending.is_answered)]


def is_equal(expected: object, actual: object) -> bool:
    """Compare values of any kind; those that can't be compared are not equal."""
    try:
        return bool(expected == actual)
    except Exception:  # patched code and frameworks pass what they like: arrays have no truth value
        return False


_WORD = re.compile(r"[^\W\d]+(-[^\W\d]+)*")  # letters and _: a status, a choice


def contradicts(value: object, result: object) -> bool:
    """Return whether an answer says otherwise, under a name that it shares with a mock's result: another word, or no
    for yes. Numbers are rounded, dates and texts are worded anew, and lists are cut: they tell nothing."""
    if isinstance(value, Mapping) and isinstance(result, Mapping):
        return any(contradicts(value[key], result[key]) for key in value.keys() & result.keys())
    if isinstance(value, str) and isinstance(result, str):
        one, other = value.casefold(), result.casefold()
        are_words = _WORD.fullmatch(one) is not None and _WORD.fullmatch(other) is not None
        return are_words and one not in other and other not in one
    return isinstance(value, bool) and isinstance(result, bool) and value != result


class RunningStream:
    """evalkit's own view of a stream that an agent reads. `index` is that of its model turn, `since` the number of
    function calls that had been made when it began.

    It is kept apart from the agent's: a call that the agent makes before it is complete here was not the model's.
    """

    def __init__(self, index: int, functions: Sequence[Declaration], since: int) -> None:
        self.index = index
        self.since = since
        self._accumulator = StreamAccumulator(list(functions) or None)
        self._channel = "native"
        self._hosted: tuple[HostedCall, ...] = ()

    def feed(self, chunk: Chunk) -> None:
        self._hosted += chunk.hosted
        self._channel = "text" if chunk.wire == "text" else "native"
        chunk.feed(self._accumulator)

    def take_complete_calls(self) -> list[ModelCall]:
        """Return the calls that have become complete since the last call of this method."""
        return [
            ModelCall(
                name=call.name, arguments=call.arguments, call_id=call.id, channel=self._channel, repairs=call.repairs
            )
            for call in self._accumulator.take()
        ]

    def finish(self) -> list[ModelCall]:
        """Return the calls that only the end of the stream completes, without an unfinished one."""
        with suppress(IncompleteCallError):
            self._accumulator.close()
        return self.take_complete_calls()

    def build_turn(self) -> ModelTurn:
        """Build the turn of a stream that was not read to its end."""
        calls = () if self._channel == "text" else self._accumulator.completed
        model_calls = tuple(ModelCall(name=call.name, arguments=call.arguments, call_id=call.id) for call in calls)
        return ModelTurn(text=self._accumulator.text, calls=model_calls, finish_reason="truncated", hosted=self._hosted)
