"""The verdict of a case that a test runs: the agent's, unless the test or its fixtures say worse."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from evalkit.gate.counts import SKIPPED_CODE
from evalkit.model.case import Case
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, Reason, Verdict
from evalkit.plugin.shaping import verdict_of

TEST_FAILED = "test_failed"  # the agent passed, and what the test asserts besides did not hold
NOT_ASKED = "not_measured"  # the test ended, or never began, without having run its case
LATE = "deadline"  # a plugin's timeout ended the test
_OWN = frozenset({TEST_FAILED, NOT_ASKED})


def of_test(case: Case, verdict: Verdict | None, item: pytest.Item, report: pytest.TestReport) -> Verdict:
    """What counts of a test: `verdict` is its agent's, None if it was not asked; `report` what pytest makes of it."""
    if verdict is None:
        return _not_asked(case, item, report)
    xfail = getattr(report, "wasxfail", None)
    if not verdict.passed:
        return verdict if xfail is None or verdict.quarantined else replace(verdict, quarantined=xfail or "xfail")
    if report.passed:
        return verdict
    if report.skipped and xfail is None:
        return replace(verdict, status=NOT_RUN, reasons=(Reason(code=SKIPPED_CODE, message=_skip(report)),))
    message = f"the test failed after its case had passed: {_crash(report)}"
    reason = Reason(code=TEST_FAILED, message=message, location=_location(item, report))
    quarantined = verdict.quarantined if xfail is None else xfail or "xfail"
    return replace(verdict, status=FAILED, reasons=(reason,), summary=reason.message, quarantined=quarantined)


def has_own_text(verdict: Verdict, report: pytest.TestReport) -> bool:
    """Whether the report says what went wrong in the test itself, which pytest shows better than a trace could."""
    if not verdict.reasons or report.passed or (report.failed and verdict.quarantined is not None):
        return False
    code = verdict.reasons[0].code
    return code in (*_OWN, SKIPPED_CODE) or (code == LATE and hasattr(report.longrepr, "reprtraceback"))


def _not_asked(case: Case, item: pytest.Item, report: pytest.TestReport) -> Verdict:
    if report.skipped and not hasattr(report, "wasxfail"):
        return verdict_of(case, NOT_RUN, Reason(code=SKIPPED_CODE, message=_skip(report)))
    if report.passed:
        name = getattr(item, "originalname", item.name)
        message = f"{name} did not run its case: evalkit_case.run(agent) does"
    elif report.when == "setup":
        message = f"a fixture failed: {_crash(report)}"
    elif report.when == "call" and "timeout" in _crash(report).lower():
        return verdict_of(case, FAILED, Reason(code=LATE, message=_crash(report)))
    else:
        message = f"the test failed before its case was run: {_crash(report)}"
    return verdict_of(case, ERROR, Reason(code=NOT_ASKED, message=message, location=_location(item, report)))


def _skip(report: pytest.TestReport) -> str:
    """The reason of a skip, out of (file, line, ``Skipped: reason``)."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return text.removeprefix("Skipped: ") or "skipped"


def _crash(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else str(crash.message)
    return text.strip().partition("\n")[0]


def _location(item: pytest.Item, report: pytest.TestReport) -> str:
    """``tests/test_desk.py:9``, where it went wrong; the test itself, where no line is known."""
    crash = getattr(report.longrepr, "reprcrash", None)
    path, line = (item.path, item.location[1]) if crash is None else (Path(crash.path), crash.lineno - 1)
    shown = path.relative_to(item.config.rootpath) if path.is_relative_to(item.config.rootpath) else path
    return f"{shown.as_posix()}:{(line or 0) + 1}"
