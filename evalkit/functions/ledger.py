"""The calls of one run: opened in order, closed with a record whatever happens in between."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from evalkit.errors import FunctionError, MockError
from evalkit.functions.attempt import Attempt, Origin
from evalkit.functions.choosing import Chosen, Progress, UnansweredError
from evalkit.functions.jsondata import recorded
from evalkit.functions.mocks import MockSet, Real, Static
from evalkit.functions.routing import MALFORMED, UNKNOWN, UNMOCKED, Routes
from evalkit.functions.violations import argument_violations
from evalkit.model.transcript import FunctionCall

if TYPE_CHECKING:
    from evalkit.functions.resolving import Roots

LOGGER = logging.getLogger("evalkit.functions")


class Ledger:
    """Attempts by index, and what of the mocks they used. Thread-safe."""

    def __init__(self, mocks: MockSet, routes: Routes, input: Any, state: dict[str, Any], case_id: str) -> None:
        self._mocks = mocks
        self._routes = routes
        self._input = input
        self._state = state
        self._case_id = case_id
        self._progress = Progress()
        self._attempts: list[Attempt] = []
        self._called: set[str] = set()
        self._lock = threading.Lock()
        self.fault: MockError | None = None

    def finished(self) -> list[FunctionCall]:
        """The records of the calls that have returned, in order of index."""
        return [record for attempt in tuple(self._attempts) if (record := attempt.record) is not None]

    def roots(self, arguments: Any) -> Roots:
        """What templates mean in the answer to a call with these arguments."""
        from evalkit.functions.resolving import Roots

        return Roots(arguments, self._input, self._state, self.finished, self._routes.canonical)

    def calls(self) -> tuple[FunctionCall, ...]:
        return tuple(attempt.frozen() for attempt in tuple(self._attempts))

    def unused(self) -> tuple[str, ...]:
        with self._lock:
            unknown = frozenset(attempt.name for attempt in self._attempts if attempt.problem == UNKNOWN)
            return tuple(self._progress.unused(self._mocks, frozenset(self._called), unknown))

    def open(
        self,
        requested: str,
        arguments: Any,
        origin: Origin,
        offered: Container[str] | None,
        real: Callable[[], Any] | None,
    ) -> Attempt:
        """Give the call its index and choose what answers it, or refuse it; both stand on the attempt."""
        name = self._routes.canonical(requested)
        attempt = Attempt(
            name=name,
            requested_name=requested if requested != name else None,
            arguments={} if arguments is None else recorded(arguments),
            origin=origin,
            real=real,
        )
        declaration = self._routes.declaration(name)
        if declaration is not None and isinstance(attempt.arguments, dict) and origin.malformed is None:
            attempt.violations = argument_violations(declaration, attempt.arguments)
        attempt.error = self._refusal(attempt, origin.malformed, offered)
        with self._lock:
            attempt.index = len(self._attempts)
            self._attempts.append(attempt)
            if attempt.error is None:
                self._choose(attempt)
        if isinstance(attempt.error, FunctionError) and attempt.error is not origin.refused:
            attempt.problem = attempt.error.type
        return attempt

    def _refusal(self, attempt: Attempt, malformed: str | None, offered: Container[str] | None) -> FunctionError | None:
        arguments = None if malformed is not None else attempt.arguments
        refusal = self._routes.refusal(attempt.name, arguments, attempt.origin.channel, offered)
        if refusal is not None and refusal.type == MALFORMED and malformed is not None:
            return FunctionError(MALFORMED, f"the arguments of {attempt.name} could not be read: {malformed}")
        if refusal is not None and refusal.type == UNMOCKED and attempt.origin.as_is:
            refusal = None
        return refusal or attempt.origin.refused

    def _choose(self, attempt: Attempt) -> None:
        mock = self._routes.mock(attempt.name)
        if mock is None:  # and it was not refused: it runs as it is
            attempt.chosen = Chosen(Real(), label="as it is")
            return
        written_as, answer = mock
        self._called.add(written_as)
        if type(answer) is Static:  # as most are: there is nothing to choose
            attempt.chosen = Chosen(answer)
            return
        resolve = self.roots(attempt.arguments).resolve
        try:
            attempt.chosen = self._progress.choose(attempt.name, answer, attempt.arguments, resolve)
        except UnansweredError as error:
            attempt.error = FunctionError(UNMOCKED, str(error))

    def close(self, attempt: Attempt) -> None:
        """Freeze the record, keep the first fault, write the log."""
        attempt.done = True
        if isinstance(attempt.error, MockError):
            self.fault = self.fault or attempt.error
        record = attempt.frozen()
        if LOGGER.isEnabledFor(logging.INFO):
            LOGGER.info("%s: %s", record.name, record.outcome, extra=self._logged(record))

    def _logged(self, record: FunctionCall) -> dict[str, Any]:
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
