"""Anthropic's messages."""

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

_BLOCKS = ("tool_use", "tool_result")


def is_anthropic(request: Mapping[str, Any]) -> bool:
    """Whether ``messages`` are Anthropic's: the system text stands beside them, calls and results are blocks."""
    blocks = (b for m in mappings(request.get("messages")) for b in mappings(m.get("content")))
    return (
        "system" in request
        or any("input_schema" in tool for tool in mappings(request.get("tools")))
        or any(block.get("type") in _BLOCKS for block in blocks)
    )


def anthropic_parts(request: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[str, list[Event]]:
    """System text and events of ``{"messages": [...]}``; `response` adds its content."""
    messages = [*mappings(request["messages"])]
    if isinstance(response.get("content"), list):
        messages.append({"role": "assistant", "content": response["content"]})
    return texts(request.get("system")), [event for message in messages for event in _message(message)]


def _message(message: Mapping[str, Any]) -> Iterator[Event]:
    said, by_model = (Replied if message.get("role") == "assistant" else Said), message.get("role") == "assistant"
    content = message.get("content")
    if isinstance(content, str):
        yield said(content)
        return
    for block in mappings(content):
        kind = block.get("type")
        if kind == "text":
            yield said(str(block.get("text") or ""))
        elif kind == "tool_use" and by_model:
            name = str(block.get("name"))
            yield Replied("", (Asked(name, arguments_of(block.get("input"), name), block.get("id")),))
        elif kind == "tool_result":
            value = value_of(texts(block.get("content")))
            yield Answered(value, call_id=block.get("tool_use_id"), failed=block.get("is_error") is True)
