"""--evalkit-update: in the one process that sees all verdicts, failing cases are rewritten from what happened."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

from evalkit.model.verdict import Verdict
from evalkit.plugin.running import WIRE, Told
from evalkit.probing.updating import Update, update_of
from evalkit.reports.hostile import visible
from evalkit.reports.wire import from_line


class Updater:
    """The hooks. `writes` is false for a dry run, which shows the differences alone."""

    def __init__(self, root: Path, *, writes: bool) -> None:
        self._root = root
        self._writes = writes
        self._verdicts: dict[str, Verdict] = {}
        self._updates: list[Update] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = report.__dict__.get(WIRE)
        if told is not None:
            verdict = told.verdict if isinstance(told, Told) else from_line(told)
            self._verdicts[verdict.case_id] = verdict

    def pytest_sessionfinish(self) -> None:
        found = (update_of(self._verdicts[case_id], self._root) for case_id in sorted(self._verdicts))
        self._updates = [update for update in found if update is not None]
        if self._writes:
            for update in self._updates:
                if not update.refused:
                    _write(update)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("evalkit update")
        for update in self._updates:
            name = os.path.relpath(update.path, self._root).replace(os.sep, "/")
            if update.refused:
                terminalreporter.write_line(visible(f"{name}: left as it is; {update.refused}"))
                continue
            old, new = update.old.splitlines(), update.new.splitlines()
            for line in difflib.unified_diff(old, new, name, name, lineterm=""):
                terminalreporter.write_line(visible(line))
        changed = sum(not update.refused for update in self._updates)
        cases = f"{changed} case{'' if changed == 1 else 's'}"
        terminalreporter.write_line(f"{cases} rewritten; run again" if self._writes else f"{cases} would be rewritten")


def _write(update: Update) -> None:
    """Whole or not at all."""
    temporary = update.path.with_name(f".{update.path.name}.new")
    temporary.write_bytes(update.new.encode("utf-8"))
    os.replace(temporary, update.path)
