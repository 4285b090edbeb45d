"""OpenAI's messages: chat completions (and the many servers that speak it), and the responses API."""

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
