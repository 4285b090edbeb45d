"""Whether a changed run says something about the agent.

Where the model's turns were written beforehand, they go on as if nothing had changed: such a run tells nothing of the
model.
"""

from __future__ import annotations

from evalkit.records.transcript import Transcript
from evalkit.records.verdict import NOT_RUN, Reason, Verdict
from evalkit.runner.changed_runs import PassingRun

_NO_TURN = ("missing_cassette", "stale_cassette")


def find_reasons_not_run(passing: PassingRun, function: str | None, verdict: Verdict) -> tuple[Reason, ...]:
    """Return why a run in which `function` answers otherwise (None: the input is another) proves nothing about the
    agent; () if it does."""
    if verdict.status == NOT_RUN:  # the budget is spent
        return verdict.reasons
    explanation = _explain_unmeasurable(passing, function, verdict.transcript)
    if explanation is None:
        return ()
    return (Reason(code="not_measurable_offline", message=f"not measurable offline: {explanation}"),)


def _explain_unmeasurable(passing: PassingRun, function: str | None, transcript: Transcript) -> str | None:
    fault = transcript.fault
    if fault is not None and fault.code == "mock_error":
        return f"another mock needs what {function} returns ({fault.message})"
    if passing.settings.model is not None:
        return None
    if fault is not None and not fault.measured and fault.code in _NO_TURN:
        return "the cassette has no turn for what the model is asked now"
    # The same turns did not make the agent raise before: an exception is its own, whatever the model would say.
    raised = fault is not None and fault.code == "agent_raised"
    if transcript.cassette == "recorded" or raised:
        return None
    finished_turns = 0  # model turns that were certainly over before the change; those of code are not known
    if function is not None:
        names = [call.name for call in transcript.calls]
        if function not in names:
            return None
        until_change = transcript.calls[: names.index(function) + 1]
        finished_turns = max((call.turn + 1 for call in until_change if call.turn is not None), default=0)
    if len(transcript.turns) > finished_turns:  # the model may have been asked afterwards
        return "the model's turns were written beforehand, and go on as if nothing had changed"
    return None
