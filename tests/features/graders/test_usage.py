"""What graders took is counted apart from the agents', and unknown is not zero."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.features.graders.records import Grade, Grading, put_gradings
from evalkit.features.graders.results import sum_usage
from evalkit.records.transcript import ModelTurn, RunFault, Transcript, Usage
from evalkit.records.verdict import Verdict
from evalkit.stats.accounting import SideUsage, account

TOKENS = Usage(input_tokens=10, output_tokens=2, total_tokens=12)
MET, NOT_MET = Grade(criterion="A", passed=True), Grade(criterion="B", passed=False)
FAULT = RunFault(code="provider_error", message="503", measured=False)


def grading(*grades: Grade, **more: Any) -> Grading:
    return Grading(**{"place": "expected_output.judge", "grades": grades, "usage": TOKENS, "cost_usd": 0.5, **more})


def describe(graded: int = 0, not_met: int = 0, hand_written: int = 0, answers: int = 0, **taken: Any) -> SideUsage:
    counts = {"graded": graded, "not_met": not_met, "hand_written": hand_written, "answers": answers}
    return SideUsage(counts=counts, **taken)


@pytest.mark.parametrize(
    ("gradings", "expected"),
    [
        ((), describe()),
        ((grading(MET, NOT_MET), grading(MET)), describe(3, 1, 0, 2, usage=TOKENS + TOKENS, cost_usd=1.0)),
        ((grading(MET, usage=None), grading(MET)), describe(2, 0, 0, 2, usage=None, cost_usd=1.0)),
        ((grading(MET, cost_usd=None), grading(MET)), describe(2, 0, 0, 2, usage=TOKENS + TOKENS, cost_usd=None)),
        ((grading(NOT_MET, cassette="hand-written", usage=None, cost_usd=None),), describe(1, 1, 1, 0)),
        ((grading(usage=None, fault=FAULT),), describe()),
        ((grading(fault=FAULT),), describe(0, 0, 0, 1, usage=TOKENS, cost_usd=0.5)),
    ],
)
def test_grades_are_counted_with_what_they_took(gradings: tuple[Grading, ...], expected: SideUsage) -> None:
    assert sum_usage(gradings) == expected


def test_a_run_keeps_them_apart_from_the_agents() -> None:
    turn = ModelTurn(usage=TOKENS)
    run = put_gradings(Transcript(turns=(turn,), usage=TOKENS, cost_usd=0.1), (grading(MET),))
    skipped = Transcript()

    found = account(
        [
            Verdict(
                runs=(Verdict(transcript=run, status="passed"), Verdict(transcript=skipped, status="passed")),
                status="passed",
            ),
            Verdict(status="passed"),
        ]
    )

    assert (found.usage, found.cost_usd, found.turns) == (TOKENS, 0.1, 1)
    assert found.features["graders"] == describe(1, 0, 0, 1, usage=TOKENS, cost_usd=0.5)
    assert found.to_json()["graders"] == {
        "graded": 1,
        "not_met": 0,
        "hand_written": 0,
        "answers": 1,
        "usage": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12, "reasoning_tokens": 0}
        | {"cached_tokens": 0},
        "cost_usd": 0.5,
    }
    assert "graders" not in account([Verdict(status="passed")]).to_json()
