"""What is left open, or raises, is an error and never green: of a feature that grades, and of its rules of the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalkit.agents.task import Task
from evalkit.errors import BudgetSpentError, UsageError
from evalkit.features.graders.feature import Graders
from evalkit.features.graders.gate import KeptGrades
from evalkit.gate.decision import decide_outcomes
from evalkit.gate.outcomes import CaseOutcome
from evalkit.hooks import GateFinding, OpenRun
from evalkit.records.run import MET, MISSED, Policy
from evalkit.records.settings import Settings
from evalkit.records.transcript import Transcript
from evalkit.records.verdict import PASSED, Verdict
from evalkit.runner.run_case import run_case
from evalkit.spec.load import case_from_dict

OUTCOMES = [CaseOutcome(case_id="a", status=PASSED, features={"graders": KeptGrades(("m",), ("c",))})]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Verdict]:
    def running(grade: Callable[[OpenRun], Transcript]) -> Verdict:
        async def replaced(self: Graders, run: OpenRun) -> Transcript:
            return grade(run)

        monkeypatch.setattr(Graders, "grade", replaced)
        data = {"agent": "x", "input": {"message": "hi"}, "expected_output": {"judge": "It is polite."}}
        return run_case(
            case_from_dict(data, tmp_path / "case_001.yaml", root=tmp_path), answer, Settings(root=tmp_path)
        )

    return running


def answer(task: Task) -> str:
    return "Hello."


def fail(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("grade", "status", "reason"),
    [
        (
            lambda run: fail(ValueError("no")),
            "error",
            "not_measured: can't be judged: feature 'graders' raised ValueError: no",
        ),
        (lambda run: run.transcript, "error", "not_measured: can't be judged: feature 'graders' left it open"),
        (lambda run: fail(BudgetSpentError("all is spent")), "not_run", "budget: all is spent"),
    ],
)
def test_what_is_not_graded_does_not_pass(run: Any, grade: Any, status: str, reason: str) -> None:
    verdict = run(grade)

    assert (verdict.status, [f"{it.code}: {it.message}" for it in verdict.reasons]) == (status, [reason])


def test_a_feature_gets_what_is_open_and_judges_again(run: Any) -> None:
    seen: list[Any] = []

    def grade(run: OpenRun) -> Transcript:
        seen.append([(item.place, item.user_turn) for item in run.open])
        seen.append(run.judge(run.transcript) == (True, run.open))
        return run.transcript

    run(grade)

    assert seen == [[("expected_output.judge", None)], True]


def test_a_rule_of_a_feature_counts_as_one_of_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(self: Graders, evidence: Any) -> Iterator[GateFinding]:
        yield GateFinding(MISSED, "too few")

    monkeypatch.setattr(Graders, "decide", find)
    decision = decide_outcomes(OUTCOMES, Policy())

    assert (decision.status, decision.reasons[0]) == ("missed", "too few")


def test_a_rule_that_raises_leaves_the_gate_unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Graders, "decide", lambda self, evidence: fail(KeyError("x")))
    decision = decide_outcomes(OUTCOMES, Policy())

    assert (decision.status, decision.reasons[0]) == (
        "not_measured",
        "the rules of feature 'graders' raised KeyError: 'x'",
    )
    monkeypatch.setattr(Graders, "decide", lambda self, evidence: fail(UsageError("no such policy")))
    with pytest.raises(UsageError, match="no such policy"):
        decide_outcomes(OUTCOMES, Policy())


def test_a_grader_of_which_no_agreement_is_demanded_is_named_with_the_command_that_does() -> None:
    outcomes = [CaseOutcome(case_id="a", status=PASSED, features={"graders": KeptGrades(("m?a=1",), ("c",))})]
    decision = decide_outcomes(outcomes, Policy())
    assert decision.status == MET
    assert decision.reasons[-1] == (
        "m?a=1 graded 1 case; how far it agrees with people is not known: "
        "`evalkit judge-check labels.csv '--grader=m?a=1' --record` measures it"
    )
    reasons = decide_outcomes(outcomes, Policy(min_kappa=0.5)).reasons
    assert not any("is not known" in reason for reason in reasons)
