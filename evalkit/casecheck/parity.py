"""Streaming parity: a case that passed with a live model runs again with its replies streamed if they came whole, and
whole if they were streamed. The calls must be the same.

What differs is a mistake of the service, which reads the model's calls in two ways, or of evalkit. Prose that the model
words anew is no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from evalkit.agents.model_choice import toggle_streaming
from evalkit.casecheck.call_differences import find_call_differences, format_call, is_prose
from evalkit.casecheck.sweep import PassingRun, PlannedRun
from evalkit.checks.expectation import Expectation, judge_conversation
from evalkit.model.transcript import FunctionCall
from evalkit.model.verdict import FAILED, NOT_COMPARABLE, NOT_RUN, PASSED, ParityRun, Reason, Verdict

STREAMED, WHOLE = "streamed", "whole"


class ParitySweep(Struct, frozen=True):
    """The sweep that asks the live model in the other way."""

    def plan(self, passing: PassingRun) -> Iterator[PlannedRun]:
        """Plan one run of a case in which a live model took part."""
        model = passing.base_settings.model
        if model is None or not passing.transcript.turns:
            return
        toggled, is_streamed = toggle_streaming(model)
        mode = STREAMED if is_streamed else WHOLE
        settings = replace(passing.settings, model=toggled)
        case = passing.build_case(passing.state.plan.mocks)
        yield PlannedRun(case, partial(_judge_run, passing, mode), settings)


def _judge_run(passing: PassingRun, mode: str, verdict: Verdict) -> ParityRun:
    """Compare the calls with those of the passing run."""
    transcript = verdict.transcript
    if verdict.status == NOT_RUN:  # the budget is spent
        return ParityRun(mode=mode, status=NOT_RUN, reasons=verdict.reasons)
    if passing.state.task.provider is None:
        message = "the agent asks its model by a client of its own, which alone decides whether it streams"
        return ParityRun(mode=mode, status=NOT_RUN, reasons=(Reason(code=NOT_COMPARABLE, message=message),))
    if transcript.fault is not None:
        turns: list[Expectation | None] = [None for _ in passing.case.turns]
        demands = Expectation(valid_arguments=False)
        judgement = judge_conversation(transcript, demands, turns, input=passing.case.input)
        return ParityRun(mode=mode, status=judgement.status, reasons=judgement.reasons, transcript=transcript)
    usual, actual = passing.transcript.calls, transcript.calls
    differences = find_call_differences(usual, actual, is_accepted=is_prose)
    if not differences and [call.name for call in usual] != [call.name for call in actual]:
        differences = ["the calls come in another order"]
    if not differences:
        return ParityRun(mode=mode, status=PASSED, transcript=transcript)
    usual_mode = WHOLE if mode == STREAMED else STREAMED
    both = (f"{way}: {_list_calls(calls)}" for way, calls in ((usual_mode, usual), (mode, actual)))
    message = "\n".join(("; ".join(differences), *both))
    return ParityRun(
        mode=mode, status=FAILED, reasons=(Reason(code="parity_difference", message=message),), transcript=transcript
    )


def _list_calls(calls: Sequence[FunctionCall]) -> str:
    return ", ".join(map(format_call, calls)) or "no call"
