"""A grade is marked as a model's in every report, and whatever the grader wrote is hostile text."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.features.graders.records import Grade, Grading, put_gradings
from evalkit.features.graders.results import describe_usage, report_run
from evalkit.features.html.page import build_cases
from evalkit.hosts.reports.markdown import render_markdown
from evalkit.hosts.reports.trace import render_trace
from evalkit.records.run import GateDecision, Run
from evalkit.records.transcript import Transcript, Usage
from evalkit.records.verdict import CheckResult, Reason, Verdict
from evalkit.stats.accounting import SideUsage

BY = "graded by gemini:x"
MET = Grade(criterion="A", passed=True)
TOKENS = Usage(input_tokens=4200, output_tokens=300, reasoning_tokens=10, total_tokens=4510)


def judged(status: str, message: str, note: str = "", told: str = "") -> CheckResult:
    reasons = (Reason(code="judge_failed", message=told, place="expected_output.judge"),) if told else ()
    return CheckResult(check="judge", status=status, message=message, note=note, reasons=reasons)


def verdict(*checks: CheckResult, status: str = "failed", **grading: Any) -> Verdict:
    gradings = (Grading(**{"place": "expected_output.judge", "grader": "gemini:x", **grading}),)
    reasons = tuple(reason for check in checks for reason in check.reasons)
    record = put_gradings(Transcript(response="Hello"), gradings)
    return Verdict(case_id="s/a_001.yaml", status=status, checks=checks, reasons=reasons, transcript=record)


TRACES = [
    (
        [
            judged("passed", '"A": so', BY),
            judged("failed", '"B": not so', BY, f'judge: not met: "B" ({BY}): not so'),
        ],
        [f'  ✓ judge: "A": so ({BY})', f'  ✗ judge: "B": not so ({BY})'],
    ),
    ([judged("not_judged", "not graded: why")], ["  – judge: not graded: why"]),
    ([judged("error", "can't be graded: no\n  next")], ["  ! judge: can't be graded: no", "      next"]),
    ([judged("failed", '"A": \x1b[2J\u202ex', BY)], [rf'  ✗ judge: "A": \x1b[2J\u202ex ({BY})']),
]  # fmt: skip


@pytest.mark.parametrize(("checks", "lines"), TRACES)
def test_a_trace_has_a_line_for_each_criterion(checks: list[CheckResult], lines: list[str]) -> None:
    shown = render_trace(verdict(*checks)).split("\n")

    assert [line for line in shown if "judge:" in line or "next" in line] == lines


def test_a_case_without_criteria_looks_as_ever() -> None:
    assert "judge" not in render_trace(
        Verdict(case_id="s/a_001.yaml", checks=(CheckResult(check="stop_reason"),), status="passed")
    )


FACTS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {}),
    ({"grades": (MET,), "cassette": "hand-written", "grader": None}, {"graded by": "hand"}),
    (
        {"grades": (MET,), "usage": TOKENS, "cost_usd": 0.5},
        {"graded by": "gemini:x", "grader's tokens": "4,200 in, 300 out", "grader's cost": "$0.500000"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("grading", "facts"), FACTS)
def test_the_page_says_who_graded(grading: dict[str, Any], facts: dict[str, str]) -> None:
    one = verdict(judged("passed", '"A": so', BY), status="passed", **grading)
    ((_, detail),) = build_cases([one], None, GateDecision(status="met"))

    assert report_run(one.transcript).facts == facts
    assert [pair for pair in detail["runs"][0]["facts"] if pair[0] in facts] == [list(it) for it in facts.items()]
    assert detail["runs"][0]["checks"][0]["note"] == BY


@pytest.mark.parametrize(
    ("counts", "taken", "line"),
    [
        ((1, 0, 1, 0), {}, "judge: 1 criterion graded, 1 by hand"),
        (
            (9, 3, 0, 4),
            {"usage": TOKENS, "cost_usd": 1.0},
            "judge: 9 criteria graded, 6 met; 4,200 tokens in and 310 out, 1 USD",
        ),
        ((2, 0, 0, 1), {"usage": None, "cost_usd": None}, "judge: 2 criteria graded; tokens unknown, cost unknown"),
    ],
)  # fmt: skip
def test_a_run_has_one_line_on_grades(counts: tuple[int, ...], taken: dict[str, Any], line: str) -> None:
    named = dict(zip(("graded", "not_met", "hand_written", "answers"), counts, strict=True))
    assert describe_usage(SideUsage(counts=named, **taken)) == line


def test_markdown_counts_what_a_model_graded() -> None:
    graded = verdict(status="passed", grades=(MET,), usage=TOKENS)
    plain = Verdict(case_id="s/b_001.yaml", status="passed")

    shown = render_markdown(Run(verdicts=(graded, plain)), GateDecision(status="met"))

    assert "judge: 1 criterion graded; 4,200 tokens in and 310 out, cost unknown" in shown
    assert "judge" not in render_markdown(Run(verdicts=(plain,)), GateDecision(status="met"))
