"""OpenAI's messages: chat completions (and the many servers that speak it), and the responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.importing.conversation import (
    Answered,
    Asked,
    Event,
    Replied,
    Said,
    arguments_of,
    mappings,
    texts,
    value_of,
)

_INSTRUCTIONS = ("system", "developer")


def chat_parts(request: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[str, list[Event]]:
    """System text and events of ``{"messages": [...]}``; `response` adds the first choice."""
    choices = list(mappings(response.get("choices")))
    replies = [message] if choices and isinstance(message := choices[0].get("message"), Mapping) else []
    messages = [*mappings(request["messages"]), *replies]
    system = [texts(message.get("content")) for message in messages if message.get("role") in _INSTRUCTIONS]
    return "\n\n".join(filter(None, system)), [event for message in messages for event in _chat(message)]


def _chat(message: Mapping[str, Any]) -> Iterator[Event]:
    role, content = message.get("role"), message.get("content")
    if role == "user":
        yield Said(texts(content))
    elif role == "assistant":
        yield Replied(texts(content), tuple(_calls(message)))
    elif role in ("tool", "function"):
        yield Answered(value_of(texts(content)), call_id=message.get("tool_call_id"), name=message.get("name"))


def _calls(message: Mapping[str, Any]) -> Iterator[Asked]:
    for call in mappings(message.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, Mapping):
            yield _asked(function, call.get("id"))
    older = message.get("function_call")  # before tools there were functions, one call a reply, without an id
    if isinstance(older, Mapping):
        yield _asked(older, None)


def _asked(function: Mapping[str, Any], call_id: Any) -> Asked:
    name = str(function.get("name"))
    return Asked(name, arguments_of(function.get("arguments"), name), call_id if isinstance(call_id, str) else None)


def responses_parts(request: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[str, list[Event]]:
    """System text and events of ``{"input": [...]}``; `response` adds its output."""
    given = request["input"]
    asked = [{"role": "user", "content": given}] if isinstance(given, str) else given
    items = [*mappings(asked), *mappings(response.get("output"))]
    system = [str(request.get("instructions") or "")]
    system += [texts(item.get("content")) for item in items if item.get("role") in _INSTRUCTIONS]
    return "\n\n".join(filter(None, system)), [event for item in items for event in _item(item)]


def _item(item: Mapping[str, Any]) -> Iterator[Event]:
    kind, role = item.get("type", "message"), item.get("role")
    if kind == "message" and role == "user":
        yield Said(texts(item.get("content")))
    elif kind == "message" and role == "assistant":
        yield Replied(texts(item.get("content")))
    elif kind == "function_call":
        yield Replied("", (_asked(item, item.get("call_id")),))
    elif kind == "function_call_output":
        output = item.get("output")
        yield Answered(value_of(output if isinstance(output, str) else texts(output)), call_id=item.get("call_id"))
