"""--evalkit-faults: a line at the end on how much of the sweep was measured. Silence would be taken for a pass."""

from __future__ import annotations

from collections import Counter

import pytest

from evalkit.model.verdict import Verdict
from evalkit.plugin.running import WIRE, Told
from evalkit.reports.faults import sweep_summary
from evalkit.reports.wire import from_line


class FaultCounter:
    """The hooks, in the one process that sees all verdicts."""

    def __init__(self) -> None:
        self._verdicts: dict[str, Counter[str]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = report.__dict__.get(WIRE)
        if told is not None:
            verdict: Verdict = told.verdict if isinstance(told, Told) else from_line(told)
            self._verdicts[verdict.case_id] = Counter(run.status for run in verdict.faults)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        runs = sum(self._verdicts.values(), Counter())
        terminalreporter.write_line(f"fault sweep: {sweep_summary(runs, len(self._verdicts))}")
