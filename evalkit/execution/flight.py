"""A case on its way: asked for, perhaps started ahead of its turn, and in the end a verdict."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

from msgspec import Struct, field

from evalkit.model.case import Case
from evalkit.model.verdict import Verdict
from evalkit.pipeline.watch import Watchdog


class RunRequest(Struct, frozen=True):
    """A case to run; `agent` in place of the case's own; `context` that its agent should see, None for the caller's.

    `done` is set when there is a verdict, and the executor waits for it: a caller may bring one that does more.
    """

    case: Case
    agent: Any = None
    context: contextvars.Context | None = None
    done: threading.Event | None = None


class ScheduledRun(Struct, eq=False):
    """One run of a job on a loop."""

    request: RunRequest
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    watch: Watchdog = field(default_factory=Watchdog)
    done: threading.Event = field(default_factory=threading.Event)
    task: asyncio.Task[None] | None = None
    verdict: Verdict | None = None
    error: BaseException | None = None
    seconds: float = 0.0  # from its start to its verdict

    def __post_init__(self) -> None:
        self.done = self.request.done or self.done

    def copy(self) -> ScheduledRun:
        """The same job anew, for another loop."""
        return ScheduledRun(self.request, self.context)

    def finish(self, verdict: Verdict | None, error: BaseException | None = None) -> None:
        """Settle it, unless it is settled already: an agent that was left behind may come back late."""
        if not self.done.is_set():
            self.verdict, self.error = verdict, error
            self.task = None  # the loop knows whose its tasks are for as long as they live: not for ever
            self.done.set()
