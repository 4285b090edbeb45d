"""One attempt to call a function, from the moment it is made to its record."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from evalkit.errors import EvalkitError, FunctionError
from evalkit.functions.choosing import Chosen
from evalkit.functions.jsondata import recorded
from evalkit.model.transcript import FunctionCall, Violation


class MockedError(FunctionError):
    """The failure that `$error` asks for. Patched code gets `exception` ("module:Class") raised, if it is set."""

    exception: str | None = None


class Origin(Struct):
    """Where a call comes from, as it will stand in the record, and why its arguments could not be read, if so.

    `refused`: the caller itself does not make the call, and this is what it says. `as_is`: the function runs though
    nothing mocks it, for it is the agent's own: another agent, whose time is no function's.
    """

    turn: int | None
    user_turn: int
    channel: str
    call_id: str | None
    repairs: tuple[str, ...]
    malformed: str | None
    refused: FunctionError | None = None
    as_is: bool = False


class Attempt(Struct, kw_only=True):
    """Mutable while the call runs; `record` is the frozen outcome, None until then."""

    name: str
    requested_name: str | None
    index: int = 0
    arguments: Any  # a snapshot of what the caller sent
    origin: Origin
    violations: tuple[Violation, ...] = ()
    problem: str | None = None
    chosen: Chosen | None = None  # None: refused, and `error` says why
    real: Callable[[], Any] | None = None  # the patched function itself, where patched code makes the call
    in_loop: bool = False  # the caller is async
    pending: Awaitable[Any] | None = None
    raw: Any = None
    error: BaseException | None = None
    result: Any = None
    value: Any = None
    elapsed_ms: float = 0.0  # real time of a real function
    record: FunctionCall | None = None
    done: bool = False

    @property
    def keep_raw(self) -> bool:
        """Whether the caller is patched code, which gets the very object that a callable made."""
        return self.real is not None

    @property
    def delay_ms(self) -> float:
        return self.chosen.delay_ms if self.chosen is not None else 0.0

    @property
    def duration_ms(self) -> float:
        return self.delay_ms + self.elapsed_ms

    def frozen(self) -> FunctionCall:
        """The record; of a call that is still running, what is known of it."""
        if self.record is not None:
            return self.record
        if not self.done:
            unfinished = {"type": "unfinished", "message": f"{self.name} had not answered when the run ended"}
            return self._frozen("error", {"error": unfinished})
        self.record = self._frozen("ok" if self.error is None else "error", self.result)
        return self.record

    def _frozen(self, outcome: str, result: Any) -> FunctionCall:
        origin = self.origin
        return FunctionCall(
            name=self.name,
            arguments=self.arguments,
            index=self.index,
            outcome=outcome,
            result=result,
            turn=origin.turn,
            user_turn=origin.user_turn,
            channel=origin.channel,
            call_id=origin.call_id,
            requested_name=self.requested_name,
            duration_ms=self.duration_ms,
            problem=self.problem,
            violations=self.violations,
            repairs=origin.repairs,
            answered_by=self.chosen.label or None if self.chosen is not None else None,
        )


def error_result(error: BaseException) -> dict[str, Any]:
    """``{"error": {"type": ..., "message": ...}}``: a failed call's result, as the record and the model get it."""
    if isinstance(error, CancelledError):
        return {"error": {"type": "cancelled", "message": "the run was stopped before the function answered"}}
    if isinstance(error, FunctionError):
        return {"error": {"type": error.type, "message": error.message, **recorded(error.detail)}}
    kind = error.code if isinstance(error, EvalkitError) else type(error).__name__
    return {"error": {"type": kind, "message": str(error)}}
