"""A run of a case with the functions that were declared in it, which the verdict does not keep."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from evalkit.agents.model_choice import aclose_shared
from evalkit.model.case import Case, Declaration
from evalkit.model.settings import Settings
from evalkit.model.verdict import PASSED, Verdict
from evalkit.runner.run_case import Watchdog, arun_case
from evalkit.runner.run_state import RunState


class Observation(Struct, frozen=True):
    """A case's verdict (of a repeated case, its first passing run), and the declared functions by name."""

    case: Case
    verdict: Verdict
    declarations: Mapping[str, Declaration]


class _Observer(Watchdog):
    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[RunState] = []

    def start_run(self, run: RunState) -> None:
        super().start_run(run)
        self.attempts.append(run)


def observe(case: Case, agent: Any = None, settings: Settings | None = None) -> Observation:
    """Run `case` as `run_case` does."""
    observer = _Observer()

    async def run() -> Verdict:
        try:
            return await arun_case(case, agent, settings, watch=observer)
        finally:
            await aclose_shared()

    verdict = asyncio.run(run())
    passing = next((number for number, run_verdict in enumerate(observer.runs) if run_verdict.status == PASSED), 0)
    if len(observer.runs) > 1 and verdict.status == PASSED:
        verdict = observer.runs[passing]
    declared = observer.attempts[passing].dispatcher.declarations if observer.attempts else case.functions
    return Observation(case, verdict, {declaration.name: declaration for declaration in declared})
