"""The parts of a feature: in a case, a run, a session. These carry them, and the kernel asks no other feature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

if TYPE_CHECKING:
    from pathlib import Path

    from evalkit.agents.task import Task
    from evalkit.checks.expectation import Expectation
    from evalkit.errors import EvalkitError
    from evalkit.execution.executor import CaseExecutor, ExecutorRequest
    from evalkit.functions.call_log import CallLog, PendingCall
    from evalkit.hooks.records import (
        AgentChange,
        Forecast,
        JudgedRun,
        PartJudgement,
        PlannedCase,
        Published,
        RunView,
        UserForecast,
    )
    from evalkit.hosts.reports.api import FinishedRun, PageSection, Redact
    from evalkit.jsonvalue import JsonValue
    from evalkit.records.case import Case
    from evalkit.records.run import Run
    from evalkit.records.transcript import Transcript, UserMessage
    from evalkit.records.verdict import Reason
    from evalkit.runner.changed_runs import PassingRun, PlannedRun


class CasePart(Struct, frozen=True):
    """What a feature has compiled for a case. Picklable; its methods are called for this case alone."""

    in_changed_runs: ClassVar[bool] = True  # it takes part in runs of a passed case with one thing changed
    judges_unmeasured: ClassVar[bool] = False  # `judge` is asked of runs that could not be measured, too
    replaces_agent: ClassVar[bool] = False  # `plan` names another agent, whose calls are fixed: no mock answers them

    def plan(self, planned: PlannedCase) -> PlannedCase:
        """A case is about to run: return what runs. It may change the case, and let another agent act in its agent's
        place. An EvalkitError is the verdict's; any other exception is an error of the case that names the feature."""
        return planned

    def start(self, log: CallLog) -> RunPart | None:
        """A run begins: return what takes part in it."""
        return None

    def judge(self, run: JudgedRun) -> PartJudgement | None:
        """A run is over, and the checks of `expected_output` have been made. An exception is an error of the case."""
        return None

    def confirm(self, run: JudgedRun) -> Reason | None:
        """All holds, what features demand included: return why the run can't count as measured nevertheless."""
        return None

    def is_current(self, data: Any) -> bool:
        """Return whether a verdict with this `data` would be the same now: `--evalkit-resume`."""
        return True

    def list_call_keys(self, function: str) -> set[str]:
        """Return the keys by which it tells calls of `function` apart, such as `result_contains`."""
        return set()

    def looks_at_arguments(self) -> bool:
        """Return whether it depends on more of calls than their names and outcomes."""
        return False

    def foresee_user(self) -> UserForecast | None:
        """Return what the user may say, of a case that does not hold the user's messages."""
        return None

    def forecast(self, forecast: Forecast) -> None:
        """Report what the expected calls can't keep."""


class RunPart:
    """The part of a feature in one run."""

    feature: ClassVar[str]
    speaks: ClassVar[bool] = False  # the user's messages come from it (`next_message`), and not from the case

    def join(self, task: Task) -> None:
        """The agent is about to be called with `task`."""

    def answer(self, call: PendingCall) -> EvalkitError | None:
        """A call is about to be answered by its mock. Change it if need be; return the error that it gets instead.

        Called under the lock of the call log.
        """
        return None

    def change_agent(self, change: AgentChange) -> None:
        """The run passes from one agent to another. Called without the lock of the call log."""

    async def close(self, run: RunView) -> None:
        """The agent has ended its run, and nothing has failed; no other run of it has begun.

        A MockError leaves the run unmeasured.
        """

    async def next_message(self, run: RunView) -> UserMessage | None:
        """Return what the user says next, None at the end of the conversation.

        The agent has answered the message before. The time counts as waiting, and none of the agent's. An exception
        ends the run as one that could not be measured.
        """
        return None

    def save(self) -> None:
        """Write what was recorded: the run could be measured. An OSError is a fault of the run."""

    def finish(self, transcript: Transcript, expectations: Sequence[Expectation | None]) -> Transcript:
        """The run is over: return its record, as it is to be judged."""
        return transcript

    def find_unused(self) -> Iterable[str]:
        """Word a sentence for each entry of the case that no call used."""
        return ()


class SessionPart:
    """What the options of a feature switch on, for a session as a whole. Each process of the session makes its own."""

    shows_baseline: ClassVar[bool] = False  # `publish` needs the cases of `--evalkit-baseline`, not only their outcomes
    shows_sections: ClassVar[bool] = False  # `publish` shows what other features return from `build_section`
    # Of the parts into which it divides the run, the reference first, with words for -k. Each case is run in each part.
    labels: Mapping[str, Iterable[str]] = MappingProxyType({})
    models: tuple[str, ...] = ()  # live ones that it names
    replaces_agents: ClassVar[str] = ""  # no agent runs: words on what is judged instead, for the head of the session

    def describe(self) -> Iterator[str]:
        """Yield lines for the head of the session."""
        return iter(())

    def get_circumstances(self) -> JsonValue:
        """Return what must be equal in runs that are joined, for the run's metadata; of parts records with `label`."""
        return None

    def prepare(self, case: Case, label: str) -> Case:
        """A case has been loaded, for the part `label` of the run; "" without parts. Return it as it is to be run."""
        return case

    def collect(self, cases: Iterable[Case]) -> JsonValue:
        """All cases of this process are collected, before -k and its like leave some out; reading `cases` loads them.

        Return what the process that collects the results must know of it, if it is another one: its part `join`s it.
        """
        return None

    def join(self, collected: JsonValue) -> None:
        """A worker is done: take what its part returned from `collect`."""

    def launch(self, case: Case) -> Case:
        """A case is about to run, after all were collected: return it as it is to be run."""
        return case

    def list_doubts(self, outcomes: Sequence[tuple[str, Any]]) -> Iterator[str]:
        """Yield why the run can't be trusted, and so is not measured. `outcomes` are those that `summarize` gets."""
        return iter(())

    def check_selection(self, selected: Iterable[tuple[str, Path]]) -> None:
        """Cases were selected, each by its label and folder, and their conftest files imported. UsageError refuses."""

    def again(self, passing: PassingRun) -> Iterable[PlannedRun]:
        """A case has passed: plan runs of it with one thing changed, in the order in which they run.

        A run that fails, fails the case. How reports call these runs stands in `Feature.changed_runs`. A part that has
        this is picklable: the processes of a cluster run cases, too.
        """
        return ()

    def build_executor(self, request: ExecutorRequest) -> CaseExecutor | None:
        """Return what runs the cases of the session in place of this process. UsageError where two features do."""
        return None

    def publish(self, report: FinishedRun) -> Iterator[Published]:
        """The run file is written: write or send something else of the run, in the process that collects the results.

        Yield what could not be written or sent, and what was. An exception is a `Loss`, too.
        """
        return iter(())

    def build_section(self, run: Run, redact: Redact | None) -> PageSection | None:
        """Return what a page of the run says of this feature; None for nothing."""
        return None


def select_changing(parts: Mapping[str, SessionPart]) -> dict[str, SessionPart]:
    """Return the parts, by feature, that run passed cases again."""
    return {name: part for name, part in parts.items() if type(part).again is not SessionPart.again}
