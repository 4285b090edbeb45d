"""The calls of one run: opened in order, closed with a record whatever happens in between."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from evalkit.errors import FunctionError, MockError
from evalkit.functions.attempt import CallContext, PendingCall
from evalkit.functions.choosing import MockState, SelectedAnswer, UnansweredError
from evalkit.functions.jsondata import to_recordable_json
from evalkit.functions.mocks import MockSet, RealAnswer, StaticAnswer
from evalkit.functions.routing import MALFORMED, UNKNOWN, UNMOCKED, FunctionTable
from evalkit.functions.violations import find_argument_violations
from evalkit.model.transcript import FunctionCall

if TYPE_CHECKING:
    from evalkit.functions.resolving import TemplateRoots

LOGGER = logging.getLogger("evalkit.functions")


class CallLog:
    """Attempts by index, and what of the mocks they used. Thread-safe."""

    def __init__(
        self, mocks: MockSet, functions: FunctionTable, input: Any, state: dict[str, Any], case_id: str
    ) -> None:
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
        """The records of the calls that have returned, in order of index."""
        return [record for call in tuple(self._calls) if (record := call.record) is not None]

    def build_roots(self, arguments: Any) -> TemplateRoots:
        """What templates mean in the answer to a call with these arguments."""
        from evalkit.functions.resolving import TemplateRoots

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
        arguments: Any,
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

    def _build_log_fields(self, record: FunctionCall) -> dict[str, Any]:
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
