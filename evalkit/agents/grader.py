"""Who grades a case: its recorded grades, as long as they fit, or the model that `settings.grader` names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from evalkit.agents.clock import WaitingTime, now
from evalkit.agents.grading import GRADE
from evalkit.agents.live import MeteredProvider
from evalkit.agents.models import build_cassette_name, get_shared_provider
from evalkit.errors import MeasurementError, MissingCassetteError, ProviderError
from evalkit.model.settings import Settings
from evalkit.model.transcript import ModelRequest, ModelTurn
from evalkit.providers.asked import redact_secrets
from evalkit.providers.cassettefile import Cassette
from evalkit.providers.grades import (
    ANY_GRADER,
    RECORD_COMMAND,
    RecordedGrades,
    build_grades_path,
    describe_grading_request,
    find_grades,
    format_path,
)
from evalkit.providers.limits import queue_context
from evalkit.providers.protocol import Provider

LOGGER = logging.getLogger("evalkit.model")


class Grader:
    """Answers the grading requests of one run. `name` and `cassette` say of its grades where they are from."""

    def __init__(
        self,
        case_id: str,
        provider: Provider,
        name: str | None,
        cassette: str | None = None,
        interception_bypass: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.name = name
        self.cassette = cassette
        self._case_id = case_id
        self._provider = provider
        self._interception_bypass = (
            interception_bypass  # around its requests, where those of agents' clients are caught
        )

    async def turn(self, request: ModelRequest, deadline_s: float) -> ModelTurn:
        """The grader's answer. Raises MissingCassetteError, StaleCassetteError, BudgetSpentError, and ProviderError,
        also if it takes longer than the deadline, which stands still while it waits for its turn at the service.
        """
        queued = WaitingTime()
        running = asyncio.create_task(self._send_request(request, queued))
        until = now() + deadline_s
        try:
            while not running.done() and (remaining_s := until + queued.seconds - now()) > 0:
                await asyncio.wait({running}, timeout=max(remaining_s, 0.02))  # `left` stands still while it queues
            if running.done():
                return running.result()
        finally:
            running.cancel()
        raise ProviderError(f"the grader gave no answer within {deadline_s:g} s, its deadline (settings.deadline_s)")

    async def _send_request(self, request: ModelRequest, queued: WaitingTime) -> ModelTurn:
        queue_context.set(queued.measure)
        if LOGGER.isEnabledFor(logging.INFO):
            details = {"case_id": self._case_id, "request": describe_grading_request(request)}
            LOGGER.info("asking the grader: %s", self.name, extra=details)
        with self._interception_bypass():
            return await self._provider.turn(request)

    def save(self) -> None:
        """Write what was recorded, if anything was."""
        save = getattr(self._provider, "save", None)
        if save is not None:
            save()


def select_grader(case_id: str, run: int, settings: Settings) -> Grader:
    """The grader of one run of a case.

    Recorded grades answer, unless the run goes live, where the agent does not do what it did then, or
    ``settings.record`` wants them anew. `settings.extra["grader"]`, a callable ``(case_id, run) -> Provider``,
    overrides the choice. Raises MissingCassetteError and MeasurementError with the next step where nobody grades.
    """
    chosen = settings.extra.get("grader")
    if chosen is not None:
        provider: Provider = chosen(case_id, run)
        return Grader(case_id, provider, provider.name)
    root = settings.root or Path.cwd()
    base = root / settings.cassettes / build_cassette_name(case_id)
    goes_live = settings.model is not None and settings.record is None
    again = settings.record == "all" and settings.grader is not None
    recorded = None if goes_live or again else find_grades(base, run, root)
    if recorded is not None:
        return _build_replaying_grader(case_id, recorded, settings)
    if settings.grader is None:
        raise _make_no_grader_error(format_path(build_grades_path(base, run), root), goes_live=goes_live)
    return _build_live_grader(case_id, settings.grader, build_grades_path(base, run), settings)


def _build_replaying_grader(case_id: str, recorded: Cassette, settings: Settings) -> Grader:
    secrets = tuple(settings.extra.get("secrets", ()))
    replay = RecordedGrades(recorded, grader=settings.grader, secrets=secrets)
    return Grader(case_id, replay, recorded.model if recorded.kind == "recorded" else None, recorded.kind)


def _build_live_grader(case_id: str, spec: str, path: Path, settings: Settings) -> Grader:
    from evalkit.providers.http_interception import bypass_interception

    secrets = tuple(settings.extra.get("secrets", ()))
    provider: Provider = MeteredProvider(get_shared_provider(spec), spec, settings)
    if settings.record is not None:
        from evalkit.providers.recording import RecordingProvider

        shown_as = format_path(path, settings.root or Path.cwd())
        provider = RecordingProvider(
            provider, path, model=spec, display_path=shown_as, secrets=secrets, describe=describe_grading_request
        )
    return Grader(case_id, provider, redact_secrets(spec, secrets), interception_bypass=bypass_interception)


def _make_no_grader_error(file: str, *, goes_live: bool) -> MeasurementError:
    if goes_live:
        return MeasurementError(
            f"the run goes live, and recorded grades are of other runs; name a model that grades: {ANY_GRADER}"
        )
    return MissingCassetteError(
        f"no model is named that grades, and {file} does not exist\nRecord the grades: {RECORD_COMMAND}\n"
        "or write them there by hand:\n"
        f"    turns:\n      - calls:\n          - {GRADE.name}: {{grades: [{{criterion: 1, pass: true, reason: ...}}]}}"
    )
