"""Multi-turn cases: the part of a transcript that belongs to one user turn, and all judgements as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from evalkit.checks.expectation import Expectation
from evalkit.checks.judgement import Judgement, format_pass_summary, format_summary
from evalkit.checks.reasons import OTHER_RANK, RANK, rank
from evalkit.checks.run_checks import COMPLETED
from evalkit.model.transcript import ModelTurn, Transcript, Usage
from evalkit.model.verdict import ERROR, FAILED, PASSED, CallVerdict, CheckResult, Reason


def extract_turn(transcript: Transcript, user_turn: int, turn_starts: Sequence[int] | None = None) -> Transcript:
    """What happened between one message of the user and the next.

    Calls keep their index. Model turns and tokens are counted where the turns can be told apart; time is recorded for
    the whole run only. A turn that the run went on from was completed, whatever happened later.
    """
    answered = user_turn < len(transcript.responses)
    went_on = user_turn < _find_last_turn(transcript, turn_starts)
    turns = _list_model_turns(transcript, user_turn, turn_starts)
    return replace(
        transcript,
        calls=tuple(call for call in transcript.calls if call.user_turn == user_turn),
        turns=turns,
        response=transcript.responses[user_turn] if answered else "",
        stop_reason=COMPLETED if went_on else transcript.stop_reason,
        fault=None if went_on else transcript.fault,
        usage=_sum_usage(turns),
        cost_usd=None,
        timing=None,
    )


def _find_last_turn(transcript: Transcript, turn_starts: Sequence[int] | None) -> int:
    """The user turn in which the run ended: with its reply, or with a fault instead of one."""
    if turn_starts:
        return len(turn_starts) - 1
    last_answered = len(transcript.responses) - 1
    return last_answered if transcript.fault is None else last_answered + 1


def _list_model_turns(
    transcript: Transcript, user_turn: int, turn_starts: Sequence[int] | None
) -> tuple[ModelTurn, ...]:
    """The model turns of a user turn.

    Where nobody counted them, each user turn ends with a model turn without calls; () if that does not hold.
    """
    if turn_starts is not None:
        bounds = [*turn_starts, len(transcript.turns)]
        return transcript.turns[bounds[user_turn] : bounds[user_turn + 1]] if user_turn < len(turn_starts) else ()
    parts: list[list[ModelTurn]] = [[]]
    for turn in transcript.turns:
        parts[-1].append(turn)
        if not turn.calls:
            parts.append([])
    if not parts[-1]:
        parts.pop()
    if len(parts) < len(transcript.responses) or user_turn >= len(parts):
        return ()
    return tuple(parts[user_turn])


def _sum_usage(turns: Sequence[ModelTurn]) -> Usage | None:
    usages = [turn.usage for turn in turns]
    if not usages or None in usages:
        return None
    return sum((usage for usage in usages if usage is not None), Usage())


def judge_conversation(
    transcript: Transcript,
    expectation: Expectation | None,
    turns: Sequence[Expectation | None],
    *,
    input: Any = None,
    mode: str = "run",
    turn_starts: Sequence[int] | None = None,
) -> Judgement:
    """Judge the whole by `expectation` and each user turn by its own, and merge what was found.

    If the turn in which the run ended expects just that end, the whole does too, unless it says otherwise.
    """
    last = _find_last_turn(transcript, turn_starts)
    ending = turns[last] if 0 <= last < len(turns) else None
    expectation = expectation or Expectation()
    if ending is not None and ending.stop_reason.is_explicit and not expectation.stop_reason.is_explicit:
        expectation = replace(expectation, stop_reason=ending.stop_reason)
    case_judgement = expectation.judge(transcript, input=input, mode=mode)
    if transcript.fault is not None and not transcript.fault.measured:
        return case_judgement
    parts = [
        _mark_turn(turn.judge(transcript, input=input, mode=mode, user_turn=number, turn_starts=turn_starts), number)
        for number, turn in enumerate(turns)
        if turn is not None
    ]
    return merge_judgements(case_judgement, parts)


def _mark_turn(part: Judgement, number: int) -> Judgement:
    """`part`, in which each reason that names no call says which user turn it is about."""
    if part.status == PASSED:
        return part

    def mark_reason(reason: Reason) -> Reason:
        is_of_turn = reason.call is None and reason.place and not _is_unconditional(reason)
        return replace(reason, message=f"user turn {number + 1}: {reason.message}") if is_of_turn else reason

    def mark_results(results: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
        return tuple(
            replace(result, reasons=tuple(map(mark_reason, result.reasons))) if result.reasons else result
            for result in results
        )

    return replace(
        part,
        reasons=tuple(map(mark_reason, part.reasons)),
        calls=tuple(replace(line, results=mark_results(line.results)) for line in part.calls),
        checks=mark_results(part.checks),
    )


def merge_judgements(case_judgement: Judgement, parts: Iterable[Judgement]) -> Judgement:
    """One judgement of several over the same calls. What fails the same call for the same reason is told once."""
    parts = list(parts)
    if not parts:
        return case_judgement
    statuses = [case_judgement.status, *(part.status for part in parts)]
    status = next((candidate for candidate in (FAILED, ERROR) if candidate in statuses), PASSED)
    reasons = _merge_reasons([*case_judgement.reasons, *(reason for part in parts for reason in part.reasons)])
    checks: list[CheckResult] = [*case_judgement.checks, *(check for part in parts for check in part.checks)]
    calls = _merge_calls(case_judgement, parts)
    summary = format_summary(reasons) if status != PASSED else format_pass_summary(calls, checks)
    return Judgement(
        status=status, reasons=reasons, calls=calls, checks=tuple(checks), score=case_judgement.score, summary=summary
    )


def _merge_reasons(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """What is true whatever is expected is found by the whole and by its turn; of demands, each has its place."""
    unique: dict[tuple[object, ...], Reason] = {}
    for reason in reasons:
        place = "" if _is_unconditional(reason) else reason.place
        unique.setdefault((reason.code, reason.message, reason.call, place), reason)
    return tuple(sorted(unique.values(), key=rank))


def _is_unconditional(reason: Reason) -> bool:
    return RANK.get(reason.code, OTHER_RANK) <= RANK["unmocked_call"] or reason.code == "invalid_arguments"


def _merge_calls(case_judgement: Judgement, parts: Sequence[Judgement]) -> tuple[CallVerdict, ...]:
    """Each call with what the whole and its turn found; missing calls of a turn follow that turn's calls."""
    lines: list[CallVerdict] = list(case_judgement.calls)
    place = 0
    for part in parts:
        for verdict in part.calls:
            at = next(
                (i for i, line in enumerate(lines) if verdict.call is not None and line.call is verdict.call), None
            )
            if at is None:
                lines.insert(place, verdict)
                place += 1
            else:
                lines[at] = _merge_verdicts(lines[at], verdict)
                place = at + 1
    return tuple(lines)


def _merge_verdicts(first_verdict: CallVerdict, second_verdict: CallVerdict) -> CallVerdict:
    results = (
        *first_verdict.results,
        *(result for result in second_verdict.results if result not in first_verdict.results),
    )
    described = first_verdict if first_verdict.expectation else second_verdict
    status = FAILED if FAILED in (first_verdict.status, second_verdict.status) else PASSED
    return replace(described, status=status, results=results)
