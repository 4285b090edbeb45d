"""The calls of a reply: which of those on the wire a framework executes, and in which order they begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from evalkit.records.transcript import ModelCall, ModelTurn

PATIENCE = 100  # milliseconds that a call waits for those before it in its reply


class CallOrder:
    """The calls that each reply asked for and that have not begun yet, in the reply's order.

    `record_held` records the answer that is kept for a call, and returns whether there was one.
    """

    def __init__(self, record_held: Callable[[ModelCall], bool]) -> None:
        self._record_held = record_held
        self._pending: dict[int, list[ModelCall]] = {}  # by turn
        self._waiting_ids: set[int] = set()  # of these, what waits for its turn

    def add(self, turn: int, call: ModelCall) -> None:
        """Add a call that reply `turn` asks for, behind those before it."""
        self._pending.setdefault(turn, []).append(call)

    def remove(self, turn: int | None, call: ModelCall) -> None:
        """Remove a call that has begun, or never will."""
        pending = self._get_pending(turn)
        pending[:] = [waiter for waiter in pending if waiter is not call]

    def is_behind_others(self, turn: int, call: ModelCall) -> bool:
        """Return whether a call that has not begun stands behind others."""
        return any(waiter is call for waiter in self._get_pending(turn)[1:])

    async def wait(self, turn: int | None, call: ModelCall) -> None:
        """Let the calls that the reply asked for before this one begin first, whichever callbacks of the agent's own
        hold them up; but not for long, since one that a guardrail stops never begins.
        """
        pending = self._get_pending(turn)
        if not any(waiter is call for waiter in pending):
            return
        self._waiting_ids.add(id(call))
        patience = PATIENCE
        try:
            while pending[0] is not call:
                if self._record_held(first := pending[0]):
                    self.remove(turn, first)
                    continue
                await asyncio.sleep(0.001)  # no event: the others may run on other loops
                patience -= 1  # counted, not timed: the loop itself may be held up
                if not patience:
                    pending[:] = [waiter for waiter in pending if id(waiter) in self._waiting_ids]
        finally:
            self.remove(turn, call)

    def _get_pending(self, turn: int | None) -> list[ModelCall]:
        return self._pending.get(-1 if turn is None else turn, [])


def score_turn(turn: ModelTurn, seen: ModelTurn) -> tuple[int, bool, bool] | None:
    """Rate how well `turn` of a framework fits one that was `seen` on the wire; None: it is another one."""
    names, seen_names = [call.name for call in turn.calls], [call.name for call in seen.calls]
    ids = {call.call_id for call in turn.calls if call.call_id} & {call.call_id for call in seen.calls}
    remaining = iter(seen_names)
    is_part = all(name in remaining or name in seen.text for name in names)  # in this order, with others in between
    if not ids and not is_part:
        return None
    return len(ids), names == seen_names, turn.text.strip() == seen.text.strip()


def join_calls(calls: Sequence[ModelCall], seen: Sequence[ModelCall]) -> tuple[ModelCall, ...]:
    """Return for each of `calls`, which a framework executes, the call that the model wrote: of those `seen` on the
    wire the one of its id, else the next of its name. One that is not there was read from the reply's text.
    """
    left = list(seen)
    joined: dict[int, ModelCall] = {}
    for is_same in (_has_same_id_and_name, _has_same_id, _has_same_name):
        for position, call in enumerate(calls):
            match = next((other for other in left if is_same(call, other)), None) if position not in joined else None
            if match is not None:
                joined[position] = match
                left = [other for other in left if other is not match]
    return tuple(joined.get(position) or replace(call, channel="text") for position, call in enumerate(calls))


def _has_same_id(call: ModelCall, other: ModelCall) -> bool:
    return call.call_id is not None and call.call_id == other.call_id


def _has_same_name(call: ModelCall, other: ModelCall) -> bool:
    return call.name == other.name


def _has_same_id_and_name(call: ModelCall, other: ModelCall) -> bool:
    return _has_same_id(call, other) and call.name == other.name
