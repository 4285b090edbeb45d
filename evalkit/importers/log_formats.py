"""Logged conversations, and the formats of logs: messages of OpenAI, Anthropic and Gemini, spans of OpenTelemetry.

Spans are those for generative AI, as OTLP/JSON.
Replies and calls of spans come from the messages of ``chat`` spans, answers from ``execute_tool`` spans; where those
are missing, both come from the messages of the last ``chat`` span, which hold what went before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from evalkit.errors import EvalkitError, UsageError
from evalkit.jsonvalue import JsonObject

_DEEPEST = 80  # levels of a value, of the hundred that a file may have


class UnreadableLogError(EvalkitError):
    """A conversation that can't be made a case; the message says why."""


class TooDeepError(ValueError):
    """JSON with more levels than a case file can hold."""


class UserMessage(Struct, frozen=True):
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


Event = UserMessage | ModelReply | FunctionAnswer


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
        elif isinstance(event, UserMessage) and isinstance(last, UserMessage):
            result[-1] = UserMessage(f"{last.text}\n\n{event.text}")
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
_MODEL = ("chat", "generate_content", "text_completion")  # operations of spans
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
            events.append(UserMessage(text))
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
            events.append(UserMessage(text) if role == "user" else ModelReply(text))
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
        event_type = ModelReply if by_model else UserMessage
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
                events.append((ModelReply if content.get("role") == "model" else UserMessage)(part["text"]))
    system = request.get("systemInstruction") or request.get("system_instruction")
    return join_texts(system.get("parts") if isinstance(system, Mapping) else system), events


def read_spans(records: list[JsonObject], source: str) -> Iterator[Conversation | UsageError]:
    """Yield a conversation for each trace of a model in OTLP/JSON export requests, or why there is none in it."""
    traces: dict[str, list[_Span]] = {}
    for record in records:
        for of_resource in filter_mappings(record.get("resourceSpans")):
            for of_scope in filter_mappings(of_resource.get("scopeSpans")):
                for data in filter_mappings(of_scope.get("spans")):
                    traces.setdefault(str(data.get("traceId")), []).append(_Span(data))
    for trace, spans in traces.items():
        spans.sort(key=lambda span: (span.start, span.end))
        if any(span.operation in _MODEL for span in spans):
            place = f"{source}, trace {trace}"
            try:
                yield _read_conversation(spans, place)
            except UnreadableLogError as error:
                yield UsageError(f"{place}: {error}")


class _Span:
    """A span with the attributes that matter here. Times are nanoseconds since 1970."""

    def __init__(self, data: JsonObject) -> None:
        self.attributes = {
            str(item.get("key")): _to_plain(item.get("value")) for item in filter_mappings(data.get("attributes"))
        }
        self.operation = self.attributes.get("gen_ai.operation.name")
        self.start, self.end = _to_integer(data.get("startTimeUnixNano")), _to_integer(data.get("endTimeUnixNano"))

    def get_json(self, name: str) -> Any:
        value = self.attributes.get(f"gen_ai.{name}")
        return read_value(value)


def _to_plain(value: object) -> Any:
    """Return an OTLP AnyValue as JSON data."""
    if not isinstance(value, Mapping) or not value:
        return None
    kind, inner = next(iter(value.items()))
    if kind in ("arrayValue", "kvlistValue"):
        items = filter_mappings(inner.get("values") if isinstance(inner, Mapping) else None)
        if kind == "arrayValue":
            return [_to_plain(item) for item in items]
        return {str(item.get("key")): _to_plain(item.get("value")) for item in items}
    return _to_integer(inner) if kind == "intValue" else inner


def _to_integer(value: object) -> int:
    """Return a 64-bit integer, which is text in OTLP/JSON; 0 for anything else."""
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else 0


def _read_conversation(spans: list[_Span], source: str) -> Conversation:
    model = [span for span in spans if span.operation in _MODEL]
    agent = next((span for span in spans if span.operation == "invoke_agent"), model[0])
    tools = next((value for span in (agent, *model) if (value := span.get_json("tool.definitions"))), None)
    instructions = next((value for span in (agent, *model) if (value := span.get_json("system_instructions"))), None)
    if any(span.operation == "execute_tool" for span in spans):  # replies and answers by their times
        messages = agent.get_json("input.messages") or model[0].get_json("input.messages")
        events: list[Event] = [event for event in _read_events(messages) if isinstance(event, UserMessage)]
        for span in spans:
            if span.operation in _MODEL:
                events += _read_events(span.get_json("output.messages"))
            elif span.operation == "execute_tool":
                value, name = span.get_json("tool.call.result"), span.attributes.get("gen_ai.tool.name")
                call_id = span.attributes.get("gen_ai.tool.call.id")
                events.append(FunctionAnswer(value, call_id, name, failed="error.type" in span.attributes))
    else:
        events = [*_read_events(model[-1].get_json("input.messages"))]
        events += _read_events(model[-1].get_json("output.messages"))
    if not any(isinstance(event, ModelReply) for event in events):
        raise UnreadableLogError("its spans hold no messages; record them with content (gen_ai.output.messages)")
    return Conversation(
        events=merge_events(events),
        system="\n".join(str(part.get("content") or "") for part in filter_mappings(instructions)),
        functions=tuple(filter_mappings(tools)),
        source=source,
    )


def _read_events(messages: object) -> Iterator[Event]:
    for message in filter_mappings(messages):
        by_model = message.get("role") in ("assistant", "model")
        for part in filter_mappings(message.get("parts")):
            kind = part.get("type")
            if kind == "text":
                yield (
                    ModelReply(str(part.get("content") or ""))
                    if by_model
                    else UserMessage(str(part.get("content") or ""))
                )
            elif kind == "tool_call":
                name = str(part.get("name"))
                yield ModelReply("", (LoggedCall(name, read_arguments(part.get("arguments"), name), part.get("id")),))
            elif kind == "tool_call_response":
                value = part["response"] if "response" in part else part.get("result")
                yield FunctionAnswer(read_value(value), call_id=part.get("id"), name=part.get("name"))


def is_export(record: object) -> bool:
    """Return whether a record is an OTLP/JSON export request."""
    return isinstance(record, Mapping) and "resourceSpans" in record
