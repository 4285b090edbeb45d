"""`evalkit mutate`: mistakes that a case would not notice, and the expectation that would."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction

from msgspec import to_builtins

from evalkit.casecheck.mutants import KINDS, CaseScore, Survivor, compute_score, observe
from evalkit.cli.project import Project
from evalkit.errors import UsageError, did_you_mean
from evalkit.text.format import escape_controls, parse_percentage
from evalkit.yamlfile.write import dump

MET, MISSED, NOT_MEASURED = 0, 1, 6


def score_cases(paths: Sequence[str], leave_out: Sequence[str]) -> list[CaseScore]:
    """Return a score per case of `paths`; cases that don't pass, and broken files, have no mutants."""
    for kind in leave_out:
        if kind not in KINDS:
            suggestion = did_you_mean(kind, KINDS) or f"; there are {', '.join(KINDS)}"
            raise UsageError(f"--without {kind}: no such kind of mutant{suggestion}")
    project = Project()
    case_scores = []
    for loaded in project.load_cases(paths):
        if loaded.case is None:
            case_scores.append(CaseScore(loaded.id, skipped=f"error: {loaded.problems[0]}"))
        else:
            agent = project.agent if loaded.case.agent is None else None
            case_scores.append(compute_score(observe(loaded.case, agent, project.settings), leave_out=leave_out))
    return case_scores


def compute_exit_status(case_scores: Sequence[CaseScore], min_score: str | None) -> int:
    """Return 0 if the score is met or none is demanded, 1 if it is missed, 6 if no case could be probed."""
    floor = Fraction(0) if min_score is None else parse_percentage(min_score, "--min-score")
    caught, total = _count_mutants(case_scores)
    if not total:
        return NOT_MEASURED
    return MET if Fraction(caught * 100, total) >= floor else MISSED


def to_json(case_scores: Sequence[CaseScore], status: int) -> str:
    """Return the scores as one JSON document."""
    caught, total = _count_mutants(case_scores)
    document = {"version": 1, "caught": caught, "total": total, "score": _compute_percent(caught, total)}
    return json.dumps({**document, "exit_status": status, "cases": to_builtins(case_scores)}, indent=2)


def to_text(case_scores: Sequence[CaseScore], min_score: str | None, status: int) -> list[str]:
    """Return a paragraph per case with survivors, and the total score."""
    lines: list[str] = []
    for case_score in case_scores:
        if case_score.skipped:
            lines.append(f"{case_score.case_id}: not probed; {escape_controls(case_score.skipped)}")
        elif case_score.survivors:
            graded = "; no criterion of judge was graded anew, and none could catch one" if case_score.graded else ""
            lines.append(f"{case_score.case_id}: {case_score.caught} of {case_score.total} mutants caught{graded}")
            lines += [line for survivor in case_score.survivors for line in _describe_survivor(survivor)]
    return [*lines, _format_total(case_scores, min_score, status)]


def _describe_survivor(survivor: Survivor) -> list[str]:
    lines = [f"  accepted: {escape_controls(survivor.description)} ({survivor.kind})"]
    if survivor.keys is None:
        return [*lines, "    no single expectation of this case would notice it"]
    lines.append(f"    would be caught by, at {escape_controls(survivor.place)}:")
    return lines + [f"      {escape_controls(line)}" for line in dump(survivor.keys).splitlines()]


def _format_total(case_scores: Sequence[CaseScore], min_score: str | None, status: int) -> str:
    probed = [case_score for case_score in case_scores if not case_score.skipped]
    caught, total = _count_mutants(case_scores)
    if not total:
        return "mutation score NOT MEASURED: no case passed, so that nothing could be perturbed"
    unprobed = len(case_scores) - len(probed)
    also = f"; {unprobed} not probed" if unprobed else ""
    of = f"{caught} of {total} mutants of {len(probed)} case{'' if len(probed) == 1 else 's'}{also}"
    word = "" if min_score is None else f", {'met' if status == MET else 'MISSED'}: at least {min_score} %"
    return f"mutation score {_compute_percent(caught, total)} % ({of}){word}"


def _count_mutants(case_scores: Sequence[CaseScore]) -> tuple[int, int]:
    """Return the numbers of caught mutants and of all."""
    return sum(score.caught for score in case_scores), sum(score.total for score in case_scores)


def _compute_percent(caught: int, total: int) -> float:
    """Return percent to one digit, rounded down, so that nothing less is shown as 100."""
    return float(Fraction(caught * 1000, total).__floor__() / 10) if total else 0.0
