"""--evalkit-faults: a line at the end on how much of the sweep was measured. Silence would be taken for a pass."""

from __future__ import annotations

from collections import Counter

import pytest

from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, Verdict
from evalkit.plugin.running import WIRE, Told
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
        terminalreporter.write_line(summary(sum(self._verdicts.values(), Counter()), len(self._verdicts)))


def summary(runs: Counter[str], cases: int) -> str:
    """``fault sweep: 8 fault runs: 5 passed, 1 failed, 2 not measurable offline``."""
    total = sum(runs.values())
    if not total:
        return f"fault sweep: nothing was swept: in {cases} case{'' if cases == 1 else 's'}, none passed with a call"
    words = {FAILED: "failed", ERROR: "could not be measured", NOT_RUN: "not measurable offline"}
    measured = total - runs[NOT_RUN] - runs[ERROR]
    parts = [f"{runs[status]} {word}" for status, word in words.items() if runs[status]]
    if measured > runs[FAILED]:
        parts.insert(0, f"{measured - runs[FAILED]} passed")
    swept = f"{total} fault run{'' if total == 1 else 's'}"
    nothing = "; NOTHING was measured, sweep with a model (--evalkit-model)" if not measured else ""
    return f"fault sweep: {swept}: {', '.join(parts)}{nothing}"
