"""OpenAI's messages: chat completions (and the many servers that speak it), and the responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.importers.conversation import (
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
