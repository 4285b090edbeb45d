"""A verdict and pytest's report of it: what the one makes of the other, in both directions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from evalkit.errors import Problem
from evalkit.gate.outcomes import SKIPPED_CODE
from evalkit.model.case import Case
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, Reason, Verdict
from evalkit.runner.judge import build_unjudged_verdict
from evalkit.text.escape import escape_controls, escape_lines

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
        from evalkit.reports.trace import format_faults

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
    return build_unjudged_verdict(item.case, status, reason, summary="")


# The verdict of a case that a test runs: the agent's, unless the test or its fixtures say worse.

TEST_FAILED = "test_failed"  # the agent passed, and what the test asserts besides did not hold
CASE_NOT_RUN = "not_measured"  # the test ended, or never began, without having run its case
DEADLINE = "deadline"  # a plugin's timeout ended the test
_TEST_CODES = frozenset({TEST_FAILED, CASE_NOT_RUN})


def from_test_report(case: Case, verdict: Verdict | None, item: pytest.Item, report: pytest.TestReport) -> Verdict:
    """What counts of a test: `verdict` is its agent's, None if it was not asked; `report` what pytest makes of it."""
    if verdict is None:
        return _build_unrun_verdict(case, item, report)
    xfail = getattr(report, "wasxfail", None)
    if not verdict.passed:
        return verdict if xfail is None or verdict.quarantined else replace(verdict, quarantined=xfail or "xfail")
    if report.passed:
        return verdict
    if report.skipped and xfail is None:
        return replace(verdict, status=NOT_RUN, reasons=(Reason(code=SKIPPED_CODE, message=_read_skip_reason(report)),))
    message = f"the test failed after its case had passed: {_read_crash_message(report)}"
    reason = Reason(code=TEST_FAILED, message=message, location=_locate_failure(item, report))
    quarantined = verdict.quarantined if xfail is None else xfail or "xfail"
    return replace(verdict, status=FAILED, reasons=(reason,), summary=reason.message, quarantined=quarantined)


def has_own_text(verdict: Verdict, report: pytest.TestReport) -> bool:
    """Whether the report says what went wrong in the test itself, which pytest shows better than a trace could."""
    if not verdict.reasons or report.passed or (report.failed and verdict.quarantined is not None):
        return False
    code = verdict.reasons[0].code
    return code in (*_TEST_CODES, SKIPPED_CODE) or (code == DEADLINE and hasattr(report.longrepr, "reprtraceback"))


def _build_unrun_verdict(case: Case, item: pytest.Item, report: pytest.TestReport) -> Verdict:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = Reason(code=SKIPPED_CODE, message=_read_skip_reason(report))
        return build_unjudged_verdict(case, NOT_RUN, reason, summary="")
    if report.passed:
        name = getattr(item, "originalname", item.name)
        message = f"{name} did not run its case: evalkit_case.run(agent) does"
    elif report.when == "setup":
        message = f"a fixture failed: {_read_crash_message(report)}"
    elif report.when == "call" and "timeout" in _read_crash_message(report).lower():
        reason = Reason(code=DEADLINE, message=_read_crash_message(report))
        return build_unjudged_verdict(case, FAILED, reason, summary="")
    else:
        message = f"the test failed before its case was run: {_read_crash_message(report)}"
    return build_unjudged_verdict(
        case,
        ERROR,
        Reason(code=CASE_NOT_RUN, message=message, location=_locate_failure(item, report)),
        summary="",
    )


def _read_skip_reason(report: pytest.TestReport) -> str:
    """The reason of a skip, out of (file, line, ``Skipped: reason``)."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return text.removeprefix("Skipped: ") or "skipped"


def _read_crash_message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else str(crash.message)
    return text.strip().partition("\n")[0]


def _locate_failure(item: pytest.Item, report: pytest.TestReport) -> str:
    """``tests/test_desk.py:9``, where it went wrong; the test itself, where no line is known."""
    crash = getattr(report.longrepr, "reprcrash", None)
    path, line = (item.path, item.location[1]) if crash is None else (Path(crash.path), crash.lineno - 1)
    relative_path = path.relative_to(item.config.rootpath) if path.is_relative_to(item.config.rootpath) else path
    return f"{relative_path.as_posix()}:{(line or 0) + 1}"
