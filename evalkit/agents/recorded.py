"""A run that was recorded elsewhere, in the place of the agent: its replies, calls and answers go on record as is.

Nothing runs, and no mock is asked. What the trace does not hold can't be judged: a case that asks for it is an error
that says what to record, never passed.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from evalkit.agents.contract import COMPLETED, Reply
from evalkit.agents.task import Task
from evalkit.agents.task_input import copy_visible_input, format_message
from evalkit.checks.call_keys import FunctionKey, list_call_keys
from evalkit.checks.expected_keys import list_expected_keys
from evalkit.checks.key_schemas import GROUP_KEYS, DemandKey
from evalkit.errors import FunctionError, IncompleteTraceError, MissingTraceError, ProviderError, UsageError
from evalkit.hooks import AgentChange
from evalkit.hosts.traces.log_formats import (
    Conversation,
    Event,
    FunctionAnswer,
    LoggedMessage,
    ModelReply,
    UnreadableLogError,
)
from evalkit.hosts.traces.open_items import OpenCalls, OpenItems
from evalkit.hosts.traces.otel import read_run
from evalkit.hosts.traces.read_log import read_log
from evalkit.hosts.traces.spans import TRANSFER
from evalkit.jsonvalue import JsonObject, filter_mappings, to_hashable, walk_leaves
from evalkit.records.case import TRACE, Case, get_case_name
from evalkit.records.transcript import APPLICATION, SERVICE, FunctionCall, ModelCall, ModelTurn
from evalkit.records.unobserved import ARGUMENTS
from evalkit.wire.reading import allow_items
from evalkit.wire.records import CLIENT, Call

ADVICE = (
    "record the content of messages and calls: OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true, or what the "
    "framework has for it"
)
_OUTPUT_TOOL = "final_result"  # as pydantic-ai calls the tool by which a model gives its structured output


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
        conversation = task.trace = self.conversations[task.run_index]
        if "user" in case.input:
            raise IncompleteTraceError("a case with a simulated user (input.user) is judged on runs of its own alone")
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


# Which recorded run is a case's.


def load_recorded_agent(case: Case, root: Path, harmless: tuple[str, ...] = ()) -> RecordedAgent:
    """Return the run in the file that `input.trace` names, as an agent. Raise MissingTraceError if it is not there.

    Of several in the file it is the one that names the case, else the one with its input.
    """
    file = case.input[TRACE]
    name = str(file.get("file")) if isinstance(file, Mapping) else str(file)
    path = root / str(file.get("path")) if isinstance(file, Mapping) else root / name
    try:
        results = _read_file(path, harmless)
    except UsageError as error:
        raise MissingTraceError(f"{case.locate(('input', 'trace'))}: {error}") from None
    folder = Path(os.path.relpath(path.parent, root)).as_posix()  # as the same run is called in a folder of traces
    prefix = "" if folder == "." else f"{folder}/"
    conversations = [
        replace(result, source=f"{prefix}{result.source}") for result in results if isinstance(result, Conversation)
    ]
    broken = [result for result in results if not isinstance(result, Conversation)]
    if conversations and broken:
        broken_count = f"{len(broken)} records" if len(broken) > 1 else "a record"
        problem = f"{name} holds {broken_count} that can't be read, and could be of this run: {broken[0]}"
        raise MissingTraceError(f"{case.locate(('input', 'trace'))}: {problem}")
    chosen = conversations
    if len(conversations) > 1:
        named = [conversation for conversation in conversations if is_named(conversation, case)]
        chosen = named or [conversation for conversation in conversations if has_same_input(conversation, case)]
    if len(chosen) == 1:
        return RecordedAgent(case, tuple(chosen))
    if not conversations:
        why = f": {results[0]}" if results else ""
        raise MissingTraceError(f"{case.locate(('input', 'trace'))}: {name} holds no run of an agent{why}")
    how = "are of this case" if chosen else "are there, and none names this case or has its input"
    count = len(chosen or conversations)
    raise MissingTraceError(f"{case.locate(('input', 'trace'))}: {name}: {count} runs {how}; give it a file of one")


def _read_file(path: Path, harmless: tuple[str, ...]) -> Sequence[Conversation | UsageError]:
    """Read a file of traces once for all cases that name it, as long as it does not change."""
    try:
        status = path.stat()
    except OSError:
        return tuple(read_log(path))  # which says why
    return _read_file_once(path, status.st_mtime_ns, status.st_size, harmless)


@lru_cache(maxsize=2)
def _read_file_once(
    path: Path, modified_ns: int, size: int, harmless: tuple[str, ...]
) -> Sequence[Conversation | UsageError]:
    return tuple(read_log(path, harmless=harmless))


def is_named(conversation: Conversation, case: Case) -> bool:
    """Return whether a record names the case: by its id, or by the name of its file without the ending."""
    return conversation.case_id in list_names(case)


def has_same_input(conversation: Conversation, case: Case) -> bool:
    """Return whether the user says the same: letter by letter, but for white space and forms of Unicode."""
    return fold_texts(list_user_texts(conversation)) in list_inputs(case)


def list_names(case: Case) -> tuple[str, str]:
    """Return the names by which a record may call a case: its id, and the name of its file without the ending."""
    return case.id, get_case_name(case.id)


def list_inputs(case: Case) -> set[tuple[str, ...]]:
    """Return what the user of a case says, folded, in the forms in which an agent may have been given it."""
    if case.turns:
        return {fold_texts(format_message(turn.user) for turn in case.turns)}
    texts = [format_message(copy_visible_input(case.input))]
    message, email = case.input.get("message"), case.input.get("email")
    texts += [message] if isinstance(message, str) else []  # without the context
    texts += [str(email.get("body") or "")] if isinstance(email, Mapping) else []
    return {fold_texts([text]) for text in texts}


def fold_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """Normalise texts for a comparison: their Unicode form, and white space."""
    return tuple(" ".join(unicodedata.normalize("NFC", text).split()) for text in texts)


class RecordedError(Exception):
    """An error that the agent of a recorded run raised."""


def record_exported_run(task: Task, case: Case, exports: Sequence[JsonObject], reply: Reply) -> Reply:
    """Put on record what the spans tell that an agent has exported while it answered, and return its reply.

    Calls that went through evalkit's own functions are on record already.
    """
    try:
        with allow_items(task.harmless_items):
            conversation = read_run(exports, "the agent's spans")
    except UnreadableLogError as error:
        why = f"{len(exports)} batches of spans: {error}; see docs/judge-traces.md"
        none = "no spans; it must export them before it ends, as OpenTelemetry's SDKs do when they are shut down"
        raise IncompleteTraceError(f"the agent exported {why if exports else none}") from None
    if problem := find_missing_evidence(case, conversation, is_live=True):
        raise IncompleteTraceError(f"{conversation.source}: it {problem}")
    note_blank_calls(task, conversation)
    recorder = RunRecorder(task)
    recorder.record(split_turns(conversation)[-1])
    return reply if reply.text else replace(reply, text=recorder.text or conversation.output or "")


def note_blank_calls(task: Task, conversation: Conversation) -> None:
    """Note the calls whose arguments nobody recorded: they stand without any on record."""
    for name in list_blank_calls(conversation):
        task.note_unobserved(ARGUMENTS, name)


def split_turns(conversation: Conversation) -> list[list[Event]]:
    """Return the events after each message of the user. What a trace without messages holds is one turn."""
    turns: list[list[Event]] = []
    is_answered = True
    for event in conversation.events:
        if isinstance(event, LoggedMessage):
            if is_answered:
                turns.append([])
            is_answered = False
        else:
            is_answered = True
            if not turns:
                turns.append([])
            turns[-1].append(event)
    return turns or [[]]


def list_user_texts(conversation: Conversation) -> list[str]:
    """List the messages of the user, those that follow each other as one."""
    texts: list[list[str]] = []
    is_answered = True
    for event in conversation.events:
        if isinstance(event, LoggedMessage):
            if is_answered:
                texts.append([])
            texts[-1].append(event.text)
        is_answered = not isinstance(event, LoggedMessage)
    return ["\n\n".join(parts) for parts in texts]


class RunRecorder:
    """Puts events of a recorded run on record in a task. `text` is that of the last reply; None: it is not known."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._open: OpenCalls[tuple[int | None, ModelCall, str]] = OpenCalls()  # with the turn, and who answers
        self._agent: str | None = None
        self._asker: str | None = None  # within whose run that agent runs
        self._last_call = ""
        self._made: OpenItems[FunctionCall] = OpenItems()
        for call in task.calls:
            if call.user_turn == task.user_turn:
                self._made.add(call, (call.name, to_hashable(call.arguments)))
        self._has_turns = bool(task.turns)  # they were seen on their way to the model
        self.text: str | None = None

    def record(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, ModelReply):
                self._record_reply(event)
            elif isinstance(event, FunctionAnswer):
                self._record_answer(event)

    def _record_reply(self, reply: ModelReply) -> None:
        asked = [call for call in reply.calls if not is_output(call)]
        calls = tuple(call.to_model_call() for call in map(_complete_call, asked))
        turn = ModelTurn(
            text=reply.text,
            calls=calls,
            finish_reason="tool_calls" if calls else "stop",
            usage=reply.usage,
            model=reply.model,
            duration_ms=round(reply.duration_ms, 3),
            agent=reply.agent,
        )
        self._note_agent(reply)
        index = None if self._has_turns else self._task.record_framework_turn(turn)
        for call, logged in zip(calls, asked, strict=True):
            answered_by = APPLICATION if logged.carrier == CLIENT else SERVICE
            self._open.add_call((index, call, answered_by), call.name, call.call_id)
            if call.malformed is not None:
                self._task.record_call(call, turn=index, error=FunctionError("malformed_call", call.malformed))
        self.text = None if reply.is_blank or reply.calls else reply.text

    def _note_agent(self, reply: ModelReply) -> None:
        """Record a hand-off where another agent replies, or a delegation where that one runs within the other's run."""
        before, self._agent = self._agent, reply.agent or self._agent
        asker, self._asker = self._asker, reply.within
        if before is None or self._agent == before:
            return
        is_transfer = TRANSFER.search(self._last_call) is not None
        if asker == self._agent and not is_transfer:
            return  # it goes on with the answer of the agent that it has asked
        if is_transfer or reply.within is None:
            self._record_change(before, returns=False)
        elif reply.within == before:
            self._record_change(before, returns=True)

    def _record_change(self, before: str, *, returns: bool) -> None:
        function = self._last_call or None
        change = AgentChange(source=before, target=str(self._agent), returns=returns, function=function)
        self._task.record_agent_change(change)

    def _record_answer(self, answer: FunctionAnswer) -> None:
        self.text = None
        answered_by = APPLICATION
        found = None if answer.direct is not None else self._open.take_call(answer)
        if found is not None:
            turn, call, answered_by = found
        elif answer.direct is not None:
            direct = answer.direct
            arguments = dict(direct.arguments or {})
            call = ModelCall(name=direct.name, arguments=arguments, call_id=direct.call_id, channel="direct")
            turn = None
        else:
            self._task.warnings.append(f"the trace has an answer to {answer.name or answer.call_id} without its call")
            return
        self._last_call = call.name
        if call.malformed is not None:
            return  # it is on record, whatever it was answered
        if self._made.take((call.name, to_hashable(call.arguments))) is not None:
            return
        error = _build_error(answer.value) if answer.failed else None
        self._task.record_call(call, answer.value, turn=turn, error=error, answered_by=answered_by, agent=answer.agent)


def _complete_call(call: Call) -> Call:
    """Return a call; one whose arguments were not recorded stands without any on record."""
    return replace(call, arguments={}) if call.arguments is None else call


def is_output(call: Call) -> bool:
    """Return whether a framework takes a call for the model's output, and calls no function."""
    return call.name == _OUTPUT_TOOL


def _build_error(value: object) -> FunctionError:
    """Return the failure that an answer tells of: a text, or ``{"error": {"type", "message"}}``."""
    error = value.get("error", value) if isinstance(value, Mapping) else value
    kind = error.get("type") if isinstance(error, Mapping) else None
    message = error.get("message") if isinstance(error, Mapping) else error
    text = message if isinstance(message, str) else str(value)
    return FunctionError(kind if isinstance(kind, str) and kind else "error", text)


# What a case asks for, and a trace lacks.


def find_missing_evidence(case: Case, conversation: Conversation, *, is_live: bool = False) -> str:
    """Return what the case asks for and `conversation` does not hold: "holds no arguments of ..."; "" if nothing.

    `is_live`: the agent ran here, so that its state and its final response are known.
    """
    turns = filter_mappings(case.input.get("turns"))
    demands = [case.expected_output, *(turn.get("expected_output") for turn in turns)]
    keys, texts = collect_keys(demands), [leaf for _, leaf in walk_leaves(demands) if isinstance(leaf, str)]
    calls = _list_calls(conversation)
    blank = list_blank_calls(conversation)
    declared = {function.name for function in case.functions if function.parameters}
    on_arguments = any(part.looks_at_arguments() for part in case.features.values()) or not declared.isdisjoint(blank)
    known: list[DemandKey] = [*list_expected_keys().values(), *list_call_keys().values()]
    by_names = GROUP_KEYS.keys() | {key.name for key in known if not key.looks_at_arguments}
    if blank and (on_arguments or not keys <= by_names or any("{{" in text for text in texts)):
        return f"holds no arguments of {', '.join(blank)}; {ADVICE}"
    if gap := _find_gap(conversation, is_live=is_live):
        return gap
    names = {call.name for call in calls}
    of_features = {key for part in case.features.values() for name in names for key in part.list_call_keys(name)}
    for key in known:
        if key.untraced and key.name in keys | of_features and not is_live:
            return f"holds {key.untraced}, which the case expects ('{key.name}')"
    keys |= of_features
    unknown = _list_lost_results(conversation, calls)
    on_results = {key.name for key in known if key.looks_at_results}
    if unknown and (keys & on_results or any("calls" in text and "{{" in text for text in texts)):
        return f"holds no result of {', '.join(unknown)}; {ADVICE}"
    on_response = {key.name for key in known if key.looks_at_response}
    if keys & on_response and not is_live and not has_response(conversation):
        return f"holds no final response; {ADVICE}"
    return ""


def _find_gap(conversation: Conversation, *, is_live: bool) -> str:
    """Return which part of the run was not recorded, whatever the case asks for."""
    unanswered, unasked = match_answers(conversation)
    if unanswered:
        return f"holds no answer to {', '.join(unanswered)}: it was cut off, or its functions are not traced"
    if unasked:
        return f"holds an answer to {', '.join(unasked)} without its call: a part of it is lost"
    if not is_live and (last := _find_open_end(conversation)) is not None:
        return f"ends with the answer of {last}, and holds neither a reply to it nor the end of the run: it was cut off"
    if any(isinstance(event, ModelReply) and event.is_blank and not event.calls for event in conversation.events[:-1]):
        return f"holds a reply without what it says or asks for; {ADVICE}"
    return ""


def list_blank_calls(conversation: Conversation) -> list[str]:
    """List the functions of calls whose arguments were not recorded."""
    return list(dict.fromkeys(call.name for call in _list_calls(conversation) if call.arguments is None))


def _list_calls(conversation: Conversation) -> list[Call]:
    """List the calls that the model asked for, and those that code made by itself."""
    calls = [call for event in conversation.events if isinstance(event, ModelReply) for call in event.calls]
    return calls + [event.direct for event in conversation.events if isinstance(event, FunctionAnswer) and event.direct]


def _list_lost_results(conversation: Conversation, calls: Iterable[Call]) -> list[str]:
    """List the functions of `calls` whose answers were recorded without their results."""
    names = {call.call_id: call.name for call in calls if call.call_id}
    lost = [event for event in conversation.events if isinstance(event, FunctionAnswer) and event.is_missing]
    return list(dict.fromkeys(event.name or names.get(str(event.call_id), "a call") for event in lost))


def match_answers(conversation: Conversation) -> tuple[list[str], list[str]]:
    """Return the functions whose calls have no answer, and the names or ids of answers that have no call."""
    open_calls: OpenCalls[str] = OpenCalls()
    unasked: list[str] = []
    for event in conversation.events:
        if isinstance(event, ModelReply):
            for call in event.calls:
                open_calls.add_call("" if call.malformed is not None else call.name, call.name, call.call_id)
        elif isinstance(event, FunctionAnswer) and event.direct is None and open_calls.take_call(event) is None:
            unasked.append(str(event.name or event.call_id or "a call"))
    unanswered = [name for name in open_calls if name not in ("", _OUTPUT_TOOL)]
    return list(dict.fromkeys(unanswered)), list(dict.fromkeys(unasked))


def _find_open_end(conversation: Conversation) -> str | None:
    """Return the function to whose answer, the last on record, the model would have replied; None if there is none."""
    last = conversation.events[-1] if conversation.events else None
    is_known = conversation.has_ended or conversation.output is not None or conversation.error is not None
    if is_known or not isinstance(last, FunctionAnswer) or last.direct is not None:
        return None
    calls = [call for event in conversation.events if isinstance(event, ModelReply) for call in event.calls]
    asked = next((call for call in reversed(calls) if last.call_id in (None, call.call_id)), None)
    return None if asked is None or is_output(asked) else asked.name


def has_response(conversation: Conversation) -> bool:
    """Return whether the answer of the agent is known."""
    if conversation.output is not None:
        return True
    last = conversation.events[-1] if conversation.events else None
    return isinstance(last, ModelReply) and not last.calls and not last.is_blank


def collect_keys(demands: object) -> set[str]:
    """Collect the keys of what a case expects, and of the calls in it. Arguments and results have keys of their own."""
    keys: set[str] = set()
    pending = [demands]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, Mapping):
            keys |= {str(key) for key in value}
            if FunctionKey.name not in value:
                pending += [item for item in value.values() if isinstance(item, list) or _is_call(item)]
    return keys


def _is_call(value: object) -> bool:
    return isinstance(value, Mapping) and FunctionKey.name in value
