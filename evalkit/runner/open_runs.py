"""The second step of judging: all holds that needs nobody, and the features ask that left something of the run open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from evalkit.checks.reasons import build_reason
from evalkit.errors import BudgetSpentError
from evalkit.hooks import OpenRun, iter_known
from evalkit.operators.late import NOT_ASKED, leave_open
from evalkit.records.case import Declaration
from evalkit.records.transcript import RunFault, Transcript
from evalkit.records.verdict import ERROR, PASSED, Verdict
from evalkit.runner.judge import judge_run
from evalkit.runner.run_state import CasePlan


async def judge_open_run(
    plan: CasePlan,
    number: int,
    transcript: Transcript,
    declared: Sequence[Declaration],
    opened: Mapping[str, Sequence[Any]],
) -> Verdict:
    """Judge run `number` (from 0), for which all holds that needs nobody: `opened` is what features left open of it.

    Nothing passes that is still open at the end.
    """
    for name, feature in iter_known(opened):

        def judge_anew(transcript: Transcript, name: str = name) -> tuple[bool, tuple[Any, ...]]:
            verdict, opened = _judge(plan, transcript, declared)
            return verdict.status == PASSED, tuple(opened.get(name, ()))

        run = OpenRun(
            case=plan.case,
            transcript=transcript,
            number=number,
            settings=plan.settings,
            deadline_s=plan.task_settings.deadline_s,
            open=tuple(opened[name]),
            judge=judge_anew,
        )
        try:
            transcript = await feature.grade(run)
        except BudgetSpentError as error:
            fault = RunFault(code=error.code, message=str(error), measured=False)
            return judge_run(plan, replace(transcript, fault=fault), declared)
        except Exception as error:
            return _leave_unmeasured(
                _judge(plan, transcript, declared)[0], f"feature '{name}' raised {type(error).__name__}: {error}"
            )
    verdict, opened = _judge(plan, transcript, declared)
    if verdict.status == PASSED and opened:
        return _leave_unmeasured(verdict, f"feature '{next(iter(opened))}' left it open")
    return verdict


def _judge(
    plan: CasePlan, transcript: Transcript, declared: Sequence[Declaration]
) -> tuple[Verdict, dict[str, list[Any]]]:
    """Judge without asking; return what features left open, too."""
    with leave_open(NOT_ASKED) as opened:
        return judge_run(plan, transcript, declared), opened


def _leave_unmeasured(verdict: Verdict, problem: str) -> Verdict:
    reason = build_reason("not_measured", f"can't be judged: {problem}", "")
    return replace(verdict, status=ERROR, reasons=(reason,), summary=reason.message)
