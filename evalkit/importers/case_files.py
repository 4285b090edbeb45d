"""A conversation as files: the case, the cassette with the model's turns, and the instruction it was held under.

What was asked of the functions becomes the expectation, what they answered their mocks. A call is held against its
declared schema here, so that one which broke it is expected to break it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

from msgspec import Struct

from evalkit.functions.arguments import find_argument_violations
from evalkit.functions.declarations import is_function_name, parse_declarations
from evalkit.functions.mocks.recording import has_mock_syntax, to_answer
from evalkit.importers.conversation import (
    Conversation,
    FunctionAnswer,
    LoggedCall,
    ModelReply,
    UnreadableLogError,
    UserMessage,
)
from evalkit.model.case import Declaration
from evalkit.yamlfile.write import dump

CUT_OFF = "(The log ends here.)"  # the reply of a model whose reply the log does not have
_ANY = {"type": "object"}


class CaseFiles(Struct, frozen=True, kw_only=True):
    """The texts of one case. `instruction` is None where an agent of the user's own is under test."""

    case: str
    cassette: str
    instruction: str | None
    notes: tuple[str, ...]  # what the log did not tell, and what was put in its place


def build_case_files(conversation: Conversation, *, agent: str | None, name: str) -> CaseFiles:
    """`conversation` as files. `agent` is the agent under test; None: an instruction file `name`.md of the log's own.

    Raises UnreadableLogError where nobody asks, or a function has a name that none can have.
    """
    story = _Story(conversation)
    declared = _read_declarations(conversation, story)
    case: dict[str, Any] = {"description": f"Imported from {conversation.source}", "agent": agent or f"{name}.md"}
    if agent is not None and declared:
        case["functions"] = {
            data.pop("name"): data for data in (declaration.to_json() for declaration in declared.values())
        }
    case |= {"input": story.build_input(), "expected_output": story.build_expected(declared)}
    return CaseFiles(
        case=dump(case),
        cassette=dump({"turns": story.build_turns()}),
        instruction=None if agent is not None else _build_instruction(conversation, declared, name),
        notes=tuple(story.notes),
    )


class _Story:
    """The conversation by the turns of the user, each with the replies that follow."""

    def __init__(self, conversation: Conversation) -> None:
        self.notes: list[str] = []
        self.parts: list[tuple[str, list[ModelReply]]] = []
        self.answers: dict[int, FunctionAnswer] = {}  # by the index of the call
        self.calls: list[LoggedCall] = []
        self._open: list[int] = []
        for event in conversation.events:
            self._take(event)
        for call in self.calls:
            if not is_function_name(call.name):
                raise UnreadableLogError(f"{call.name!r} was called, which is no name of a function")
        if not self.parts or not self.parts[0][0]:
            raise UnreadableLogError("there is no message of a user in it")
        for index in self._open:
            self.notes.append(f"no answer to {self.calls[index].name} is in the log; its mock answers null")

    def _take(self, event: UserMessage | ModelReply | FunctionAnswer) -> None:
        if isinstance(event, UserMessage):
            self.parts.append((event.text, []))
        elif isinstance(event, ModelReply):
            if not self.parts:
                self.parts.append(("", []))
            self.parts[-1][1].append(event)
            self._open += range(len(self.calls), len(self.calls) + len(event.calls))
            self.calls += event.calls
        else:
            self._record_answer(event)

    def _record_answer(self, event: FunctionAnswer) -> None:
        """An answer belongs to the first open call of its id, else of its name, else to the first at all."""
        by_id = [i for i in self._open if event.call_id is not None and self.calls[i].call_id == event.call_id]
        by_name = [i for i in self._open if event.name is not None and self.calls[i].name == event.name]
        unknown = event.call_id is None and event.name is None
        index = next(iter(by_id or by_name or (self._open if unknown else [])), None)
        if index is None:
            self.notes.append("an answer in the log belongs to no call, and is left out")
            return
        self._open.remove(index)
        self.answers[index] = event

    def build_input(self) -> dict[str, Any]:
        data: dict[str, Any] = {"message": self.parts[0][0]}
        if len(self.parts) > 1:
            data = {"turns": [text for text, _ in self.parts]}
        mocks = {name: self._build_mock(name) for name in dict.fromkeys(call.name for call in self.calls)}
        return {**data, **({"mock_function_responses": mocks} if mocks else {})}

    def _build_mock(self, name: str) -> Any:
        """One answer; by arguments, where they tell the calls apart; else one after another."""
        exchanges = [
            (c.arguments, _to_mock_answer(self.answers.get(i))) for i, c in enumerate(self.calls) if c.name == name
        ]
        answers = [answer for _, answer in exchanges]
        if all(answer == answers[0] for answer in answers):
            return answers[0]
        arguments = [_to_texts(first).items() for first, _ in exchanges]
        if any(has_mock_syntax(first) for first, _ in exchanges) or any(
            first <= second for first, second in permutations(arguments, 2)
        ):
            return {"$sequence": [answer if _is_error(answer) else {"$return": answer} for answer in answers]}
        rules = [{"when": dict(first), **(a if _is_error(a) else {"$return": a})} for first, a in exchanges]
        return {"$match": rules}

    def build_expected(self, declared: Mapping[str, Declaration]) -> dict[str, Any]:
        calls = [
            _build_expected_call(c, i in self.answers and self.answers[i].failed, declared)
            for i, c in enumerate(self.calls)
        ]
        return {"expected_function_calls": calls}

    def build_turns(self) -> list[dict[str, Any]]:
        turns = []
        for number, (_, replies) in enumerate(self.parts):
            turns += [_build_turn(reply) for reply in replies]
            if not replies or replies[-1].calls:
                turns.append({"text": CUT_OFF})
                place = f"after message {number + 1} of the user" if len(self.parts) > 1 else "at its end"
                self.notes.append(f"the log has no reply {place}; the cassette says {CUT_OFF!r}")
        return turns


def _to_texts(arguments: Mapping[str, Any]) -> dict[str, str]:
    return {key: repr(value) for key, value in arguments.items()}


def _to_mock_answer(event: FunctionAnswer | None) -> Any:
    if event is None:
        return None
    if not event.failed:
        return to_answer(event.value)
    value = event.value
    if isinstance(value, Mapping):
        kind, message = str(value.get("type") or value.get("code") or "error"), value.get("message")
        return {"$error": {"type": kind, "message": _to_message(message if isinstance(message, str) else value)}}
    return {"$error": {"type": "error", "message": _to_message(value)}}


def _to_message(value: Any) -> Any:
    text = value if isinstance(value, str) else dump(value).strip()
    return {"$literal": text} if has_mock_syntax(text) else text


def _is_error(answer: Any) -> bool:
    return isinstance(answer, Mapping) and answer.keys() == {"$error"}


def _build_expected_call(call: LoggedCall, failed: bool, declared: Mapping[str, Declaration]) -> dict[str, Any]:
    expected: dict[str, Any] = {"function_name": call.name}
    if call.arguments:
        inside = {key: to_answer(value) for key, value in call.arguments.items()}
        expected["arguments"] = (
            to_answer(dict(call.arguments)) if any(key.startswith("$") for key in inside) else inside
        )
    if failed:
        expected["outcome"] = "error"
    if call.name in declared and find_argument_violations(declared[call.name], call.arguments):
        expected["valid"] = False
    return expected


def _build_turn(reply: ModelReply) -> dict[str, Any]:
    calls = [
        {"name": call.name, "arguments": dict(call.arguments), **({"id": call.call_id} if call.call_id else {})}
        for call in reply.calls
    ]
    return {**({"calls": calls} if calls else {}), **({"text": reply.text} if reply.text or not calls else {})}


def _read_declarations(conversation: Conversation, story: _Story) -> dict[str, Declaration]:
    """What the log declares, and a declaration without parameters for each function that was called beside it."""
    listed = list(_select_functions(conversation.functions, story))
    parsed, problems = parse_declarations(listed, path=("tools",))
    if problems:
        raise UnreadableLogError(f"tools: {problems[0].message}")
    declared = {declaration.name: declaration for declaration in parsed}
    if declared:
        for name in dict.fromkeys(call.name for call in story.calls if call.name not in declared):
            story.notes.append(f"{name} was called, and is not declared in the log; any arguments are taken")
            declared[name] = Declaration(name=name, parameters=_ANY)
    return declared


def _select_functions(functions: Sequence[Mapping[str, Any]], story: _Story) -> Iterator[Mapping[str, Any]]:
    names: set[str] = set()
    for function in functions:
        name = str(function.get("name"))
        if not is_function_name(name):
            story.notes.append(f"{name!r} is no name of a function, and is left out")
        elif name not in names:
            names.add(name)
            yield {key: function[key] for key in ("name", "description", "parameters") if key in function}


def _build_instruction(conversation: Conversation, declared: Mapping[str, Declaration], name: str) -> str:
    head: dict[str, Any] = {"name": name}
    if declared:
        head["available_functions"] = [declaration.to_json() for declaration in declared.values()]
    body = conversation.system.strip() or "(The log has no system instruction.)"
    return f"---\n{dump(head)}---\n\n{body}\n"
