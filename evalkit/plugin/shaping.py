"""A verdict and pytest's report of it: what the one makes of the other, in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evalkit.errors import Problem
from evalkit.gate.counts import SKIPPED_CODE
from evalkit.model.case import Case
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, Reason, Verdict
from evalkit.pipeline.judging import apply_quarantine
from evalkit.reports.hostile import escape_controls, escape_lines

if TYPE_CHECKING:
    from evalkit.plugin.collection import CaseItem


def apply_verdict_to_report(report: pytest.TestReport, verdict: Verdict) -> None:
    """Make `report` say what pytest should know of `verdict`: failed, ERROR, skipped, xfailed or passed."""
    if verdict.status == NOT_RUN:
        report.outcome = "skipped"
        report.longrepr = (verdict.path or verdict.case_id, 1, f"Skipped: {escape_controls(get_first_reason(verdict))}")
        return
    if verdict.quarantined is not None:
        report.wasxfail = escape_controls(verdict.quarantined)
    if verdict.status == PASSED:
        report.outcome = "passed"
        report.longrepr = None
        return
    report.outcome = "failed" if verdict.quarantined is None else "skipped"
    report.longrepr = escape_lines(get_first_reason(verdict))
    if verdict.status == ERROR:
        report.when = "setup"  # what could not be measured is an ERROR for pytest, and an <error> for JUnit


def get_first_reason(verdict: Verdict) -> str:
    return next((reason.message or reason.code for reason in verdict.reasons), verdict.summary or verdict.status)


def build_properties(verdict: Verdict) -> list[tuple[str, object]]:
    """What JUnit files show as properties of a case."""
    properties: list[tuple[str, object]] = [("evalkit_status", verdict.status)]
    if verdict.category:
        properties.append(("evalkit_category", escape_controls(verdict.category)))
    if verdict.reasons:
        properties.append(("evalkit_codes", " ".join(dict.fromkeys(reason.code for reason in verdict.reasons))))
    if verdict.faults:
        from evalkit.reports.faults import format_faults

        properties.append(("evalkit_faults", escape_controls(format_faults(verdict))))
    return properties


def build_invalid_file_verdict(case_id: str, problems: tuple[Problem, ...]) -> Verdict:
    reasons = tuple(
        Reason(code=problem.code, message=str(problem), location=str(problem.location)) for problem in problems
    )
    return Verdict(case_id=case_id, status=ERROR, reasons=reasons, path=case_id, summary="the file is not a valid case")


def from_report(item: CaseItem, call: pytest.CallInfo[None], report: pytest.TestReport) -> Verdict:
    """The verdict of a case that something other than its agent ended: a hook that skips, a timeout plugin."""
    error = "" if call.excinfo is None else str(call.excinfo.value)
    if report.skipped:
        status, reason = NOT_RUN, Reason(code=SKIPPED_CODE, message=error or "skipped")
    elif report.when == "call" and "timeout" in error.lower():
        status, reason = FAILED, Reason(code="deadline", message=error)
    else:
        status, reason = ERROR, Reason(code="not_measured", message=report.longreprtext)
    if item.case is None:
        return Verdict(case_id=item.case_id, status=status, reasons=(reason,))
    return build_verdict(item.case, status, reason)


def build_verdict(case: Case, status: str, reason: Reason) -> Verdict:
    verdict = Verdict(
        case_id=case.id,
        status=status,
        reasons=(reason,),
        description=case.description,
        category=case.category,
        tags=case.tags,
        must_pass=case.must_pass,
        path=case.path.as_posix() if case.path else "",
        case=case.merged,
    )
    return apply_quarantine(case, verdict)
