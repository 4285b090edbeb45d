"""The function calls of one run: from the moment a call is made to its record."""

from __future__ import annotations

import logging
import threading
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Container, Iterable
from typing import Any

from msgspec import Struct

from evalkit.errors import EvalkitError, FunctionError, MockError
from evalkit.functions.arguments import find_argument_violations
from evalkit.functions.function_table import MALFORMED, UNKNOWN, UNMOCKED, FunctionTable
from evalkit.functions.mocks.answers import MockSet, RealAnswer, StaticAnswer
from evalkit.functions.mocks.state import MockState, SelectedAnswer, UnansweredError
from evalkit.jsonvalue import JsonDict, JsonObject, to_recordable_json
from evalkit.model.template import Reference, TemplateError, follow_path
from evalkit.model.transcript import FunctionCall, Violation


class MockedError(FunctionError):
    """The failure that `$error` asks for. Patched code gets `exception` ("module:Class") raised, if it is set."""

    exception: str | None = None


class CallContext(Struct):
    """The origin of a call, as it will stand in the record, and the reason if its arguments could not be read.

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
        """True if the caller is patched code, which gets the very object that a callable made."""
        return self.real is not None

    @property
    def delay_ms(self) -> float:
        return self.selection.delay_ms if self.selection is not None else 0.0

    @property
    def duration_ms(self) -> float:
        return self.delay_ms + self.elapsed_ms

    def to_record(self) -> FunctionCall:
        """Return the record; of a call that is still running, what is known of it."""
        if self.record is not None:
            return self.record
        if not self.is_done:
            unfinished = {"type": "unfinished", "message": f"{self.name} had not answered when the run ended"}
            return self._build_record("error", {"error": unfinished})
        self.record = self._build_record("ok" if self.error is None else "error", self.result)
        return self.record

    def _build_record(self, outcome: str, result: object) -> FunctionCall:
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


def build_error_result(error: BaseException) -> JsonDict:
    """``{"error": {"type": ..., "message": ...}}``: a failed call's result, as the record and the model get it."""
    if isinstance(error, CancelledError):
        return {"error": {"type": "cancelled", "message": "the run was stopped before the function answered"}}
    if isinstance(error, FunctionError):
        return {"error": {"type": error.type, "message": error.message, **to_recordable_json(error.detail)}}
    kind = error.code if isinstance(error, EvalkitError) else type(error).__name__
    return {"error": {"type": kind, "message": str(error)}}


LOGGER = logging.getLogger("evalkit.functions")


class CallLog:
    """Attempts by index, and what of the mocks they used. Thread-safe."""

    def __init__(self, mocks: MockSet, functions: FunctionTable, input: object, state: JsonDict, case_id: str) -> None:
        self._mocks = mocks
        self._functions = functions
        self._input = input
        self._state = state
        self._case_id = case_id
        self._mock_state = MockState()
        self._calls: list[PendingCall] = []
        self._used_mocks: set[str] = set()
        self._lock = threading.Lock()
        self.fault: MockError | None = None

    def list_finished(self) -> list[FunctionCall]:
        """Return the records of the calls that have returned, in order of index."""
        return [record for call in tuple(self._calls) if (record := call.record) is not None]

    def build_roots(self, arguments: object) -> TemplateRoots:
        """Build the values of templates in the answer to a call with these arguments."""

        return TemplateRoots(arguments, self._input, self._state, self.list_finished, self._functions.resolve_name)

    def list_records(self) -> tuple[FunctionCall, ...]:
        return tuple(call.to_record() for call in tuple(self._calls))

    def find_unused(self) -> tuple[str, ...]:
        with self._lock:
            unknown_names = frozenset(call.name for call in self._calls if call.problem == UNKNOWN)
            return tuple(self._mock_state.find_unused(self._mocks, frozenset(self._used_mocks), unknown_names))

    def open(
        self,
        requested_name: str,
        arguments: object,
        context: CallContext,
        offered_names: Container[str] | None,
        real: Callable[[], Any] | None,
    ) -> PendingCall:
        """Give the call its index and choose what answers it, or refuse it; both stand on the attempt."""
        name = self._functions.resolve_name(requested_name)
        call = PendingCall(
            name=name,
            requested_name=requested_name if requested_name != name else None,
            arguments={} if arguments is None else to_recordable_json(arguments),
            context=context,
            real=real,
        )
        declaration = self._functions.find_declaration(name)
        if declaration is not None and isinstance(call.arguments, dict) and context.malformed is None:
            call.violations = find_argument_violations(declaration, call.arguments)
        call.error = self._find_refusal(call, context.malformed, offered_names)
        with self._lock:
            call.index = len(self._calls)
            self._calls.append(call)
            if call.error is None:
                self._select_answer(call)
        if isinstance(call.error, FunctionError) and call.error is not context.refusal:
            call.problem = call.error.type
        return call

    def _find_refusal(
        self, call: PendingCall, malformed: str | None, offered_names: Container[str] | None
    ) -> FunctionError | None:
        arguments = None if malformed is not None else call.arguments
        refusal = self._functions.find_refusal(call.name, arguments, call.context.channel, offered_names)
        if refusal is not None and refusal.type == MALFORMED and malformed is not None:
            return FunctionError(MALFORMED, f"the arguments of {call.name} could not be read: {malformed}")
        if refusal is not None and refusal.type == UNMOCKED and call.context.as_is:
            refusal = None
        return refusal or call.context.refusal

    def _select_answer(self, call: PendingCall) -> None:
        mock = self._functions.find_mock(call.name)
        if mock is None:  # and it was not refused: it runs as it is
            call.selection = SelectedAnswer(RealAnswer(), label="as it is")
            return
        mock_name, answer = mock
        self._used_mocks.add(mock_name)
        if type(answer) is StaticAnswer:  # as most are: there is nothing to choose
            call.selection = SelectedAnswer(answer)
            return
        resolve = self.build_roots(call.arguments).resolve
        try:
            call.selection = self._mock_state.select(call.name, answer, call.arguments, resolve)
        except UnansweredError as error:
            call.error = FunctionError(UNMOCKED, str(error))

    def close(self, call: PendingCall) -> None:
        """Freeze the record, keep the first fault, write the log."""
        call.is_done = True
        if isinstance(call.error, MockError):
            self.fault = self.fault or call.error
        record = call.to_record()
        if LOGGER.isEnabledFor(logging.INFO):
            LOGGER.info("%s: %s", record.name, record.outcome, extra=self._build_log_fields(record))

    def _build_log_fields(self, record: FunctionCall) -> JsonDict:
        return {
            "function_name": record.name,
            "arguments": record.arguments,
            "result": record.result,
            "outcome": record.outcome,
            "call_index": record.index,
            "call_id": record.call_id,
            "turn": record.turn,
            "user_turn": record.user_turn,
            "channel": record.channel,
            "duration_ms": record.duration_ms,
            "problem": record.problem,
            "requested_name": record.requested_name,
            "answered_by": record.answered_by,
            "case_id": self._case_id,
        }


class TemplateRoots(Struct, frozen=True):
    """The four roots. `calls` gives the records so far, `canonical` the name of an alias."""

    arguments: Any
    input: Any
    state: JsonObject
    calls: Callable[[], Iterable[FunctionCall]]
    resolve_name: Callable[[str], str]

    def resolve(self, reference: Reference) -> Any:
        """Return the value of `reference`; TemplateError where it leads nowhere."""
        if reference.root == "calls":
            first, *rest = reference.path
            name = self.resolve_name(str(first))
            successful_calls = [call for call in self.calls() if call.name == name and call.outcome == "ok"]
            number = rest.pop(0) if rest and isinstance(rest[0], int) else 1
            if not isinstance(number, int) or not 0 < number <= len(successful_calls):
                times = {0: "has not succeeded yet", 1: "has succeeded once"}.get(
                    len(successful_calls), f"has succeeded {len(successful_calls)} times"
                )
                raise TemplateError(f"template {reference.text} leads nowhere: {name} {times}")
            call = successful_calls[number - 1]
            return follow_path({"arguments": call.arguments, "result": call.result}, tuple(rest), reference.text)
        return follow_path(getattr(self, reference.root), reference.path, reference.text)
