"""`evalkit mutate`: what a case would not notice, and the expectation that would."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction

from msgspec import to_builtins

from evalkit import yamlfile
from evalkit.cli.cases import Project
from evalkit.errors import UsageError, did_you_mean
from evalkit.gate.rates import percentage
from evalkit.probing.mutants import KINDS
from evalkit.probing.observing import observe
from evalkit.probing.scoring import CaseScore, Survivor, score
from evalkit.reports.hostile import visible

MET, MISSED, NOT_MEASURED = 0, 1, 6


def scores(paths: Sequence[str], leave_out: Sequence[str]) -> list[CaseScore]:
    """A score per case of `paths`. Cases that don't pass, and broken files, have none."""
    for kind in leave_out:
        if kind not in KINDS:
            known = did_you_mean(kind, KINDS) or f"; there are {', '.join(KINDS)}"
            raise UsageError(f"--without {kind}: no such kind of mutant{known}")
    project = Project()
    found = []
    for loaded in project.cases(paths):
        if loaded.case is None:
            found.append(CaseScore(loaded.id, skipped=f"error: {loaded.problems[0]}"))
        else:
            agent = project.agent if loaded.case.agent is None else None
            found.append(score(observe(loaded.case, agent, project.settings), leave_out=leave_out))
    return found


def exit_status(found: Sequence[CaseScore], least: str | None) -> int:
    """0 if the score is met (or none is demanded), 1 if it is missed, 6 if no case could be probed."""
    floor = Fraction(0) if least is None else percentage(least, "--min-score")
    total = sum(one.total for one in found)
    if not total:
        return NOT_MEASURED
    return MET if Fraction(sum(one.caught for one in found) * 100, total) >= floor else MISSED


def as_json(found: Sequence[CaseScore], status: int) -> str:
    """The scores as one JSON document."""
    total, caught = sum(one.total for one in found), sum(one.caught for one in found)
    whole = {"version": 1, "caught": caught, "total": total, "score": _percent(caught, total), "exit_status": status}
    return json.dumps({**whole, "cases": [to_builtins(one) for one in found]}, indent=2)


def as_text(found: Sequence[CaseScore], least: str | None, status: int) -> list[str]:
    """A paragraph per case with survivors, and the score of all."""
    lines: list[str] = []
    for one in found:
        if one.skipped:
            lines.append(f"{one.case_id}: not probed; {visible(one.skipped)}")
        elif one.survivors:
            graded = "; no criterion of judge was graded anew, and none could catch one" if one.graded else ""
            lines.append(f"{one.case_id}: {one.caught} of {one.total} mutants caught{graded}")
            lines += [line for survivor in one.survivors for line in _survivor(survivor)]
    return [*lines, _whole(found, least, status)]


def _survivor(survivor: Survivor) -> list[str]:
    lines = [f"  accepted: {visible(survivor.what)} ({survivor.kind})"]
    if survivor.keys is None:
        return [*lines, "    no single expectation of this case would notice it"]
    lines.append(f"    would be caught by, at {visible(survivor.place)}:")
    return lines + [f"      {visible(line)}" for line in yamlfile.dump(survivor.keys).splitlines()]


def _whole(found: Sequence[CaseScore], least: str | None, status: int) -> str:
    probed = [one for one in found if not one.skipped]
    total, caught = sum(one.total for one in found), sum(one.caught for one in found)
    if not total:
        return "mutation score NOT MEASURED: no case passed, so that nothing could be perturbed"
    left = len(found) - len(probed)
    also = f"; {left} not probed" if left else ""
    of = f"{caught} of {total} mutants of {len(probed)} case{'' if len(probed) == 1 else 's'}{also}"
    word = "" if least is None else f", {'met' if status == MET else 'MISSED'}: at least {least} %"
    return f"mutation score {_percent(caught, total)} % ({of}){word}"


def _percent(caught: int, total: int) -> float:
    """Rounded down, so that 100 is said of nothing less."""
    return float(Fraction(caught * 1000, total).__floor__() / 10) if total else 0.0
