"""`evalkit smoke`: cases that nothing could satisfy, found before any model is called."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, to_builtins

from evalkit.agents.registry import load_case_instruction
from evalkit.casecheck.smoke import SmokeResult, run_smoke_check
from evalkit.cli.project import LoadedFile, Project
from evalkit.errors import UsageError
from evalkit.model.settings import Settings
from evalkit.text.format import escape_controls

CLEAN, FOUND, NOT_MEASURED = 0, 1, 6


class SmokeRow(Struct, frozen=True):
    """The smoke report of one case, or the problems of a file that is no valid case."""

    report: SmokeResult
    problems: tuple[str, ...] = ()


def check_cases(paths: Sequence[str]) -> list[SmokeRow]:
    """Check every case of `paths`. No agent runs and no model is called."""
    project = Project()
    results = [_check_case(loaded, project.settings) for loaded in project.load_cases(paths)]
    if not results:
        raise UsageError(f"no case in {', '.join(paths or project.paths)}")
    return results


def _check_case(loaded: LoadedFile, settings: Settings) -> SmokeRow:
    if loaded.case is None:
        return SmokeRow(SmokeResult(loaded.id), tuple(map(str, loaded.problems)))
    instruction = load_case_instruction(loaded.case, settings.root or Path.cwd())
    functions = (instruction.available_functions if instruction else None) or ()
    return SmokeRow(run_smoke_check(loaded.case, settings, {function.name: function for function in functions}))


def compute_exit_status(results: Sequence[SmokeRow]) -> int:
    """Return 1 if a case can't be satisfied, else 6 if a file could not be checked, else 0."""
    if any(row.report.findings for row in results):
        return FOUND
    return NOT_MEASURED if any(row.problems for row in results) else CLEAN


def to_json(results: Sequence[SmokeRow], status: int) -> str:
    """Return the findings as one JSON document."""
    cases = [{**to_builtins(row.report), "problems": list(row.problems)} for row in results]
    return json.dumps({"version": 1, "exit_status": status, "cases": cases}, indent=2)


def to_text(results: Sequence[SmokeRow], *, verbose: bool) -> list[str]:
    """Return a line per finding with its advice, then a summary; `verbose` lists also what was not checked."""
    lines: list[str] = []
    for result in results:
        lines += [f"{escape_controls(problem)}" for problem in result.problems]
        for finding in result.report.findings:
            first, *details = finding.message.splitlines() or [""]
            texts = [f"{finding.location}: {first} [{finding.code}]"]
            texts += [f"    {text}" for text in (*details, finding.advice)]
            lines += map(escape_controls, texts)
        if verbose:
            lines += [
                f"{result.report.case_id}: not checked: {escape_controls(note)}" for note in result.report.not_checked
            ]
    return [*lines, _format_total(results)]


def _format_total(results: Sequence[SmokeRow]) -> str:
    reports = [row.report for row in results if not row.problems]
    wrong = sum(bool(report.findings) for report in reports)
    calls, notes = sum(report.calls for report in reports), sum(len(report.not_checked) for report in reports)
    text = f"{_count(len(reports), 'case')} walked through with {_count(calls, 'call')}: "
    text += f"{wrong} can't be satisfied" if wrong else "each can be satisfied"
    broken = len(results) - len(reports)
    if broken:
        text += f"; {_count(broken, 'file')} not checked, as they are no valid cases"
    return text + (f"; {_count(notes, 'detail')} not checked (-v tells)" if notes else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
