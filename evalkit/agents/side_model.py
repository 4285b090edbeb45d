"""Models that are asked beside the one under test: to grade, to play a user. Each has deadlines, tokens and a
recording of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from evalkit.agents.clock import WaitingTime, now
from evalkit.errors import ProviderError
from evalkit.jsonvalue import JsonDict
from evalkit.models.cassettes.http.interception import bypass_interception
from evalkit.models.providers.base import Provider
from evalkit.models.providers.pacing import queue_context
from evalkit.records.transcript import ModelRequest, ModelTurn
from evalkit.text.format import format_deadline

LOGGER = logging.getLogger("evalkit.records")


class SideModel:
    """The model that plays `role` in one run of a case. `describe` makes of a request what the log shows of it."""

    def __init__(
        self,
        role: str,
        case_id: str,
        provider: Provider,
        name: str | None,
        describe: Callable[[ModelRequest], JsonDict],
        *,
        is_live: bool = False,
    ) -> None:
        self.role = role
        self.name = name
        self._case_id = case_id
        self._provider = provider
        self._describe = describe
        # evalkit's own requests pass where those of agents' clients are intercepted.
        self._bypass: Callable[[], AbstractContextManager[None]] = bypass_interception if is_live else nullcontext

    async def turn(self, request: ModelRequest, deadline_s: float) -> ModelTurn:
        """Return the answer. Raises MissingCassetteError, StaleCassetteError, BudgetSpentError, and ProviderError, also
        after the deadline, which stands still while the request is queued at the service.
        """
        queueing_time = WaitingTime()
        answer = asyncio.create_task(self._send_request(request, queueing_time))
        until = now() + deadline_s
        try:
            while not answer.done() and (remaining_s := until + queueing_time.seconds - now()) > 0:
                await asyncio.wait({answer}, timeout=max(remaining_s, 0.02))  # `remaining_s` may stand still
            if answer.done():
                return answer.result()
        finally:
            answer.cancel()
        raise ProviderError(f"{self.role} gave no answer within {format_deadline(deadline_s)}")

    async def _send_request(self, request: ModelRequest, queueing_time: WaitingTime) -> ModelTurn:
        queue_context.set(queueing_time.measure)
        if LOGGER.isEnabledFor(logging.INFO):
            details = {"case_id": self._case_id, "request": self._describe(request)}
            LOGGER.info("asking %s: %s", self.role, self.name, extra=details)
        with self._bypass():
            return await self._provider.turn(request)

    def save(self) -> None:
        """Write the recording, if there is one."""
        save = getattr(self._provider, "save", None)
        if save is not None:
            save()
