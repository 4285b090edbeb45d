"""Runs of a passed case with one thing changed, once for each change that a `SessionPart` plans.

A run that fails, fails the case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from evalkit.agents.task_settings import merge_settings
from evalkit.checks.expectation import Expectation, Judgement, judge_conversation
from evalkit.errors import FeatureError
from evalkit.functions.mocks.answers import Answer, MockSet
from evalkit.hooks import SessionPart, get_features, load_feature
from evalkit.records.case import Case, Declaration, Repeat
from evalkit.records.registry import look_up_from
from evalkit.records.settings import Settings, choose_model, derive_seed
from evalkit.records.transcript import Transcript
from evalkit.records.verdict import ERROR, FAILED, NOT_RUN, PASSED, ChangedRun, Reason, Verdict
from evalkit.runner.run_case import Watchdog, arun_case
from evalkit.runner.run_state import RunState

_SEVERITIES = (PASSED, NOT_RUN, ERROR, FAILED)


class PlannedRun(Struct, frozen=True):
    """A planned run: the case with its change, and what judges its verdict."""

    case: Case
    judge: Callable[[Verdict], ChangedRun]
    settings: Settings | None = None  # None: those of all changed runs, and a seed of its own


class PassingRun(Struct, frozen=True, kw_only=True):
    """A case that passed: what its runs had in common, and the transcript of one that passed."""

    case: Case
    transcript: Transcript
    settings: Settings  # of the case's own runs
    mocks: MockSet
    expectation: Expectation | None
    declared: tuple[Declaration, ...]  # by the case and by the agent
    uses_provider: bool  # the agent asked a model by evalkit

    @property
    def changed_settings(self) -> Settings:
        """Nothing is recorded or repeated, and mocks may go unused: an agent that gives up early does right."""
        return replace(self.settings, record=None, strict_mocks=None, repeat=None)

    def draw_settings(self, number: int) -> Settings:
        """Return the settings of changed run `number`, which is another draw."""
        seed = derive_seed(merge_settings(self.case.settings, self.settings).seed, f"changed run {number}")
        settings = self.changed_settings
        return settings if seed is None else replace(settings, seed=seed, from_flags=settings.from_flags | {"seed"})

    def find_declaration(self, name: str) -> Declaration | None:
        """Return the declaration of the function that is recorded under `name`."""
        return next((function for function in self.declared if function.name == name), None)

    def find_mock(self, function: str) -> Answer | None:
        """Return the mock of a function, under whichever name the case has it."""
        answers = self.mocks.answers.items()
        return next((answer for name, answer in answers if self._resolve_alias(name) == function), None)

    def replace_mock(self, function: str, answer: Answer) -> Case:
        """Return the case, without expectations, in which `answer` is the mock of `function`."""
        answers = self.mocks.answers.items()
        other_mocks = {name: mock for name, mock in answers if self._resolve_alias(name) != function}
        return self.build_case(replace(self.mocks, answers={**other_mocks, function: answer}))

    def build_case(self, mocks: MockSet | None = None, **changes: object) -> Case:
        """Return the case with other `mocks` and other changes, without expectations."""
        return replace(
            self.case,
            **{
                "mocks": mocks or self.mocks,
                "features": {name: part for name, part in self.case.features.items() if part.in_changed_runs},
                "expectation": Expectation(valid_arguments=False),
                "turns": tuple(replace(turn, expectation=None) for turn in self.case.turns),
                "repeat": Repeat(),
                "settings": replace(self.case.settings, strict_mocks=False),
                **changes,
            },
        )

    def judge_end(self, transcript: Transcript) -> Judgement:
        """Judge only how a run ended."""
        turns: list[Expectation | None] = [None for _ in self.case.turns]
        return judge_conversation(transcript, Expectation(valid_arguments=False), turns, input=self.case.input)

    def _resolve_alias(self, name: str) -> str:
        return next((function.name for function in self.declared if name in function.aliases), name)


def _is_fixed(case: Case) -> bool:
    """Return whether nothing can go otherwise: the case itself makes the calls, or they were made before."""
    return "calls" in case.input or any(part.replaces_agent for part in case.features.values())


async def arun_with_changes(
    case: Case,
    agent: object = None,
    settings: Settings | None = None,
    *,
    watch: Watchdog | None = None,
    parts: Mapping[str, SessionPart],
) -> Verdict:
    """Run a case, and if it passes, the changed runs that `parts` plan: `Verdict.changed_runs`."""
    watch = watch or Watchdog()
    inner_watch = _InnerWatchdog(watch)
    verdict = await arun_case(case, agent, settings, watch=inner_watch)
    watch.clear_run()
    if verdict.status != PASSED or inner_watch.state is None or _is_fixed(case):
        return verdict
    passing = _describe_run(inner_watch.state, verdict, choose_model(settings or Settings(), case.chosen_model))
    planned_runs: list[tuple[str, PlannedRun]] = []
    with look_up_from(case.folder):
        for name, part in parts.items():
            try:
                planned_runs += [(name, planned) for planned in part.plan_changed_runs(passing)]
            except Exception as error:
                return _add_error(verdict, name, error)
    for number, (name, planned) in enumerate(planned_runs, 1):
        # Where the agent hangs, the runs planned after it are left out.
        watch.complete_verdict = partial(_add_run, verdict, name, planned)
        settings = planned.settings or passing.draw_settings(number)
        changed = await arun_case(planned.case, agent, settings, watch=_InnerWatchdog(watch))
        watch.clear_run()
        verdict = _add_run(verdict, name, planned, changed)
    return verdict


def _describe_run(state: RunState, verdict: Verdict, settings: Settings) -> PassingRun:
    plan = state.plan
    return PassingRun(
        case=plan.case,
        transcript=next((run.transcript for run in verdict.runs if run.passed), verdict.transcript),
        settings=settings,
        mocks=plan.mocks,
        expectation=plan.expectation,
        declared=tuple(state.dispatcher.declarations),
        uses_provider=state.task.provider is not None,
    )


class _InnerWatchdog(Watchdog):
    """Watches one of several runs of a case, and lets the caller's watch see the run that is going on."""

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


def _add_run(verdict: Verdict, name: str, planned: PlannedRun, changed: Verdict) -> Verdict:
    """Add a run of feature `name` to the verdict of a case.

    It is failed if one run is, else an error if one was not measured, else not run if the budget left one out.
    """
    try:
        run = replace(planned.judge(changed), feature=name)
    except Exception as error:
        return _add_error(verdict, name, error)
    verdict = replace(verdict, changed_runs=(*verdict.changed_runs, run))
    is_undecided = run.status == NOT_RUN and changed.status != NOT_RUN
    if not run.reasons or is_undecided or _SEVERITIES.index(run.status) < _SEVERITIES.index(verdict.status):
        return verdict
    words = load_feature(name).changed_runs
    assert words is not None, f"feature '{name}' says in `changed_runs` how reports call its runs"
    head = words.format_head(run.place, [run.change])
    reasons = tuple(replace(reason, message=head + reason.message, call=None) for reason in run.reasons)
    if run.status == verdict.status:
        reasons = (*verdict.reasons, *reasons)
    return replace(verdict, status=run.status, reasons=reasons, summary=reasons[0].message.partition("\n")[0])


def _add_error(verdict: Verdict, name: str, error: Exception) -> Verdict:
    """Return the verdict of a case of which feature `name` raised."""
    failure = FeatureError(name, get_features().packages[name], error)
    reason = Reason(code=failure.code, message=str(failure))
    return replace(verdict, status=ERROR, reasons=(*verdict.reasons, reason), summary=reason.message)
