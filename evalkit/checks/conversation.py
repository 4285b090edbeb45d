"""Judging conversations: the run by the case's expectation, each user turn by its own, and all as one judgement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from evalkit.checks.evidence import find_last_turn
from evalkit.checks.expectation import Expectation, Judgement, format_pass_summary, format_summary
from evalkit.checks.reasons import OTHER_RANK, RANK, rank
from evalkit.model.transcript import Transcript
from evalkit.model.verdict import ERROR, FAILED, PASSED, CallVerdict, CheckResult, Reason


def judge_conversation(
    transcript: Transcript,
    expectation: Expectation | None,
    turns: Sequence[Expectation | None],
    *,
    input: object = None,
    mode: str = "run",
    turn_starts: Sequence[int] | None = None,
) -> Judgement:
    """Judge the whole by `expectation` and each user turn by its own, and merge the judgements.

    If the turn in which the run ended expects just that end, the whole does too, unless the case says otherwise.
    """
    last = find_last_turn(transcript, turn_starts)
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
    return merge_judgements(case_judgement, parts) if parts else case_judgement


def _mark_turn(part: Judgement, number: int) -> Judgement:
    """Add the number of the user turn to each reason that names no call."""
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


def merge_judgements(case_judgement: Judgement, parts: Sequence[Judgement]) -> Judgement:
    """Merge judgements of the same calls. A call that fails twice for one reason is reported once.

    Reasons that hold whatever is expected are found by the whole and by the turn; of demands, each has its place.
    """
    judgements = [case_judgement, *parts]
    statuses = [judgement.status for judgement in judgements]
    status = FAILED if FAILED in statuses else ERROR if ERROR in statuses else PASSED
    unique: dict[tuple[object, ...], Reason] = {}
    for reason in (reason for judgement in judgements for reason in judgement.reasons):
        place = "" if _is_unconditional(reason) else reason.place
        unique.setdefault((reason.code, reason.message, reason.call, place), reason)
    reasons = tuple(sorted(unique.values(), key=rank))
    checks = tuple(check for judgement in judgements for check in judgement.checks)
    calls = _merge_calls(case_judgement, parts)
    summary = format_summary(reasons) if status != PASSED else format_pass_summary(calls, checks)
    return Judgement(
        status=status, reasons=reasons, calls=calls, checks=checks, score=case_judgement.score, summary=summary
    )


def _is_unconditional(reason: Reason) -> bool:
    return RANK.get(reason.code, OTHER_RANK) <= RANK["unmocked_call"] or reason.code == "invalid_arguments"


def _merge_calls(case_judgement: Judgement, parts: Sequence[Judgement]) -> tuple[CallVerdict, ...]:
    """Return each call with the results of the whole and of its turn; missing calls follow those of their turn."""
    lines: list[CallVerdict] = list(case_judgement.calls)
    place = 0
    for part in parts:
        for verdict in part.calls:
            same = (i for i, line in enumerate(lines) if verdict.call is not None and line.call is verdict.call)
            index = next(same, None)
            if index is None:
                lines.insert(place, verdict)
                place += 1
                continue
            line = lines[index]
            results = (*line.results, *(result for result in verdict.results if result not in line.results))
            status = FAILED if FAILED in (line.status, verdict.status) else PASSED
            lines[index] = replace(line if line.expectation else verdict, status=status, results=results)
            place = index + 1
    return tuple(lines)
