"""`evalkit smoke`: cases that nothing could satisfy, found before any model is asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, to_builtins

from evalkit.agents.resolution import instruction_of
from evalkit.cli.cases import Loaded, Project
from evalkit.errors import UsageError
from evalkit.model.settings import Settings
from evalkit.probing.walking import Finding, Walked, walk_case
from evalkit.reports.hostile import visible

CLEAN, FOUND, NOT_MEASURED = 0, 1, 6


class Smoked(Struct, frozen=True):
    """What the walk through one case found, or the problems of a file that is no valid case."""

    walked: Walked
    problems: tuple[str, ...] = ()


def smoked(paths: Sequence[str]) -> list[Smoked]:
    """Every case of `paths`, walked through. No agent runs and no model is asked."""
    project = Project()
    found = [_one(loaded, project.settings) for loaded in project.cases(paths)]
    if not found:
        raise UsageError(f"no case in {', '.join(paths or project.paths)}")
    return found


def _one(loaded: Loaded, settings: Settings) -> Smoked:
    if loaded.case is None:
        return Smoked(Walked(loaded.id), tuple(map(str, loaded.problems)))
    instruction = instruction_of(loaded.case, settings.root or Path.cwd())
    brought = (instruction.available_functions if instruction else None) or ()
    return Smoked(walk_case(loaded.case, settings, {function.name: function for function in brought}))


def exit_status(found: Sequence[Smoked]) -> int:
    """1 if a case can't be satisfied, else 6 if a file could not be checked, else 0."""
    if any(one.walked.findings for one in found):
        return FOUND
    return NOT_MEASURED if any(one.problems for one in found) else CLEAN


def as_json(found: Sequence[Smoked], status: int) -> str:
    """The findings as one JSON document."""
    cases = [{**to_builtins(one.walked), "problems": list(one.problems)} for one in found]
    return json.dumps({"version": 1, "exit_status": status, "cases": cases}, indent=2)


def as_text(found: Sequence[Smoked], *, verbose: bool) -> list[str]:
    """A line per finding and what to do, then what was checked; `verbose` also says what was not."""
    lines: list[str] = []
    for one in found:
        lines += [f"{visible(problem)}" for problem in one.problems]
        lines += [line for finding in one.walked.findings for line in _lines(finding)]
        if verbose:
            lines += [f"{one.walked.case_id}: not checked: {visible(note)}" for note in one.walked.not_checked]
    return [*lines, _whole(found)]


def _lines(finding: Finding) -> list[str]:
    first, *more = finding.message.splitlines() or [""]
    shown = [f"{finding.location}: {first} [{finding.code}]", *(f"    {line}" for line in more)]
    return [visible(line) for line in [*shown, f"    {finding.advice}"]]


def _whole(found: Sequence[Smoked]) -> str:
    walked = [one.walked for one in found if not one.problems]
    wrong = sum(bool(one.findings) for one in walked)
    calls, notes = sum(one.calls for one in walked), sum(len(one.not_checked) for one in walked)
    said = f"{_count(len(walked), 'case')} walked through with {_count(calls, 'call')}: "
    said += f"{wrong} can't be satisfied" if wrong else "each can be satisfied"
    broken = len(found) - len(walked)
    if broken:
        said += f"; {_count(broken, 'file')} not checked, as they are no valid cases"
    return said + (f"; {_count(notes, 'detail')} not checked (-v tells)" if notes else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
