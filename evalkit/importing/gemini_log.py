"""Gemini's contents, in the spelling of the wire and in that of the Python client."""

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
)


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
