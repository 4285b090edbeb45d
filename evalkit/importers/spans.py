"""OpenTelemetry spans by the conventions for generative AI, as OTLP/JSON, evalkit's own or others'.

Replies and calls come from the messages of ``chat`` spans, answers from ``execute_tool`` spans; where those are
missing, both come from the messages of the last ``chat`` span, which hold what went before.
"""

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
    merge_events,
    read_arguments,
    read_value,
)

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
