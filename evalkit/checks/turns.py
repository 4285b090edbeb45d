"""Multi-turn cases: the part of a transcript that belongs to one user turn, and all judgements as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from evalkit.checks.expectation import Expectation
from evalkit.checks.judgement import Judgement, summed_up, told_pass
from evalkit.checks.reasons import rank
from evalkit.checks.run_checks import COMPLETED
from evalkit.model.transcript import ModelTurn, Transcript, Usage
from evalkit.model.verdict import ERROR, FAILED, PASSED, CallVerdict, CheckResult, Reason


def part_of(transcript: Transcript, user_turn: int, turn_starts: Sequence[int] | None = None) -> Transcript:
    """What happened between one message of the user and the next.

    Calls keep their index. Model turns and tokens are counted where the turns can be told apart; time is recorded for
    the whole run only. A turn that was answered was completed, whatever happened later.
    """
    answered = user_turn < len(transcript.responses)
    turns = _turns_of(transcript, user_turn, turn_starts)
    return replace(
        transcript,
        calls=tuple(call for call in transcript.calls if call.user_turn == user_turn),
        turns=turns,
        response=transcript.responses[user_turn] if answered else "",
        stop_reason=COMPLETED if answered else transcript.stop_reason,
        fault=None if answered else transcript.fault,
        usage=_usage(turns),
        cost_usd=None,
        timing=None,
    )


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
    """Judge the whole by `expectation` and each user turn by its own, and merge what was found."""
    whole = (expectation or Expectation()).judge(transcript, input=input, mode=mode)
    parts = [
        turn.judge(transcript, input=input, mode=mode, user_turn=number, turn_starts=turn_starts)
        for number, turn in enumerate(turns)
        if turn is not None
    ]
    return merged(whole, parts)


def merged(whole: Judgement, parts: Iterable[Judgement]) -> Judgement:
    """One judgement of several over the same calls. What fails the same call for the same reason is told once."""
    parts = list(parts)
    if not parts:
        return whole
    statuses = [whole.status, *(part.status for part in parts)]
    status = next((known for known in (FAILED, ERROR) if known in statuses), PASSED)
    if whole.status == ERROR and not whole.calls:
        status = ERROR
    reasons = _once([*whole.reasons, *(reason for part in parts for reason in part.reasons)])
    checks: list[CheckResult] = [*whole.checks, *(check for part in parts for check in part.checks)]
    calls = _merged_calls(whole, parts)
    summary = summed_up(reasons) if status != PASSED else told_pass(calls, checks)
    return Judgement(
        status=status, reasons=reasons, calls=calls, checks=tuple(checks), score=whole.score, summary=summary
    )


def _once(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    found: dict[tuple[object, ...], Reason] = {}
    for reason in reasons:
        found.setdefault((reason.code, reason.message, reason.call), reason)
    return tuple(sorted(found.values(), key=rank))


def _merged_calls(whole: Judgement, parts: Sequence[Judgement]) -> tuple[CallVerdict, ...]:
    """Each call with what the whole and its turn found; missing calls of a turn follow that turn's calls."""
    lines: list[CallVerdict] = list(whole.calls)
    for part in parts:
        place = 0
        for verdict in part.calls:
            at = next(
                (i for i, line in enumerate(lines) if verdict.call is not None and line.call == verdict.call), None
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
