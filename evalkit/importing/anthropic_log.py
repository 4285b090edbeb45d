"""Anthropic's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.importing.conversation import (
    Event,
    FunctionAnswer,
    LoggedCall,
    ModelReply,
    UserMessage,
    filter_mappings,
    join_texts,
    read_arguments,
    read_value,
)

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
