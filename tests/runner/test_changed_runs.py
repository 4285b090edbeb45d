"""Runs of a passed case with one thing changed, as any feature may ask for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from evalkit.hooks import SessionPart, select_changing
from evalkit.records.verdict import ERROR, FAILED, NOT_RUN, PASSED, ChangedRun, Reason, Verdict
from evalkit.runner.changed_runs import PassingRun, PlannedRun, arun_with_changes
from evalkit.spec.load import case_from_dict

CASE = {
    "input": {"message": "hi", "mock_function_responses": {"check": {"ok": True}}},
    "expected_output": {"expected_function_calls": ["check"]},
}


def check(task: Any) -> str:
    task.call("check")
    return "done"


class Again(SessionPart):
    """Runs the case once for each status, unchanged."""

    def __init__(self, *statuses: str) -> None:
        self._statuses = statuses

    def plan_changed_runs(self, passing: PassingRun) -> Iterable[PlannedRun]:
        for status in self._statuses:
            yield PlannedRun(passing.build_case(), partial(judge, status=status))


def judge(verdict: Verdict, status: str) -> ChangedRun:
    reasons = (Reason(code="other", message=f"it {status}", call=0),) if status != PASSED else ()
    return ChangedRun(place="check", change=status, status=status, reasons=reasons, transcript=verdict.transcript)


class Broken(SessionPart):
    def plan_changed_runs(self, passing: PassingRun) -> Iterable[PlannedRun]:
        raise KeyError("case")


class BrokenJudge(SessionPart):
    def plan_changed_runs(self, passing: PassingRun) -> Iterable[PlannedRun]:
        yield PlannedRun(passing.build_case(), lambda verdict: judge(None, PASSED))  # type: ignore[arg-type]


def run(part: SessionPart) -> Verdict:
    return asyncio.run(arun_with_changes(case_from_dict(CASE), check, parts={"faults": part}))


@pytest.mark.parametrize(
    ("statuses", "status", "messages"),
    [
        ((), PASSED, []),
        ((PASSED, PASSED), PASSED, []),
        ((ERROR, FAILED, ERROR, FAILED), FAILED, ["it failed", "it failed"]),
        ((NOT_RUN, ERROR, PASSED), ERROR, ["it error"]),
        ((NOT_RUN,), PASSED, []),  # nothing was decided
    ],
)
def test_the_worst_run_decides(statuses: tuple[str, ...], status: str, messages: list[str]) -> None:
    verdict = run(Again(*statuses))
    assert [(run.feature, run.status) for run in verdict.changed_runs] == [("faults", found) for found in statuses]
    assert (verdict.status, [reason.message.partition(": ")[2] for reason in verdict.reasons]) == (status, messages)
    assert all(reason.call is None for reason in verdict.reasons)  # those of the case's own run have the same numbers


@pytest.mark.parametrize(("part", "raised"), [(Broken(), "KeyError: 'case'"), (BrokenJudge(), "AttributeError")])
def test_a_feature_that_raises_leaves_the_case_unmeasured(part: SessionPart, raised: str) -> None:
    verdict = run(part)
    assert verdict.status == ERROR
    assert [reason.code for reason in verdict.reasons] == ["feature"]
    assert verdict.summary.startswith(f"feature 'faults' of evalkit does not work: {raised}")


def test_parts_that_run_nothing_again_are_not_asked() -> None:
    again = Again()
    assert select_changing({"history": SessionPart(), "faults": again}) == {"faults": again}
