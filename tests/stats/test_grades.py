"""What graders took is counted apart from the agents', and unknown is not zero."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.records.transcript import Grade, Grading, ModelTurn, RunFault, Transcript, Usage
from evalkit.records.verdict import Verdict
from evalkit.stats.accounting import Grades, account

TOKENS = Usage(input_tokens=10, output_tokens=2, total_tokens=12)
MET, NOT_MET = Grade(criterion="A", passed=True), Grade(criterion="B", passed=False)
FAULT = RunFault(code="provider_error", message="503", measured=False)


def grading(*grades: Grade, **more: Any) -> Grading:
    return Grading(**{"place": "expected_output.judge", "grades": grades, "usage": TOKENS, "cost_usd": 0.5, **more})


@pytest.mark.parametrize(
    ("gradings", "expected"),
    [
        ((), Grades()),
        ((grading(MET, NOT_MET), grading(MET)), Grades(3, 1, 0, 2, TOKENS + TOKENS, 1.0)),
        ((grading(MET, usage=None), grading(MET)), Grades(2, 0, 0, 2, None, 1.0)),
        ((grading(MET, cost_usd=None), grading(MET)), Grades(2, 0, 0, 2, TOKENS + TOKENS, None)),
        ((grading(NOT_MET, cassette="hand-written", usage=None, cost_usd=None),), Grades(1, 1, 1, 0, Usage(), 0.0)),
        ((grading(usage=None, skipped="not graded"), grading(usage=None, fault=FAULT)), Grades()),
        ((grading(fault=FAULT),), Grades(0, 0, 0, 1, TOKENS, 0.5)),
    ],
)
def test_grades_are_counted_with_what_they_took(gradings: tuple[Grading, ...], expected: Grades) -> None:
    assert Grades().with_gradings(gradings) == expected


def test_a_run_keeps_them_apart_from_the_agents() -> None:
    turn = ModelTurn(usage=TOKENS)
    run = Transcript(turns=(turn,), usage=TOKENS, cost_usd=0.1, gradings=(grading(MET),))
    skipped = Transcript(gradings=(grading(usage=None, skipped="not graded"),))

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
    assert found.grades == Grades(1, 0, 0, 1, TOKENS, 0.5)
    assert found.to_json()["grades"] == {
        "graded": 1,
        "not_met": 0,
        "hand_written": 0,
        "answers": 1,
        "usage": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12, "reasoning_tokens": 0}
        | {"cached_tokens": 0},
        "cost_usd": 0.5,
    }
    assert "grades" not in account([Verdict(status="passed")]).to_json()
