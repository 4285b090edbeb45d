"""--evalkit-update: rewrite failing cases from what happened, in the process that collects the results."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

from evalkit.hosts.casecheck.update import Update, build_update
from evalkit.plugin.verdicts import read_verdict
from evalkit.records.verdict import Verdict
from evalkit.text.format import escape_controls, format_case_count


class Updater:
    """The hooks of the update. `writes` is false for a dry run, which shows the differences alone."""

    def __init__(self, root: Path, *, writes: bool) -> None:
        self._root = root
        self._writes = writes
        self._verdicts: dict[str, Verdict] = {}
        self._updates: list[Update] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        wire = read_verdict(report)
        if wire is not None:
            self._verdicts[wire.verdict.case_id] = wire.verdict

    def pytest_sessionfinish(self) -> None:
        updates = (build_update(self._verdicts[case_id], self._root) for case_id in sorted(self._verdicts))
        self._updates = [update for update in updates if update is not None]
        for update in self._updates:
            if self._writes and not update.refusal:
                temporary = update.path.with_name(f".{update.path.name}.new")
                temporary.write_bytes(update.new.encode("utf-8"))
                os.replace(temporary, update.path)  # whole or not at all

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("evalkit update")
        for update in self._updates:
            name = os.path.relpath(update.path, self._root).replace(os.sep, "/")
            if update.refusal:
                terminalreporter.write_line(escape_controls(f"{name}: left as it is; {update.refusal}"))
                continue
            old, new = update.old.splitlines(), update.new.splitlines()
            for line in difflib.unified_diff(old, new, name, name, lineterm=""):
                terminalreporter.write_line(escape_controls(line))
        changed = sum(not update.refusal for update in self._updates)
        cases = format_case_count(changed)
        terminalreporter.write_line(
            f"{cases} rewritten{'; run again' if changed else ''}" if self._writes else f"{cases} would be rewritten"
        )
