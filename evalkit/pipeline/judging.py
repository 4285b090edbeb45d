"""From a transcript to a verdict: the checks' judgement, the faults of the run, and a line number for each reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from typing import Any

from msgspec.structs import replace

from evalkit.checks.expectation import Expectation
from evalkit.checks.judgement import Judgement
from evalkit.errors import BudgetSpentError, EvalkitError, SpecError
from evalkit.model.case import Case, Declaration
from evalkit.model.transcript import RunFault, Transcript
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, CallVerdict, CheckResult, Reason, Verdict
from evalkit.pipeline.plan import CasePlan

# A step of a place, as text: few verdicts name one, and `re` keeps what it has compiled.
_STEP = r"\.?([^.\[\]]+)|\[(\d+)\]|\[(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\]"
# Codes of calls that were refused: an agent that stumbles over the refusal failed because of the call.
REFUSED_CALLS = frozenset({"unmocked_call", "unknown_function"})
# How an agent ends that stumbles: it raises, or its process does not answer as agreed.
BREAKDOWNS = frozenset({"agent_raised", "crashed", "invalid_reply"})


def judge_run(plan: CasePlan, transcript: Transcript, declared: Sequence[Declaration] = ()) -> Verdict:
    """The verdict of one run, in which `declared` were declared. One that had nothing left to spend was not run."""
    case = plan.case
    if transcript.fault is not None and transcript.fault.code == BudgetSpentError.code:
        reason = Reason(code=transcript.fault.code, message=transcript.fault.message)
        return _build_verdict(case, NOT_RUN, (reason,), transcript)
    expectation, turns = plan.expectation, [turn.expectation for turn in case.turns]
    if any(function.aliases for function in declared):
        from evalkit.pipeline.aliases import compile_with_aliases

        expectation, turns = compile_with_aliases(case, expectation, declared)
    judgement = _judge_transcript(case, transcript, expectation, turns)
    unused = () if judgement.status == ERROR else _find_unused_mocks(plan, transcript)
    return _build_verdict(
        case,
        FAILED if unused else judgement.status,
        _locate_reasons(case, _order_by_cause(transcript, judgement.reasons) + unused),
        transcript,
        calls=judgement.calls,
        checks=judgement.checks,
        score=judgement.score,
        summary=judgement.summary,
    )


def _judge_transcript(case: Case, transcript: Transcript, expectation: Any, turns: Sequence[Any]) -> Judgement:
    if not turns:
        return (expectation or Expectation()).judge(transcript, input=case.input)
    from evalkit.checks.turns import judge_conversation

    return judge_conversation(transcript, expectation, turns, input=case.input)


def _order_by_cause(transcript: Transcript, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
    """An agent that raised because its call was refused: the call explains the exception."""
    if transcript.fault is None or transcript.fault.code not in BREAKDOWNS:
        return reasons
    refusals = tuple(reason for reason in reasons if reason.code in REFUSED_CALLS)
    return (*refusals, *(reason for reason in reasons if reason not in refusals))


def _find_unused_mocks(plan: CasePlan, transcript: Transcript) -> tuple[Reason, ...]:
    if not plan.task_settings.strict_mocks:
        return ()
    return tuple(
        Reason(code="unused_mock", message=f"{unused} (strict_mocks is on)", place="input.mock_function_responses")
        for unused in transcript.unused_mocks
    )


def _locate_reasons(case: Case, reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    return tuple(
        replace(reason, location=str(case.locate(parse_path(reason.place)))) if reason.place else reason
        for reason in reasons
    )


def parse_path(place: str) -> tuple[str | int, ...]:
    """The path that `errors.shown_path` wrote as `place`."""
    return tuple(
        match[1] or (int(match[2]) if match[2] else _unescape(match[3] or match[4] or ""))
        for match in re.finditer(_STEP, place)
    )


def _unescape(text: str) -> str:
    return text.replace("\\'", "'").replace('\\"', '"').replace("\\\\", "\\")


def check_quarantine(case: Case) -> tuple[bool, str | None]:
    """Whether skip and xfail are in force, and if they are not any more, what to say."""
    if case.until is None or (case.skip is None and case.xfail is None):
        return True, None
    if date.today() < date.fromisoformat(case.until):
        return True, None
    kind = "skip" if case.skip is not None else "xfail"
    return False, f"'{kind}' expired on {case.until}: the case counts again; mend it, or set a later 'until'"


def apply_quarantine(case: Case, verdict: Verdict) -> Verdict:
    """`verdict`, whoever gave it, with the quarantine that is in force, or the warning that it no longer is."""
    expired = check_quarantine(case)[1]
    if expired is not None:
        return replace(verdict, warnings=(*verdict.warnings, expired))
    return verdict if case.xfail is None else replace(verdict, quarantined=case.xfail)


def build_not_run_verdict(case: Case, error: BudgetSpentError) -> Verdict:
    """The verdict of a case for which nothing was left to spend."""
    fault = RunFault(code=error.code, message=str(error), measured=False)
    transcript = Transcript(input=dict(case.input), stop_reason=fault.code, fault=fault)
    return _build_verdict(case, NOT_RUN, (Reason(code=error.code, message=str(error)),), transcript)


def build_error_verdict(case: Case, error: EvalkitError) -> Verdict:
    """The verdict of a case that could not even start."""
    problems = error.problems if isinstance(error, SpecError) else ()
    reasons = tuple(
        Reason(code=problem.code, message=problem.message, location=str(problem.location)) for problem in problems
    )
    if not reasons:
        place = "agent" if error.code == "unknown_agent" else ""
        location = str(case.locate(("agent",))) if place else ""
        reasons = (Reason(code=error.code, message=str(error), place=place, location=location),)
    fault = RunFault(code=reasons[0].code, message=str(error), measured=False)
    transcript = Transcript(input=dict(case.input), stop_reason=fault.code, fault=fault)
    return _build_verdict(case, ERROR, reasons, transcript)


def _build_verdict(
    case: Case,
    status: str,
    reasons: tuple[Reason, ...],
    transcript: Transcript,
    *,
    calls: tuple[CallVerdict, ...] = (),
    checks: tuple[CheckResult, ...] = (),
    score: Any = None,
    summary: str = "",
) -> Verdict:
    return Verdict(
        case_id=case.id,
        status=status,
        reasons=reasons,
        calls=calls,
        checks=checks,
        transcript=transcript,
        score=score,
        summary=summary or (reasons[0].message.partition("\n")[0] if reasons else ""),
        description=case.description,
        category=case.category,
        tags=case.tags,
        must_pass=case.must_pass,
        path=case.path.as_posix() if case.path else "",
        case=case.merged,
        warnings=transcript.warnings,
    )
