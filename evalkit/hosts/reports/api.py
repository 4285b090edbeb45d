"""What features use of reports: a run whose file is written, texts that hold no secrets, and formats of values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.hosts.reports.run_file import StoredRun, load_run, replace_file
from evalkit.hosts.reports.serialization import Redact
from evalkit.hosts.reports.trace import format_duration
from evalkit.records.run import GateDecision, Run

if TYPE_CHECKING:
    from evalkit.hooks import SessionPart
    from evalkit.jsonvalue import JsonDict

__all__ = ["FinishedRun", "Redact", "StoredRun", "build_sections", "format_duration", "load_run", "replace_file"]


class FinishedRun:
    """A run whose file is written. It holds no secrets: they were redacted before."""

    def __init__(
        self, path: Path, decision: GateDecision, baseline: Run | None, parts: Mapping[str, SessionPart]
    ) -> None:
        self.path = path
        self.decision = decision
        self.baseline = baseline
        self._parts = parts

    @contextmanager
    def open(self) -> Iterator[StoredRun]:
        """Open the run file, for one verdict at a time."""
        with closing(StoredRun(self.path)) as stored:
            yield stored

    @cached_property
    def run(self) -> Run:
        """The run with all its verdicts."""
        return load_run(self.path)

    def build_sections(self, run: Run) -> dict[str, JsonDict]:
        """Return what features add to a page of the run, by the name of the feature."""
        return build_sections(self._parts, run, None)


def build_sections(parts: Mapping[str, SessionPart], run: Run, redact: Redact | None) -> dict[str, JsonDict]:
    """Return what features add to a page of a run, by the name of the feature."""
    sections = {name: part.build_section(run, redact) for name, part in parts.items()}
    return {name: section for name, section in sections.items() if section is not None}
