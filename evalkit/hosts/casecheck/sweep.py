"""Sweeps: a case that passed runs again with one thing changed, once for each change.

A `Sweep` plans the runs of a case: `fault_injection` lets its functions fail, `hostile_results` puts
instructions into what they return, `parity` asks the model in another way. A run that fails, fails the case.
What differs is found between the calls of the two runs: a call more, a call less, other arguments.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.expectation import Expectation
from evalkit.functions.mocks.answers import Answer, MockSet
from evalkit.jsonvalue import is_json_equal
from evalkit.operators.base import Mismatch
from evalkit.operators.values import Equal
from evalkit.records.case import TRACE, Case, Repeat
from evalkit.records.registry import look_up_from
from evalkit.records.settings import Settings
from evalkit.records.transcript import FunctionCall, Transcript
from evalkit.records.verdict import (
    ERROR,
    FAILED,
    NOT_COMPARABLE,
    NOT_MEASURABLE,
    NOT_RUN,
    PASSED,
    FaultRun,
    InjectionRun,
    ParityRun,
    Reason,
    SweepRun,
    Verdict,
)
from evalkit.runner.run_case import Watchdog, arun_case
from evalkit.runner.run_state import RunState
from evalkit.text.format import format_arguments

_NO_TURN = ("missing_cassette", "stale_cassette")


class PlannedRun(Struct, frozen=True):
    """A planned run: the case with its change, and what judges its verdict."""

    case: Case
    judge: Callable[[Verdict], SweepRun]
    settings: Settings | None = None  # None: those of all sweeps


class Sweep(Protocol):
    """A way to change cases. Picklable: a cluster's workers plan the runs of their cases."""

    def plan(self, passing: PassingRun) -> Iterator[PlannedRun]:
        """Plan the runs of a case, in the order in which they run."""


class PassingRun(Struct, frozen=True):
    """A case that passed: its last run, the transcript of one that passed, and the settings of the whole."""

    state: RunState
    transcript: Transcript
    base_settings: Settings

    @property
    def case(self) -> Case:
        return self.state.plan.case

    @property
    def settings(self) -> Settings:
        """Nothing is recorded or repeated, and mocks may go unused: an agent that gives up early does right."""
        return replace(self.base_settings, record=None, strict_mocks=None, repeat=None)

    def resolve_alias(self, name: str) -> str:
        """Return the name under which calls by `name` are recorded."""
        declarations = self.state.dispatcher.declarations
        return next((function.name for function in declarations if name in function.aliases), name)

    def find_mock(self, function: str) -> Answer | None:
        """Return the mock of a function, under whichever name the case has it."""
        answers = self.state.plan.mocks.answers.items()
        return next((answer for name, answer in answers if self.resolve_alias(name) == function), None)

    def replace_mock(self, function: str, answer: Answer) -> Case:
        """Return the case, without expectations, in which `answer` is the mock of `function`."""
        mocks = self.state.plan.mocks
        other_mocks = {name: mock for name, mock in mocks.answers.items() if self.resolve_alias(name) != function}
        return self.build_case(replace(mocks, answers={**other_mocks, function: answer}))

    def build_case(self, mocks: MockSet, **changes: object) -> Case:
        """Return the case with `mocks` and other changes, without expectations."""
        case = self.case
        return replace(
            case,
            **{
                "mocks": replace(mocks, state_probe=None),
                "expectation": Expectation(valid_arguments=False),
                "turns": tuple(replace(turn, expectation=None) for turn in case.turns),
                "repeat": Repeat(),
                "settings": replace(case.settings, strict_mocks=False),
                **changes,
            },
        )

    def find_reasons_not_run(self, function: str | None, verdict: Verdict) -> tuple[Reason, ...]:
        """Return why a run in which `function` answers otherwise (None: the input is another) proves nothing about the
        agent; () if it does."""
        if verdict.status == NOT_RUN:  # the budget is spent
            return verdict.reasons
        explanation = self._explain_unmeasurable(function, verdict.transcript)
        if explanation is None:
            return ()
        return (Reason(code=NOT_MEASURABLE, message=f"not measurable offline: {explanation}"),)

    def _explain_unmeasurable(self, function: str | None, transcript: Transcript) -> str | None:
        fault = transcript.fault
        if fault is not None and fault.code == "mock_error":
            return f"another mock needs what {function} returns ({fault.message})"
        if self.base_settings.model is not None:
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


_FIXED_RUNS = ("calls", TRACE)  # the case itself makes the calls, or they were made before: nothing can go otherwise


async def arun_with_sweeps(
    case: Case,
    agent: object = None,
    settings: Settings | None = None,
    *,
    watch: Watchdog | None = None,
    sweeps: Sequence[Sweep],
) -> Verdict:
    """Run a case, and if it passes, its sweeps: `Verdict.sweep_runs`. A run that fails, fails the case."""
    watch = watch or Watchdog()
    inner_watch = _InnerWatchdog(watch)
    verdict = await arun_case(case, agent, settings, watch=inner_watch)
    watch.clear_run()
    if verdict.status != PASSED or inner_watch.state is None or not case.input.keys().isdisjoint(_FIXED_RUNS):
        return verdict
    transcript = next((run.transcript for run in verdict.runs if run.passed), verdict.transcript)
    passing = PassingRun(inner_watch.state, transcript, (settings or Settings()).apply_variant(case.variant))
    done: list[SweepRun] = []
    with look_up_from(case.folder):
        planned_runs = [planned for sweep in sweeps for planned in sweep.plan(passing)]
    for planned in planned_runs:

        def complete(
            hung: Verdict, planned: PlannedRun = planned, done: tuple[SweepRun, ...] = tuple(done)
        ) -> Verdict:  # where the agent hangs, the runs planned after it are left out
            return _add_runs(verdict, [*done, planned.judge(hung)])

        watch.complete_verdict = complete
        changed = await arun_case(
            planned.case, agent, planned.settings or passing.settings, watch=_InnerWatchdog(watch)
        )
        watch.clear_run()
        done.append(planned.judge(changed))
    return _add_runs(verdict, done)


class _InnerWatchdog(Watchdog):
    """Watches one part of a sweep, and lets the caller's watch see the run that is going on."""

    def __init__(self, outer: Watchdog) -> None:
        super().__init__()
        self._outer = outer
        self.state: RunState | None = None

    def start_run(self, run: RunState) -> None:
        super().start_run(run)
        self._outer.start_run(run)
        self.state = run

    def clear_run(self) -> None:
        super().clear_run()
        self._outer.clear_run()

    def finish_run(self, verdict: Verdict) -> None:
        super().finish_run(verdict)
        if self._outer.complete_verdict is None:
            self._outer.finish_run(verdict)
        else:
            self._outer.clear_run()


def _add_runs(verdict: Verdict, runs: Sequence[SweepRun]) -> Verdict:
    """Add the runs of sweeps to a case's verdict: failed if one of them is, else an error if one was not measured, else
    not run if the budget left one out."""
    reasons_by_status: dict[str, list[Reason]] = {}
    for run in runs:
        for reason in run.reasons:
            if reason.code not in (NOT_MEASURABLE, NOT_COMPARABLE):
                headed = replace(reason, message=run.head + reason.message, call=None)
                reasons_by_status.setdefault(run.status, []).append(headed)
    status = next((severity for severity in (FAILED, ERROR, NOT_RUN) if severity in reasons_by_status), PASSED)
    reasons = tuple(reasons_by_status.get(status, ()))
    return replace(
        verdict,
        status=status,
        reasons=reasons,
        summary=reasons[0].message.partition("\n")[0] if reasons else verdict.summary,
        faults=tuple(run for run in runs if isinstance(run, FaultRun)),
        injections=tuple(run for run in runs if isinstance(run, InjectionRun)),
        parity=tuple(run for run in runs if isinstance(run, ParityRun)),
    )


PROSE = re.compile(r"[^\W\d_]\s+[^\W\d_]")  # two words, one after the other: no id, date or status
_LONGEST = 200  # characters of a call


def find_call_differences(
    usual: Sequence[FunctionCall],
    actual: Sequence[FunctionCall],
    *,
    is_accepted: Callable[[Mismatch], bool] = lambda mismatch: False,
) -> list[str]:
    """Describe each difference of the `actual` calls from the `usual` ones, whatever their order.

    Calls of one function are paired: equal ones first, the rest in their order. `is_accepted` says which differences of
    arguments are none.
    """
    differences: list[str] = []
    for ours, theirs in _pair_calls(usual, actual):
        if theirs is None:
            differences += [] if ours is None else [f"missing call: {format_call(ours)}"]
        elif ours is None:
            differences.append(f"unexpected call {theirs.index + 1}: {format_call(theirs)}")
        else:
            mismatches = Equal(ours.arguments).explain(theirs.arguments)
            place = f"call {theirs.index + 1}, {theirs.name}"
            differences += [f"{place}: {mismatch}" for mismatch in mismatches if not is_accepted(mismatch)]
    return differences


def _pair_calls(
    usual: Iterable[FunctionCall], actual: Iterable[FunctionCall]
) -> Iterator[tuple[FunctionCall | None, FunctionCall | None]]:
    waiting: dict[str, list[FunctionCall]] = defaultdict(list)
    for call in usual:
        waiting[call.name].append(call)
    unpaired: list[FunctionCall] = []
    for call in actual:
        same = waiting[call.name]
        index = next((i for i, peer in enumerate(same) if is_json_equal(peer.arguments, call.arguments)), None)
        if index is None:
            unpaired.append(call)
        else:
            del same[index]
    for call in unpaired:
        yield (waiting[call.name].pop(0) if waiting[call.name] else None), call
    for calls in waiting.values():
        yield from ((call, None) for call in calls)


def is_prose(mismatch: Mismatch) -> bool:
    """Return whether both texts are prose, which a model words anew each time it is asked."""
    return all(isinstance(value, str) and PROSE.search(value) for value in (mismatch.expected, mismatch.actual))


def format_call(call: FunctionCall) -> str:
    """Write a call as ``create_ticket(priority="high")``."""
    return f"{call.name}({format_arguments(call.arguments, _LONGEST)})"
