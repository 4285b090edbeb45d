"""Streaming parity: a case that passed with a live model runs again with its replies streamed if they came whole, and
whole if they were streamed. The calls must be the same.

evalkit's own requests are sent in the other way, and those of an agent's own client are changed on their way, and their
replies too: the client sees what it always sees.

What differs is a mistake of the service, which reads the model's calls in two ways, or of evalkit. Prose that the model
words anew is no difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from evalkit.agents.model_choice import toggle_streaming
from evalkit.features.parity.request_toggle import STREAMED, WHOLE, StreamToggle
from evalkit.hosts.casecheck.api import find_call_differences, format_call, is_prose
from evalkit.operators.base import Mismatch
from evalkit.records.settings import OWN_MODEL, REQUEST_TOGGLE
from evalkit.records.verdict import ERROR, FAILED, NOT_RUN, PASSED, ChangedRun, Reason, Verdict
from evalkit.runner.changed_runs import PassingRun, PlannedRun

MIXED = "changed"  # the mode of a run that asks in both ways


def plan_comparison(passing: PassingRun) -> Iterator[PlannedRun]:
    """Plan one run of a case in which a live model took part."""
    model = passing.settings.model
    if model is None:
        return
    toggled, mode = model, MIXED
    if model != OWN_MODEL:
        toggled, is_streamed = toggle_streaming(model)
        mode = STREAMED if is_streamed else WHOLE
    http = passing.settings.http
    toggle = StreamToggle(http.ignore_hosts, can_intercept=http.cassettes is not False)
    usual = passing.changed_settings
    settings = replace(usual, model=toggled, extra={**usual.extra, REQUEST_TOGGLE: toggle})
    yield PlannedRun(passing.build_case(), partial(_judge_run, passing, mode, toggle), settings)


def _judge_run(passing: PassingRun, mode: str, toggle: StreamToggle, verdict: Verdict) -> ChangedRun:
    """Compare the calls with those of the passing run. `mode` is that of evalkit's own requests, MIXED where they are
    made as before."""
    transcript = verdict.transcript
    modes = toggle.modes | ({mode} if passing.uses_provider and mode != MIXED else set())
    if modes:
        mode = min(modes) if len(modes) == 1 else MIXED
    run = partial(ChangedRun, place="model", change=mode)
    if verdict.status == NOT_RUN:  # the budget is spent
        return run(status=NOT_RUN, reasons=verdict.reasons)
    if toggle.obstacles or not modes:
        message = toggle.obstacles[0] if toggle.obstacles else _explain_no_request(passing)
        return run(status=NOT_RUN, reasons=(Reason(code="not_comparable", message=message),))
    if toggle.failures:  # which the agent may have caught
        failure = toggle.failures[0]
        reason = Reason(code=failure.code, message=str(failure))
        return run(status=ERROR, reasons=(reason,), transcript=transcript)
    if transcript.fault is not None:
        judgement = passing.judge_end(transcript)
        return run(status=judgement.status, reasons=judgement.reasons, transcript=transcript)
    usual, actual = passing.transcript.calls, transcript.calls
    differences = find_call_differences(usual, actual, is_accepted=is_reworded)
    if not differences and [call.name for call in usual] != [call.name for call in actual]:
        differences = ["the calls come in another order"]
    if not differences:
        return run(status=PASSED, transcript=transcript)
    usual_mode = {STREAMED: WHOLE, WHOLE: STREAMED}.get(mode, "as usual")
    message = "; ".join(differences)
    for way, calls in ((usual_mode, usual), (mode, actual)):
        message += f"\n{way}: {', '.join(map(format_call, calls)) or 'no call'}"
    return run(status=FAILED, reasons=(Reason(code="parity_difference", message=message),), transcript=transcript)


def is_reworded(mismatch: Mismatch) -> bool:
    """Return whether both texts are prose that the model worded anew: neither is the other one cut, or doubled."""
    if not is_prose(mismatch):
        return False
    short, long = sorted((str(mismatch.expected), str(mismatch.actual)), key=len)
    cut = long.startswith(short) and _is_inside_word(short[-1:], long[len(short) :][:1])
    is_beginning = long.endswith(short) and _is_inside_word(long[: -len(short)][-1:], short[:1])
    return not (cut or is_beginning or long == short * 2)


def _is_inside_word(before: str, after: str) -> bool:
    return before.isalnum() and after.isalnum()


def _explain_no_request(passing: PassingRun) -> str:
    """Explain why no request was sent in the other way."""
    http = passing.settings.http
    if http.cassettes is False:
        return "cassettes = false in [tool.evalkit.http] lets the requests of the agent's own client pass as they are"
    return "no request of the agent's to a model was seen: by task.model, over httpx, or by a program's *_BASE_URL"
