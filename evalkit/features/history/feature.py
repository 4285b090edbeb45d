"""The hooks of the history of runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evalkit.errors import UsageError
from evalkit.features.history.history import History, HistoryRun, explain_part
from evalkit.features.history.section import build_history
from evalkit.gate.outcomes import iter_outcomes
from evalkit.hooks import Feature, Loss, Options, Published, SessionPart
from evalkit.hosts.reports.api import FinishedRun, PageSection, Redact
from evalkit.records.run import Run


class RunHistory(Feature):
    """A history to which runs are added."""

    name = "history"

    def configure(self, options: Options) -> SessionPart:
        return KeptHistory(options.read("history"), adds_runs=not options.read("cache"))


class KeptHistory(SessionPart):
    """The history in a file. A run whose replies came from a cache is no new measurement, and is not added."""

    def __init__(self, path: Path, *, adds_runs: bool) -> None:
        self._path = path
        self._adds_runs = adds_runs
        self._runs: list[HistoryRun] | None = None  # those to show, once the run is over

    def publish(self, report: FinishedRun) -> Iterator[Published]:
        try:
            with report.open() as stored:
                if self._adds_runs and explain_part(stored.run) is None:
                    History(self._path).add(stored.run, iter_outcomes(stored.run, stored.iter_verdicts()))
                is_shown = report.shows_sections and self._path.is_file()
                self._runs = History(self._path).read_runs_up_to(stored.run) if is_shown else []
        except (UsageError, OSError) as error:
            self._runs = []
            yield Loss("the history", str(error))

    def build_section(self, run: Run, redact: Redact | None) -> PageSection | None:
        runs = History(self._path).read_runs_up_to(run) if self._runs is None else self._runs
        return build_history(runs, redact)
