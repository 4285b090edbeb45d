"""A recorded run in the place of a case's agent: its replies, calls and answers go on record as they are.

Nothing runs, and no mock is asked. What the trace does not hold can't be judged: a case that asks for it is an error
that says what to record, never passed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from evalkit.agents.contract import COMPLETED, AgentUnderTest, Reply
from evalkit.agents.task import Task
from evalkit.checks.expectation import Expectation
from evalkit.errors import IncompleteTraceError, ProviderError
from evalkit.features.recorded_runs.choice import MissingTraceError, choose_run, has_same_input
from evalkit.features.recorded_runs.records import NAME, RunSource
from evalkit.functions.call_log import CallLog
from evalkit.hooks import CasePart, JudgedRun, PartJudgement, PlannedCase, RunPart
from evalkit.hosts.traces.api import (
    Conversation,
    RecordedError,
    RunRecorder,
    find_missing_evidence,
    list_user_texts,
    note_blank_calls,
    split_turns,
)
from evalkit.records.case import Case, Repeat
from evalkit.records.transcript import TRACED, Timing, Transcript


class _Replacing(CasePart, frozen=True):
    """Recorded runs act in place of the agent."""

    judges_unmeasured = True
    replaces_agent = True

    def judge(self, run: JudgedRun) -> PartJudgement:
        return PartJudgement(data=run.transcript.features.get(NAME))


class TraceFile(_Replacing, frozen=True):
    """The file with a recorded run that a case names (`input.trace`)."""

    def plan(self, planned: PlannedCase) -> PlannedCase:
        return _replace_agent(planned, (choose_run(planned.case, planned.root, planned.settings.http.harmless),))

    def start(self, log: CallLog) -> RunPart:
        return JudgedTrace(is_named=True)


class MatchedRuns(_Replacing, frozen=True):
    """The recorded runs that are a case's among those of a session. `problem`: why there is none that can be judged."""

    conversations: tuple[Conversation, ...]
    problem: str = ""

    def plan(self, planned: PlannedCase) -> PlannedCase:
        return _replace_agent(planned, self.conversations, self.problem)

    def start(self, log: CallLog) -> RunPart:
        return JudgedTrace(is_named=False)


def _replace_agent(planned: PlannedCase, conversations: tuple[Conversation, ...], problem: str = "") -> PlannedCase:
    """Have recorded runs act in place of the case's agent."""
    case = planned.case
    agent = RecordedAgent(case, conversations, problem)
    functions = tuple(replace(function, patch=None) for function in case.functions)
    repeat = case.repeat if len(conversations) > 1 else Repeat()  # there is one trace alone
    return replace(
        planned,
        case=replace(case, functions=functions, repeat=repeat),
        agent=AgentUnderTest(agent.name, agent, is_async=True, is_recorded=True),
    )


class JudgedTrace(RunPart):
    """The recorded run that is judged in place of one of the agent; None before it is known."""

    feature = NAME

    def __init__(self, *, is_named: bool) -> None:
        self._is_named = is_named
        self.conversation: Conversation | None = None

    def finish(self, transcript: Transcript, expectations: Sequence[Expectation | None]) -> Transcript:
        conversation = self.conversation
        source = RunSource("" if conversation is None else conversation.source, is_named=self._is_named)
        features = {**transcript.features, NAME: to_builtins(source)}
        if conversation is None:
            return replace(transcript, features=features)
        return replace(
            transcript,
            features=features,
            cassette=TRACED,
            timing=_measure_time(transcript, conversation),
            unused_mocks=(),
            state=None,
        )


def _measure_time(transcript: Transcript, conversation: Conversation) -> Timing | None:
    """Return the times of a run that its spans tell; None if they say nothing."""
    total_ms = conversation.duration_ms
    if total_ms is None:
        return None
    model_ms = sum(turn.duration_ms for turn in transcript.turns)
    return Timing(model_ms=min(model_ms, total_ms), overhead_ms=max(total_ms - model_ms, 0.0))


class RecordedAgent(Struct, frozen=True, eq=False):
    """``await agent(task)`` puts on record what an agent did after one message of the user: the first run of the case
    as the first of `conversations` tells it, and so on. `problem`: why there is none that can be judged.
    """

    case: Case
    conversations: tuple[Conversation, ...]
    problem: str = ""

    @property
    def name(self) -> str:
        return self.conversations[0].source if self.conversations else "a recorded run"

    async def __call__(self, task: Task) -> Reply:
        case = self.case
        if self.problem:
            raise MissingTraceError(self.problem)
        if task.run_index >= len(self.conversations):
            count = len(self.conversations)
            raise MissingTraceError(f"run {task.run_index + 1} has no trace: there are {count} of this case")
        conversation = self.conversations[task.run_index]
        task.take_part(JudgedTrace).conversation = conversation
        turns = split_turns(conversation)
        planned = len(case.turns) or 1
        if len(turns) != planned:
            messages = f"{len(turns)} message{'s' * (len(turns) != 1)} of a user"
            raise IncompleteTraceError(f"{conversation.source} has {messages}, and the case {planned}")
        if problem := find_missing_evidence(case, conversation):
            raise IncompleteTraceError(f"{conversation.source} {problem}")
        index = task.user_turn
        if index == 0:
            if (runs := self.case.repeat.runs) > 1 and len(self.conversations) == 1:
                task.warnings.append(f"the case asks for {runs} runs; the trace tells of one")
            if list_user_texts(conversation) and not has_same_input(conversation, self.case):
                task.warnings.append(f"{conversation.source}: its user says something else than that of the case")
        note_blank_calls(task, conversation)
        recorder = RunRecorder(task)
        recorder.record(turns[index])
        is_last = index == len(turns) - 1
        if is_last and conversation.error is not None:
            if conversation.is_service_error:
                raise ProviderError(f"{conversation.source}: the model's service failed: {conversation.error}")
            raise RecordedError(conversation.error)
        text = recorder.text
        if is_last and text is None:
            text = conversation.output
        return Reply(text or "", stop_reason=COMPLETED)
