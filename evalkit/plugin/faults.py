"""--evalkit-faults: a line at the end on how much of the sweep was measured. Silence would be taken for a pass."""

from __future__ import annotations

from collections import Counter

import pytest

from evalkit.model.verdict import Verdict
from evalkit.plugin.running import VERDICT_ATTRIBUTE, WireVerdict
from evalkit.reports.faults import format_sweep_summary
from evalkit.reports.wire import from_line


class FaultSweepSummary:
    """The hooks, in the one process that sees all verdicts."""

    def __init__(self) -> None:
        self._verdicts: dict[str, Counter[str]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        wire = report.__dict__.get(VERDICT_ATTRIBUTE)
        if wire is not None:
            verdict: Verdict = wire.verdict if isinstance(wire, WireVerdict) else from_line(wire)
            self._verdicts[verdict.case_id] = Counter(run.status for run in verdict.faults)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        runs = sum(self._verdicts.values(), Counter())
        terminalreporter.write_line(f"fault sweep: {format_sweep_summary(runs, len(self._verdicts))}")
