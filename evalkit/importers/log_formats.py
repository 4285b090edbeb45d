"""OpenAI's messages: chat completions (and the many servers that speak it), and the responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.errors import UsageError
from evalkit.importers.conversation import (
    Conversation,
    Event,
    FunctionAnswer,
    LoggedCall,
    ModelReply,
    UnreadableLogError,
    UserMessage,
    filter_mappings,
    join_texts,
    merge_events,
    read_arguments,
    read_value,
)

_INSTRUCTION_ROLES = ("system", "developer")


def read_chat(request: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[str, list[Event]]:
    """System text and events of ``{"messages": [...]}``; `response` adds the first choice."""
    choices = list(filter_mappings(response.get("choices")))
    replies = [message] if choices and isinstance(message := choices[0].get("message"), Mapping) else []
    messages = [*filter_mappings(request["messages"]), *replies]
    system = [join_texts(message.get("content")) for message in messages if message.get("role") in _INSTRUCTION_ROLES]
    return "\n\n".join(filter(None, system)), [event for message in messages for event in _read_chat_message(message)]


def _read_chat_message(message: Mapping[str, Any]) -> Iterator[Event]:
    role, content = message.get("role"), message.get("content")
    if role == "user":
        yield UserMessage(join_texts(content))
    elif role == "assistant":
        yield ModelReply(join_texts(content), tuple(_read_chat_calls(message)))
    elif role in ("tool", "function"):
        yield FunctionAnswer(
            read_value(join_texts(content)), call_id=message.get("tool_call_id"), name=message.get("name")
        )


def _read_chat_calls(message: Mapping[str, Any]) -> Iterator[LoggedCall]:
    for call in filter_mappings(message.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, Mapping):
            yield _read_openai_call(function, call.get("id"))
    older = message.get("function_call")  # before tools there were functions, one call a reply, without an id
    if isinstance(older, Mapping):
        yield _read_openai_call(older, None)


def _read_openai_call(function: Mapping[str, Any], call_id: Any) -> LoggedCall:
    name = str(function.get("name"))
    return LoggedCall(
        name, read_arguments(function.get("arguments"), name), call_id if isinstance(call_id, str) else None
    )


def read_responses(request: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[str, list[Event]]:
    """System text and events of ``{"input": [...]}``; `response` adds its output."""
    raw_input = request["input"]
    inputs = [{"role": "user", "content": raw_input}] if isinstance(raw_input, str) else raw_input
    items = [*filter_mappings(inputs), *filter_mappings(response.get("output"))]
    system = [str(request.get("instructions") or "")]
    system += [join_texts(item.get("content")) for item in items if item.get("role") in _INSTRUCTION_ROLES]
    return "\n\n".join(filter(None, system)), [event for item in items for event in _read_responses_item(item)]


def _read_responses_item(item: Mapping[str, Any]) -> Iterator[Event]:
    kind, role = item.get("type", "message"), item.get("role")
    if kind == "message" and role == "user":
        yield UserMessage(join_texts(item.get("content")))
    elif kind == "message" and role == "assistant":
        yield ModelReply(join_texts(item.get("content")))
    elif kind == "function_call":
        yield ModelReply("", (_read_openai_call(item, item.get("call_id")),))
    elif kind == "function_call_output":
        output = item.get("output")
        yield FunctionAnswer(
            read_value(output if isinstance(output, str) else join_texts(output)), call_id=item.get("call_id")
        )


# Anthropic's messages.

_BLOCKS = ("tool_use", "tool_result")


def is_anthropic(request: Mapping[str, Any]) -> bool:
    """Whether ``messages`` are Anthropic's: the system text stands beside them, calls and results are blocks."""
    blocks = (b for m in filter_mappings(request.get("messages")) for b in filter_mappings(m.get("content")))
    return (
        "system" in request
        or any("input_schema" in tool for tool in filter_mappings(request.get("tools")))
        or any(block.get("type") in _BLOCKS for block in blocks)
    )


def read_anthropic(request: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[str, list[Event]]:
    """System text and events of ``{"messages": [...]}``; `response` adds its content."""
    messages = [*filter_mappings(request["messages"])]
    if isinstance(response.get("content"), list):
        messages.append({"role": "assistant", "content": response["content"]})
    return join_texts(request.get("system")), [
        event for message in messages for event in _read_anthropic_message(message)
    ]


def _read_anthropic_message(message: Mapping[str, Any]) -> Iterator[Event]:
    event_type, by_model = (
        (ModelReply if message.get("role") == "assistant" else UserMessage),
        message.get("role") == "assistant",
    )
    content = message.get("content")
    if isinstance(content, str):
        yield event_type(content)
        return
    for block in filter_mappings(content):
        kind = block.get("type")
        if kind == "text":
            yield event_type(str(block.get("text") or ""))
        elif kind == "tool_use" and by_model:
            name = str(block.get("name"))
            yield ModelReply("", (LoggedCall(name, read_arguments(block.get("input"), name), block.get("id")),))
        elif kind == "tool_result":
            value = read_value(join_texts(block.get("content")))
            yield FunctionAnswer(value, call_id=block.get("tool_use_id"), failed=block.get("is_error") is True)


# Gemini's contents, in the spelling of the wire and in that of the Python client.


def read_gemini(request: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[str, list[Event]]:
    """System text and events of ``{"contents": [...]}``; `response` adds the first candidate."""
    raw_contents = request["contents"]
    contents = (
        [{"role": "user", "parts": [{"text": raw_contents}]}]
        if isinstance(raw_contents, str)
        else [*filter_mappings(raw_contents)]
    )
    candidates = list(filter_mappings(response.get("candidates")))
    if candidates and isinstance(content := candidates[0].get("content"), Mapping):
        contents.append({"role": "model", **content})
    system = request.get("systemInstruction") or request.get("system_instruction")
    system_text = join_texts(system.get("parts")) if isinstance(system, Mapping) else join_texts(system)
    return system_text, [event for content in contents for event in _read_gemini_content(content)]


def _read_gemini_content(content: Mapping[str, Any]) -> Iterator[Event]:
    parts = list(filter_mappings(content.get("parts")))
    by_model = content.get("role") == "model"
    for part in parts:
        answer = part.get("functionResponse") or part.get("function_response")
        call = part.get("functionCall") or part.get("function_call")
        if isinstance(answer, Mapping):
            yield _read_gemini_answer(answer)
        elif isinstance(call, Mapping):
            name = str(call.get("name"))
            yield ModelReply("", (LoggedCall(name, read_arguments(call.get("args"), name), call.get("id")),))
        elif isinstance(part.get("text"), str) and not part.get("thought"):
            yield ModelReply(part["text"]) if by_model else UserMessage(part["text"])


def _read_gemini_answer(answer: Mapping[str, Any]) -> FunctionAnswer:
    """Clients wrap what is no object as ``{"result": ...}``, or ``output``, and failures as ``{"error": ...}``."""
    value = answer.get("response")
    failed = isinstance(value, Mapping) and value.keys() == {"error"}
    if isinstance(value, Mapping) and len(value) == 1:
        value = next((value[key] for key in ("result", "output", "error") if key in value), value)
    return FunctionAnswer(value, call_id=answer.get("id"), name=answer.get("name"), failed=failed)


# OpenTelemetry spans by the conventions for generative AI, as OTLP/JSON, evalkit's own or others'.

_MODEL = ("chat", "generate_content", "text_completion")


def read_spans(records: list[Mapping[str, Any]], source: str) -> Iterator[Conversation | UsageError]:
    """The conversations in OTLP/JSON export requests, one for each trace of a model, or why there is none in it."""
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
    """What of a span matters here. Times are nanoseconds since 1970."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.attributes = {
            str(item.get("key")): _to_plain(item.get("value")) for item in filter_mappings(data.get("attributes"))
        }
        self.operation = self.attributes.get("gen_ai.operation.name")
        self.start, self.end = _to_integer(data.get("startTimeUnixNano")), _to_integer(data.get("endTimeUnixNano"))

    def get_json(self, name: str) -> Any:
        value = self.attributes.get(f"gen_ai.{name}")
        return read_value(value)


def _to_plain(value: Any) -> Any:
    """An OTLP AnyValue as JSON data."""
    if not isinstance(value, Mapping) or not value:
        return None
    kind, inner = next(iter(value.items()))
    if kind in ("arrayValue", "kvlistValue"):
        items = filter_mappings(inner.get("values") if isinstance(inner, Mapping) else None)
        if kind == "arrayValue":
            return [_to_plain(item) for item in items]
        return {str(item.get("key")): _to_plain(item.get("value")) for item in items}
    return _to_integer(inner) if kind == "intValue" else inner


def _to_integer(value: Any) -> int:
    """64-bit integers are text in OTLP/JSON. 0 for what is none."""
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else 0


def _read_conversation(spans: list[_Span], source: str) -> Conversation:
    model = [span for span in spans if span.operation in _MODEL]
    agent = next((span for span in spans if span.operation == "invoke_agent"), model[0])
    tools = next((value for span in (agent, *model) if (value := span.get_json("tool.definitions"))), None)
    instructions = next((value for span in (agent, *model) if (value := span.get_json("system_instructions"))), None)
    events = (
        [*_read_by_spans(spans, agent)]
        if any(s.operation == "execute_tool" for s in spans)
        else [*_read_by_messages(model[-1])]
    )
    if not any(isinstance(event, ModelReply) for event in events):
        raise UnreadableLogError("its spans hold no messages; record them with content (gen_ai.output.messages)")
    return Conversation(
        events=merge_events(events),
        system="\n".join(str(part.get("content") or "") for part in filter_mappings(instructions)),
        functions=tuple(filter_mappings(tools)),
        source=source,
    )


def _read_by_spans(spans: list[_Span], agent: _Span) -> Iterator[Event]:
    """In the order of time: what the agent was asked, each reply, each answer."""
    messages = agent.get_json("input.messages") or next(
        (s.get_json("input.messages") for s in spans if s.operation in _MODEL), None
    )
    yield from (event for event in _read_events(messages) if isinstance(event, UserMessage))
    for span in spans:
        if span.operation in _MODEL:
            yield from _read_events(span.get_json("output.messages"))
        elif span.operation == "execute_tool":
            yield FunctionAnswer(
                span.get_json("tool.call.result"),
                call_id=span.attributes.get("gen_ai.tool.call.id"),
                name=span.attributes.get("gen_ai.tool.name"),
                failed="error.type" in span.attributes,
            )


def _read_by_messages(last: _Span) -> Iterator[Event]:
    yield from _read_events(last.get_json("input.messages"))
    yield from _read_events(last.get_json("output.messages"))


def _read_events(messages: Any) -> Iterator[Event]:
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


def is_export(record: Any) -> bool:
    """Whether a record is an OTLP/JSON export request."""
    return isinstance(record, Mapping) and "resourceSpans" in record
