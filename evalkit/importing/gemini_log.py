"""Gemini's contents, in the spelling of the wire and in that of the Python client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.importing.conversation import Answered, Asked, Event, Replied, Said, arguments_of, mappings, texts


def gemini_parts(request: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[str, list[Event]]:
    """System text and events of ``{"contents": [...]}``; `response` adds the first candidate."""
    given = request["contents"]
    contents = [{"role": "user", "parts": [{"text": given}]}] if isinstance(given, str) else [*mappings(given)]
    candidates = list(mappings(response.get("candidates")))
    if candidates and isinstance(content := candidates[0].get("content"), Mapping):
        contents.append({"role": "model", **content})
    system = request.get("systemInstruction") or request.get("system_instruction")
    told = texts(system.get("parts")) if isinstance(system, Mapping) else texts(system)
    return told, [event for content in contents for event in _content(content)]


def _content(content: Mapping[str, Any]) -> Iterator[Event]:
    parts = list(mappings(content.get("parts")))
    by_model = content.get("role") == "model"
    for part in parts:
        answer = part.get("functionResponse") or part.get("function_response")
        call = part.get("functionCall") or part.get("function_call")
        if isinstance(answer, Mapping):
            yield _answered(answer)
        elif isinstance(call, Mapping):
            name = str(call.get("name"))
            yield Replied("", (Asked(name, arguments_of(call.get("args"), name), call.get("id")),))
        elif isinstance(part.get("text"), str) and not part.get("thought"):
            yield Replied(part["text"]) if by_model else Said(part["text"])


def _answered(answer: Mapping[str, Any]) -> Answered:
    """Clients wrap what is no object as ``{"result": ...}``, or ``output``, and failures as ``{"error": ...}``."""
    value = answer.get("response")
    failed = isinstance(value, Mapping) and value.keys() == {"error"}
    if isinstance(value, Mapping) and len(value) == 1:
        value = next((value[key] for key in ("result", "output", "error") if key in value), value)
    return Answered(value, call_id=answer.get("id"), name=answer.get("name"), failed=failed)
