"""From Gemini's wire JSON to a ModelTurn: parts, finish reasons, blocks, usage; and streamed chunks into one reply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalkit.model.transcript import ModelCall, ModelTurn, Usage
from evalkit.streaming.accumulate import explain_cut_off
from evalkit.streaming.gemini_calls import CallParts

# The API's finish reasons, by name and by the number that some gateways send. What is not here is "other".
FINISH_REASONS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "ESCALATION": "content_filter",
    "PUP_LIMITED_DISABLED": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "MALFORMED_FUNCTION_CALL": "malformed_call",
    "MALFORMED_RESPONSE": "malformed_call",
    "UNEXPECTED_TOOL_CALL": "malformed_call",
}
REASONS_BY_NUMBER = ("FINISH_REASON_UNSPECIFIED", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER", "BLOCKLIST",
            "PROHIBITED_CONTENT", "SPII", "MALFORMED_FUNCTION_CALL")  # fmt: skip


def read_reply(data: Any, *, duration_ms: float = 0.0) -> ModelTurn:
    """The turn that one whole response (``GenerateContentResponse`` as JSON) is. Never raises on any JSON."""
    data = data if isinstance(data, Mapping) else {}
    candidate = _get_candidate(data.get("candidates"))
    content = candidate.get("content")
    parts = _list_parts(content)
    calls = tuple(_read_call(part["functionCall"]) for part in parts if _is_call(part))
    return ModelTurn(
        text="".join(_read_text(part) for part in parts),
        calls=calls,
        finish_reason=_read_finish_reason(data, candidate, bool(calls), bool(parts)),
        finish_message=_read_finish_message(data, candidate),
        usage=_read_usage(data.get("usageMetadata")),
        raw=dict(data),
        content={"role": "model", **content} if isinstance(content, Mapping) and parts else None,
        model=data.get("modelVersion") if isinstance(data.get("modelVersion"), str) else None,
        duration_ms=duration_ms,
    )


def _get_candidate(candidates: Any) -> Mapping[str, Any]:
    candidate = candidates[0] if isinstance(candidates, list) and candidates else None
    return candidate if isinstance(candidate, Mapping) else {}


def _list_parts(content: Any) -> list[Mapping[str, Any]]:
    parts = content.get("parts") if isinstance(content, Mapping) else None
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []


def _is_call(part: Mapping[str, Any]) -> bool:
    call = part.get("functionCall")
    return isinstance(call, Mapping) and isinstance(call.get("name"), str) and bool(call["name"])


def _read_call(data: Mapping[str, Any]) -> ModelCall:
    arguments = data.get("args")
    call_id = data.get("id")
    known_id = call_id if isinstance(call_id, str) and call_id else None
    if arguments is None or isinstance(arguments, Mapping):
        return ModelCall(name=data["name"], arguments=dict(arguments or {}), call_id=known_id)
    why = f"the arguments are a {type(arguments).__name__}, not a JSON object"
    return ModelCall(name=data["name"], arguments=arguments, call_id=known_id, malformed=why)


def _read_text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) and not part.get("thought") else ""


def _read_finish_reason(data: Mapping[str, Any], candidate: Mapping[str, Any], has_calls: bool, has_parts: bool) -> str:
    if not candidate:
        return "content_filter" if _describe_block(data) else "empty"
    reason = candidate.get("finishReason")
    if isinstance(reason, int) and 0 <= reason < len(REASONS_BY_NUMBER):
        reason = REASONS_BY_NUMBER[reason]
    if reason is None:
        return "truncated" if has_parts or candidate.get("finishMessage") else "empty"
    finish = FINISH_REASONS.get(str(reason), "other")
    if finish == "stop":
        return "tool_calls" if has_calls else "stop" if has_parts else "empty"
    return finish


def _describe_block(data: Mapping[str, Any]) -> str | None:
    feedback = data.get("promptFeedback")
    feedback = feedback if isinstance(feedback, Mapping) else {}
    words = [feedback.get("blockReason"), feedback.get("blockReasonMessage")]
    return ": ".join(str(word) for word in words if word) or None


def _read_finish_message(data: Mapping[str, Any], candidate: Mapping[str, Any]) -> str | None:
    """What the service says about an ending that is not the usual one."""
    if not candidate:
        block = _describe_block(data)
        return f"the prompt was blocked: {block}" if block else None
    reason, message = candidate.get("finishReason"), candidate.get("finishMessage")
    if reason in ("STOP", 1):
        return None
    return ": ".join(str(word) for word in (reason, message) if word) or None


def _read_usage(data: Any) -> Usage | None:
    if not isinstance(data, Mapping):
        return None

    def count(key: str) -> int:
        value = data.get(key)
        return value if isinstance(value, int) else 0

    return Usage(
        input_tokens=count("promptTokenCount") + count("toolUsePromptTokenCount"),
        output_tokens=count("candidatesTokenCount"),
        reasoning_tokens=count("thoughtsTokenCount"),
        cached_tokens=count("cachedContentTokenCount"),
        total_tokens=count("totalTokenCount"),
    )


def merge_chunks(chunks: Iterable[Any]) -> dict[str, Any]:
    """The one response that a stream's chunks make: whole calls, joined texts, every signature in its place.

    A stream that ends inside a call has no such call, and does not end as if it were whole: the turn is "truncated".
    """
    response: dict[str, Any] = {}
    candidate: dict[str, Any] = {}
    parts = _StreamedParts()
    for chunk in chunks:
        if not isinstance(chunk, Mapping):
            continue
        response |= {key: value for key, value in chunk.items() if key != "candidates" and value is not None}
        streamed = _get_candidate(chunk.get("candidates"))
        candidate |= {key: value for key, value in streamed.items() if key != "content" and value is not None}
        for part in _list_parts(streamed.get("content")):
            parts.add(part)
    if parts.unfinished is not None:
        reason = candidate.pop("finishReason", None)
        reported = {} if reason in (None, "STOP", 1) else {"finishReason": reason}
        candidate |= {**reported, "finishMessage": explain_cut_off(parts.unfinished, None)}
    if candidate or parts.list_parts():
        content = {"role": "model", "parts": parts.list_parts()}
        response["candidates"] = [candidate | ({"content": content} if parts.list_parts() else {})]
    return response


class _StreamedParts:
    """The parts of a streamed reply; `unfinished` shows a call whose arguments did not all arrive."""

    def __init__(self) -> None:
        self._parts: list[dict[str, Any]] = []
        self._calls = CallParts()
        self._empty: list[dict[str, Any]] = []  # a text of no characters: the whole reply, if nothing else comes

    def list_parts(self) -> list[dict[str, Any]]:
        return self._parts or self._empty

    @property
    def unfinished(self) -> str | None:
        return self._calls.unfinished

    def add(self, part: Mapping[str, Any]) -> None:
        call = part.get("functionCall")
        if isinstance(call, Mapping):
            complete_part = self._calls.add(part, call)
            self._parts += [] if complete_part is None else [complete_part]
        elif set(part) <= {"text", "thought", "thoughtSignature"} and isinstance(part.get("text"), str):
            self._add_text(dict(part))
        elif part:
            self._parts.append(dict(part))

    def _add_text(self, part: dict[str, Any]) -> None:
        last = self._parts[-1] if self._parts else None
        joins = last is not None and isinstance(last.get("text"), str) and "thoughtSignature" not in last
        if joins and last is not None and part["text"] and bool(last.get("thought")) == bool(part.get("thought")):
            last |= {**part, "text": last["text"] + part["text"]}
        elif part["text"] or "thoughtSignature" in part:
            self._parts.append(part)
        else:
            self._empty = [part]
