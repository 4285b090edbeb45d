"""The files of a session: the journal, written while verdicts come in, and the run file at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

import evalkit
from evalkit.model.codec import encode
from evalkit.model.run import GateDecision, Run, Selection
from evalkit.model.verdict import ERROR, NOT_RUN
from evalkit.plugin.commit import find_commit
from evalkit.plugin.configuration import IS_PARTIAL, SELECTION, Configuration
from evalkit.reports.journal import Journal, read_journal
from evalkit.reports.runfile import write_run
from evalkit.reports.wire import to_line
from evalkit.stats.accounting import Accounting

# Of a run's settings.
_COMPARED_SETTINGS = ("temperature", "seed", "deadline_s", "max_iterations", "strict_mocks", "record", "grader")


class SessionFiles:
    """`trouble` gathers a line for everything that could not be written: the run goes on without."""

    def __init__(self, config: pytest.Config, configuration: Configuration) -> None:
        self._config = config
        self._configuration = configuration
        self._started = datetime.now(UTC).isoformat()
        self._clock = time.perf_counter()
        self._path = configuration.results.with_suffix(".journal.jsonl")
        self.journal: Journal | None = None  # from the first verdict on
        self.trouble: list[str] = []

    @property
    def selection(self) -> Selection | None:
        """Of which whole this session runs a part."""
        return self._config.stash.get(SELECTION, None)

    @property
    def is_partial(self) -> bool:
        """Whether there are cases that paths on the command line left out of sight."""
        return self._config.stash.get(IS_PARTIAL, False)

    @property
    def shard(self) -> str | None:
        """Which part, as in "2/8"."""
        return None if self._configuration.shard is None else str(self._configuration.shard)

    def read_resumable(self) -> dict[str, str]:
        """Lines of the session before, by case id, if it is to be resumed and has left any."""
        if not self._configuration.resume or not self._path.is_file():
            return {}
        measured = (v for v in read_journal(self._path).verdicts if v.status not in (ERROR, NOT_RUN))
        return {verdict.case_id: to_line(verdict) for verdict in measured}

    def open(self, selected: tuple[str, ...], collected: int, resumed: Iterable[str]) -> Journal:
        """Begin the journal with the lines that are kept of the session before."""
        selection = self.selection
        head: dict[str, Any] = {
            "started": self._started,
            "selected": selected,
            "evalkit": evalkit.__version__,
            "metadata": self._describe_circumstances(),
            "shard": self.shard,
            "selection": None if selection is None else encode(selection),
        }
        try:
            self.journal = Journal(self._path, {**head, "collected": collected}, resumed)
            self._keep_out_of_git()
        except OSError as error:
            self.trouble.append(f"no journal is kept: {error}")
            self.journal = Journal(None, head)
        return self.journal

    def write(
        self,
        decision: GateDecision,
        accounting: Accounting,
        *,
        selected: tuple[str, ...],
        collected: int,
        interrupted: bool,
    ) -> bool:
        """Write the run file; whether that went well."""
        run = Run(
            collected=collected,
            selected=selected,
            started=self._started,
            wall_s=round(time.perf_counter() - self._clock, 3),
            evalkit=evalkit.__version__,
            interrupted=interrupted,
            shard=self.shard,
            selection=self.selection,
            metadata={"gate": decision, "accounting": accounting.to_json(), **self._describe_circumstances()},
        )
        try:
            write_run(
                self._configuration.results, run, () if self.journal is None else self.journal.iter_lines(selected)
            )
            self._keep_out_of_git()
        except OSError as error:
            self.trouble.append(f"the run file was not written: {error}")
            return False
        return True

    def close(self, *, complete: bool) -> None:
        """Of a complete run everything is in the run file, and the journal can go."""
        if self.journal is not None:
            self.journal.close(remove=complete and not self.trouble)

    def _describe_circumstances(self) -> dict[str, Any]:
        """What must be the same of runs that are joined."""
        settings = self._configuration.settings
        return {
            "model": settings.model,
            "part": self.is_partial,
            "commit": find_commit(self._configuration.root),
            "settings": {
                **{name: getattr(settings, name) for name in _COMPARED_SETTINGS},
                "agent": self._configuration.agent,
                "faults": self._configuration.faults,
            },
        }

    def _keep_out_of_git(self) -> None:
        folder = self._configuration.results.parent
        if folder.name == ".evalkit" and not (folder / ".gitignore").exists():
            (folder / ".gitignore").write_text("*\n", "ascii")
