"""Logged conversations, and the formats of logs: requests and replies of OpenAI, Anthropic and Gemini."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from evalkit.errors import EvalkitError, Location
from evalkit.jsonvalue import JsonObject
from evalkit.lint.facts.data_files import locate_at, read_declaration
from evalkit.lint.facts.records import GEMINI, DeclaredFunction

_DEEPEST = 80  # levels of a value, of the hundred that a file may have


class UnreadableLogError(EvalkitError):
    """A conversation that can't be made a case; the message says why."""


class TooDeepError(ValueError):
    """JSON with more levels than a case file can hold."""


class LoggedMessage(Struct, frozen=True):
    """A message of the user."""

    text: str


class LoggedCall(Struct, frozen=True):
    """A call that the model asked for. `arguments` is a JSON object."""

    name: str
    arguments: JsonObject
    call_id: str | None = None


class ModelReply(Struct, frozen=True):
    """A reply of the model."""

    text: str = ""
    calls: tuple[LoggedCall, ...] = ()


class FunctionAnswer(Struct, frozen=True):
    """The answer of a function. `call_id` or `name` says which call; `failed`: the answer is an error."""

    value: object
    call_id: str | None = None
    name: str | None = None
    failed: bool = False


Event = LoggedMessage | ModelReply | FunctionAnswer


class Conversation(Struct, frozen=True, kw_only=True):
    """A logged conversation. `functions` are declarations in JSON Schema; `source` is where it stands."""

    events: tuple[Event, ...]
    system: str = ""
    functions: tuple[JsonObject, ...] = ()
    source: str = ""


def merge_events(events: Iterable[Event]) -> tuple[Event, ...]:
    """Join the pieces of a reply, and messages of the user between two replies."""
    result: list[Event] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, ModelReply) and isinstance(last, ModelReply):
            text = "\n".join(part for part in (last.text, event.text) if part)
            result[-1] = ModelReply(text, (*last.calls, *event.calls))
        elif isinstance(event, LoggedMessage) and isinstance(last, LoggedMessage):
            result[-1] = LoggedMessage(f"{last.text}\n\n{event.text}")
        else:
            result.append(event)
    return tuple(result)


def read_arguments(value: object, name: str) -> JsonObject:
    """Return arguments as a JSON object, from an object or its text. Raise UnreadableLogError for anything else."""
    if isinstance(value, str):
        try:
            value = parse_json(value or "{}")
        except ValueError as error:
            problem = "nested too deep for a case" if isinstance(error, TooDeepError) else "no JSON"
            raise UnreadableLogError(f"the arguments of {name} are {problem}: {str(value)[:80]}") from None
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UnreadableLogError(f"the arguments of {name} are no JSON object: {json.dumps(value)[:80]}")
    return value


def parse_json(text: str) -> Any:
    """Parse JSON. Raise ValueError for anything else, for NaN and infinities, and for what is nested too deep."""
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise TooDeepError("it is nested too deep") from None
    if text.count("[") + text.count("{") > _DEEPEST:
        level = [data]
        for _ in range(_DEEPEST):
            containers = [value for value in level if isinstance(value, (dict, list))]
            level = [inner for value in containers for inner in (value.values() if isinstance(value, dict) else value)]
        if level:
            raise TooDeepError("it is nested too deep")
    return data


def _refuse_constant(constant: str) -> object:
    raise ValueError(f"{constant} is no number in JSON")


def read_value(text: object) -> Any:
    """Return a function's answer: the JSON object or list that a text is, else the value as it is."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return parse_json(text)
    except ValueError:
        return text


def join_texts(content: object, key: str = "text") -> str:
    """Return the text of a message: a string, or the texts of its parts, a line each."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part if isinstance(part, str) else part.get(key) for part in parts if isinstance(part, str | Mapping))
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def filter_mappings(value: object) -> Iterator[JsonObject]:
    """Yield the mappings in `value`, if it is a list."""
    return (item for item in value if isinstance(item, Mapping)) if isinstance(value, list) else iter(())


_INSTRUCTION_ROLES = ("system", "developer")
Parts = tuple[str, list[Event]]  # the system text, and what follows


def read_chat(request: JsonObject, response: JsonObject) -> Parts:
    """Read OpenAI's chat completions, ``{"messages": [...]}``; `response` adds the first choice."""
    choices = list(filter_mappings(response.get("choices")))
    replies = [message] if choices and isinstance(message := choices[0].get("message"), Mapping) else []
    system: list[str] = []
    events: list[Event] = []
    for message in (*filter_mappings(request["messages"]), *replies):
        role, text = message.get("role"), join_texts(message.get("content"))
        if role in _INSTRUCTION_ROLES:
            system.append(text)
        elif role == "user":
            events.append(LoggedMessage(text))
        elif role == "assistant":
            pairs = [(call.get("function"), call.get("id")) for call in filter_mappings(message.get("tool_calls"))]
            older = message.get("function_call")  # before tools there were functions, one call a reply, without an id
            calls = [
                _read_openai_call(function, call_id)
                for function, call_id in (*pairs, (older, None))
                if isinstance(function, Mapping)
            ]
            events.append(ModelReply(text, tuple(calls)))
        elif role in ("tool", "function"):
            events.append(
                FunctionAnswer(read_value(text), call_id=message.get("tool_call_id"), name=message.get("name"))
            )
    return "\n\n".join(filter(None, system)), events


def read_responses(request: JsonObject, response: JsonObject) -> Parts:
    """Read OpenAI's responses API, ``{"input": [...]}``; `response` adds its output."""
    raw_input = request["input"]
    inputs = [{"role": "user", "content": raw_input}] if isinstance(raw_input, str) else raw_input
    system = [str(request.get("instructions") or "")]
    events: list[Event] = []
    for item in (*filter_mappings(inputs), *filter_mappings(response.get("output"))):
        kind, role, text = item.get("type", "message"), item.get("role"), join_texts(item.get("content"))
        if role in _INSTRUCTION_ROLES:
            system.append(text)
        elif kind == "message" and role in ("user", "assistant"):
            events.append(LoggedMessage(text) if role == "user" else ModelReply(text))
        elif kind == "function_call":
            events.append(ModelReply("", (_read_openai_call(item, item.get("call_id")),)))
        elif kind == "function_call_output":
            output = item.get("output")
            value = read_value(output if isinstance(output, str) else join_texts(output))
            events.append(FunctionAnswer(value, call_id=item.get("call_id")))
    return "\n\n".join(filter(None, system)), events


def _read_openai_call(function: JsonObject, call_id: object) -> LoggedCall:
    name = str(function.get("name"))
    arguments = read_arguments(function.get("arguments"), name)
    return LoggedCall(name, arguments, call_id if isinstance(call_id, str) else None)


def is_anthropic(request: JsonObject) -> bool:
    """Return whether ``messages`` are Anthropic's: the system text stands beside them, calls and results are blocks."""
    blocks = (b for m in filter_mappings(request.get("messages")) for b in filter_mappings(m.get("content")))
    return (
        "system" in request
        or any("input_schema" in tool for tool in filter_mappings(request.get("tools")))
        or any(block.get("type") in ("tool_use", "tool_result") for block in blocks)
    )


def read_anthropic(request: JsonObject, response: JsonObject) -> Parts:
    """Read Anthropic's messages, ``{"messages": [...]}``; `response` adds its content."""
    messages = [*filter_mappings(request["messages"])]
    if isinstance(response.get("content"), list):
        messages.append({"role": "assistant", "content": response["content"]})
    events: list[Event] = []
    for message in messages:
        by_model = message.get("role") == "assistant"
        event_type = ModelReply if by_model else LoggedMessage
        content = message.get("content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else filter_mappings(content):
            kind = block.get("type")
            if kind == "text":
                events.append(event_type(str(block.get("text") or "")))
            elif kind == "tool_use" and by_model:
                name = str(block.get("name"))
                call = LoggedCall(name, read_arguments(block.get("input"), name), block.get("id"))
                events.append(ModelReply("", (call,)))
            elif kind == "tool_result":
                value, failed = read_value(join_texts(block.get("content"))), block.get("is_error") is True
                events.append(FunctionAnswer(value, call_id=block.get("tool_use_id"), failed=failed))
    return join_texts(request.get("system")), events


def read_gemini(request: JsonObject, response: JsonObject) -> Parts:
    """Read Gemini's ``{"contents": [...]}``, as on the wire or of the Python client; `response` adds a candidate."""
    raw_contents = request["contents"]
    contents = [*filter_mappings(raw_contents)]
    if isinstance(raw_contents, str):
        contents = [{"role": "user", "parts": [{"text": raw_contents}]}]
    candidates = list(filter_mappings(response.get("candidates")))
    if candidates and isinstance(content := candidates[0].get("content"), Mapping):
        contents.append({"role": "model", **content})
    events: list[Event] = []
    for content in contents:
        for part in filter_mappings(content.get("parts")):
            answer = part.get("functionResponse") or part.get("function_response")
            call = part.get("functionCall") or part.get("function_call")
            if isinstance(answer, Mapping):
                # Clients wrap what is no object as {"result": ...} or "output", failures as "error".
                value = answer.get("response")
                failed = isinstance(value, Mapping) and value.keys() == {"error"}
                if isinstance(value, Mapping) and len(value) == 1:
                    value = next((value[key] for key in ("result", "output", "error") if key in value), value)
                events.append(FunctionAnswer(value, answer.get("id"), answer.get("name"), failed))
            elif isinstance(call, Mapping):
                name = str(call.get("name"))
                events.append(
                    ModelReply("", (LoggedCall(name, read_arguments(call.get("args"), name), call.get("id")),))
                )
            elif isinstance(part.get("text"), str) and not part.get("thought"):
                events.append((ModelReply if content.get("role") == "model" else LoggedMessage)(part["text"]))
    system = request.get("systemInstruction") or request.get("system_instruction")
    return join_texts(system.get("parts") if isinstance(system, Mapping) else system), events


READERS: dict[str, Callable[[JsonObject, JsonObject], Parts]] = {
    "openai": read_chat,
    "responses": read_responses,
    "gemini": read_gemini,
    "anthropic": read_anthropic,
}
_KEYS = {"messages": "openai", "contents": "gemini", "input": "responses"}


def find_form(request: JsonObject) -> str | None:
    """Return the format of a request by its keys; None if it is none."""
    form = next((form for key, form in _KEYS.items() if isinstance(request.get(key), list | str)), None)
    return "anthropic" if form == "openai" and is_anthropic(request) else form


def read_exchange(form: str, request: JsonObject, response: JsonObject, source: str) -> Conversation:
    """Return the conversation of a request and the reply to it. Raise UnreadableLogError where there is none."""
    try:
        system, events = READERS[form](request, response)
    except KeyError as error:
        raise UnreadableLogError(
            f"a record of format '{form}' has no {error}; got {', '.join(map(repr, request))}"
        ) from None
    events = [event for event in events if not isinstance(event, LoggedMessage) or event.text]
    if not any(isinstance(event, ModelReply) for event in events):
        raise UnreadableLogError("there is no reply of a model in it")
    return Conversation(
        events=merge_events(events), system=system, functions=tuple(_list_functions(request)), source=source
    )


def _list_functions(request: JsonObject) -> Iterator[JsonObject]:
    """Yield the functions that the request declares, in evalkit's own form."""
    tools = [*filter_mappings(request.get("tools")), *filter_mappings(request.get("functions"))]
    config = request.get("config")
    if isinstance(config, Mapping):
        tools += filter_mappings(config.get("tools"))
    for tool in tools:
        inner = next((tool[key] for key in ("functionDeclarations", "function_declarations") if key in tool), None)
        for item in [tool] if inner is None else filter_mappings(inner):
            function = read_declaration(item, locate_at(Location("")), form=None if inner is None else GEMINI)
            if isinstance(function, DeclaredFunction):
                described = {"description": function.description} if isinstance(function.description, str) else {}
                parameters = (
                    {"parameters": dict(function.parameters)} if isinstance(function.parameters, Mapping) else {}
                )
                yield {"name": function.name, **described, **parameters}
