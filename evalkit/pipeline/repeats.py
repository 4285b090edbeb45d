"""Several runs of one case: when the outcome is decided, and the one verdict that they make.

A run that could not be measured, or was not made because nothing was left to spend, counts neither way. The case
passes once `min_pass` runs passed; it failed once even the runs that were not made, and those that could not be
measured, would not lift it there; it is an error, or not run, if they would have.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from evalkit.model.case import Repeat
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, Reason, Verdict

ONE_CASSETTE = "{runs} runs over one hand-written cassette would be the same run: it ran once"


def is_decided(runs: Sequence[Verdict], repeat: Repeat) -> bool:
    """Whether no further run can change the status."""
    passed = sum(run.status == PASSED for run in runs)
    remaining = repeat.runs - len(runs)
    return passed >= repeat.min_pass or passed + remaining < repeat.min_pass or is_hand_written_replay(runs[-1])


def is_hand_written_replay(run: Verdict) -> bool:
    """Whether the run's model turns came from a hand-written cassette."""
    return run.transcript.cassette == "hand-written"


def combine_verdicts(runs: Sequence[Verdict], repeat: Repeat) -> Verdict:
    """The verdict of the case. It shows the run that says most: the first failed, else unmeasured, else first one."""
    if is_hand_written_replay(runs[0]):
        warning = ONE_CASSETTE.format(runs=repeat.runs)
        return replace(runs[0], warnings=(*runs[0].warnings, warning))
    passed = sum(run.status == PASSED for run in runs)
    errors = sum(run.status in (ERROR, NOT_RUN) for run in runs)
    remaining = repeat.runs - len(runs)
    unmeasured_status = NOT_RUN if runs[-1].status == NOT_RUN else ERROR
    status = (
        PASSED
        if passed >= repeat.min_pass
        else unmeasured_status
        if passed + remaining + errors >= repeat.min_pass
        else FAILED
    )
    representative = next(
        (run for candidate in (status, FAILED, ERROR) for run in runs if run.status == candidate), runs[0]
    )
    early = f", stopped after {len(runs)} of {repeat.runs}: decided" if remaining and unmeasured_status == ERROR else ""
    measured = f" ({errors} not measured)" if errors else ""
    summary = f"{passed}/{len(runs)} runs passed{measured}, {repeat.min_pass} needed{early}"
    reasons = () if status == PASSED else _number_reasons(runs, status, summary)
    return replace(
        representative,
        status=status,
        reasons=reasons,
        summary=summary,
        runs=tuple(runs),
        runs_planned=repeat.runs,
        min_pass=repeat.min_pass,
    )


def _number_reasons(runs: Sequence[Verdict], status: str, summary: str) -> tuple[Reason, ...]:
    """The reasons of the first run that counts towards `status`, each said once, with the number of its run."""
    number, run = next((n, run) for n, run in enumerate(runs, 1) if run.status == status)
    head = f"run {number}: "
    return tuple(replace(reason, message=head + reason.message) for reason in run.reasons)
