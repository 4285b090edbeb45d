"""One attempt to call a function, from the moment it is made to its record."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from evalkit.errors import EvalkitError, FunctionError
from evalkit.functions.choosing import SelectedAnswer
from evalkit.functions.jsondata import to_recordable_json
from evalkit.model.transcript import FunctionCall, Violation


class MockedError(FunctionError):
    """The failure that `$error` asks for. Patched code gets `exception` ("module:Class") raised, if it is set."""

    exception: str | None = None


class CallContext(Struct):
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
    refusal: FunctionError | None = None
    as_is: bool = False


class PendingCall(Struct, kw_only=True):
    """Mutable while the call runs; `record` is the frozen outcome, None until then."""

    name: str
    requested_name: str | None
    index: int = 0
    arguments: Any  # a snapshot of what the caller sent
    context: CallContext
    violations: tuple[Violation, ...] = ()
    problem: str | None = None
    selection: SelectedAnswer | None = None  # None: refused, and `error` says why
    real: Callable[[], Any] | None = None  # the patched function itself, where patched code makes the call
    is_async: bool = False  # the caller is async
    awaitable: Awaitable[Any] | None = None
    raw_result: Any = None
    error: BaseException | None = None
    result: Any = None
    returned_value: Any = None
    elapsed_ms: float = 0.0  # real time of a real function
    record: FunctionCall | None = None
    is_done: bool = False

    @property
    def returns_raw(self) -> bool:
        """Whether the caller is patched code, which gets the very object that a callable made."""
        return self.real is not None

    @property
    def delay_ms(self) -> float:
        return self.selection.delay_ms if self.selection is not None else 0.0

    @property
    def duration_ms(self) -> float:
        return self.delay_ms + self.elapsed_ms

    def to_record(self) -> FunctionCall:
        """The record; of a call that is still running, what is known of it."""
        if self.record is not None:
            return self.record
        if not self.is_done:
            unfinished = {"type": "unfinished", "message": f"{self.name} had not answered when the run ended"}
            return self._build_record("error", {"error": unfinished})
        self.record = self._build_record("ok" if self.error is None else "error", self.result)
        return self.record

    def _build_record(self, outcome: str, result: Any) -> FunctionCall:
        context = self.context
        return FunctionCall(
            name=self.name,
            arguments=self.arguments,
            index=self.index,
            outcome=outcome,
            result=result,
            turn=context.turn,
            user_turn=context.user_turn,
            channel=context.channel,
            call_id=context.call_id,
            requested_name=self.requested_name,
            duration_ms=self.duration_ms,
            problem=self.problem,
            violations=self.violations,
            repairs=context.repairs,
            answered_by=self.selection.label or None if self.selection is not None else None,
        )


def build_error_result(error: BaseException) -> dict[str, Any]:
    """``{"error": {"type": ..., "message": ...}}``: a failed call's result, as the record and the model get it."""
    if isinstance(error, CancelledError):
        return {"error": {"type": "cancelled", "message": "the run was stopped before the function answered"}}
    if isinstance(error, FunctionError):
        return {"error": {"type": error.type, "message": error.message, **to_recordable_json(error.detail)}}
    kind = error.code if isinstance(error, EvalkitError) else type(error).__name__
    return {"error": {"type": kind, "message": str(error)}}
