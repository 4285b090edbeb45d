"""Multi-turn cases: the part of a transcript that belongs to one user turn, and all judgements as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from evalkit.checks.expectation import Expectation
from evalkit.checks.judgement import Judgement, summed_up, told_pass
from evalkit.checks.reasons import OTHER, RANK, rank
from evalkit.checks.stop_reason import COMPLETED
from evalkit.model.transcript import ModelTurn, Transcript, Usage
from evalkit.model.verdict import ERROR, FAILED, PASSED, CallVerdict, CheckResult, Reason


def part_of(transcript: Transcript, user_turn: int, turn_starts: Sequence[int] | None = None) -> Transcript:
    """What happened between one message of the user and the next.

    Calls keep their index. Model turns and tokens are counted where the turns can be told apart; time is recorded for
    the whole run only. A turn that the run went on from was completed, whatever happened later.
    """
    answered = user_turn < len(transcript.responses)
    went_on = user_turn < _ended_in(transcript, turn_starts)
    turns = _turns_of(transcript, user_turn, turn_starts)
    return replace(
        transcript,
        calls=tuple(call for call in transcript.calls if call.user_turn == user_turn),
        turns=turns,
        response=transcript.responses[user_turn] if answered else "",
        stop_reason=COMPLETED if went_on else transcript.stop_reason,
        fault=None if went_on else transcript.fault,
        usage=_usage(turns),
        cost_usd=None,
        timing=None,
    )


def _ended_in(transcript: Transcript, turn_starts: Sequence[int] | None) -> int:
    """The user turn in which the run ended: with its reply, or with a fault instead of one."""
    if turn_starts:
        return len(turn_starts) - 1
    last_answered = len(transcript.responses) - 1
    return last_answered if transcript.fault is None else last_answered + 1


def _turns_of(transcript: Transcript, user_turn: int, turn_starts: Sequence[int] | None) -> tuple[ModelTurn, ...]:
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


def _usage(turns: Sequence[ModelTurn]) -> Usage | None:
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
    last = _ended_in(transcript, turn_starts)
    ending = turns[last] if 0 <= last < len(turns) else None
    expectation = expectation or Expectation()
    if ending is not None and ending.stop_reason.written and not expectation.stop_reason.written:
        expectation = replace(expectation, stop_reason=ending.stop_reason)
    whole = expectation.judge(transcript, input=input, mode=mode)
    if transcript.fault is not None and not transcript.fault.measured:
        return whole
    parts = [
        _of_turn(turn.judge(transcript, input=input, mode=mode, user_turn=number, turn_starts=turn_starts), number)
        for number, turn in enumerate(turns)
        if turn is not None
    ]
    return merged(whole, parts)


def _of_turn(part: Judgement, number: int) -> Judgement:
    """`part`, in which each reason that names no call says which user turn it is about."""
    if part.status == PASSED:
        return part

    def told(reason: Reason) -> Reason:
        is_of_turn = reason.call is None and reason.place and not _is_everywhere(reason)
        return replace(reason, message=f"user turn {number + 1}: {reason.message}") if is_of_turn else reason

    def reworded(results: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
        return tuple(replace(it, reasons=tuple(map(told, it.reasons))) if it.reasons else it for it in results)

    return replace(
        part,
        reasons=tuple(map(told, part.reasons)),
        calls=tuple(replace(line, results=reworded(line.results)) for line in part.calls),
        checks=reworded(part.checks),
    )


def merged(whole: Judgement, parts: Iterable[Judgement]) -> Judgement:
    """One judgement of several over the same calls. What fails the same call for the same reason is told once."""
    parts = list(parts)
    if not parts:
        return whole
    statuses = [whole.status, *(part.status for part in parts)]
    status = next((known for known in (FAILED, ERROR) if known in statuses), PASSED)
    reasons = _once([*whole.reasons, *(reason for part in parts for reason in part.reasons)])
    checks: list[CheckResult] = [*whole.checks, *(check for part in parts for check in part.checks)]
    calls = _merged_calls(whole, parts)
    summary = summed_up(reasons) if status != PASSED else told_pass(calls, checks)
    return Judgement(
        status=status, reasons=reasons, calls=calls, checks=tuple(checks), score=whole.score, summary=summary
    )


def _once(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """What is true whatever is expected is found by the whole and by its turn; of demands, each has its place."""
    found: dict[tuple[object, ...], Reason] = {}
    for reason in reasons:
        place = "" if _is_everywhere(reason) else reason.place
        found.setdefault((reason.code, reason.message, reason.call, place), reason)
    return tuple(sorted(found.values(), key=rank))


def _is_everywhere(reason: Reason) -> bool:
    return RANK.get(reason.code, OTHER) <= RANK["unmocked_call"] or reason.code == "invalid_arguments"


def _merged_calls(whole: Judgement, parts: Sequence[Judgement]) -> tuple[CallVerdict, ...]:
    """Each call with what the whole and its turn found; missing calls of a turn follow that turn's calls."""
    lines: list[CallVerdict] = list(whole.calls)
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
                lines[at] = _both(lines[at], verdict)
                place = at + 1
    return tuple(lines)


def _both(one: CallVerdict, other: CallVerdict) -> CallVerdict:
    results = (*one.results, *(result for result in other.results if result not in one.results))
    first = one if one.expectation else other
    status = FAILED if FAILED in (one.status, other.status) else PASSED
    return replace(first, status=status, results=results)
