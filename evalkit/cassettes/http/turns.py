"""Model turns in the traffic of an agent's own client, so that its turns, tokens and cost are known too.

Read are OpenAI's chat completions and responses, Anthropic's messages and Gemini's contents, whole or streamed.
Whatever else a client asks is no turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from evalkit.cassettes.http.messages import HttpResponse, unpack_content
from evalkit.cassettes.http.normalise import is_model_reply
from evalkit.model.transcript import ModelCall, ModelTurn, Usage
from evalkit.providers.chunks import Chunk, build_turn
from evalkit.providers.turns import parse_arguments
from evalkit.streaming.events import parse_values

_READABLE = ("json", "event-stream", "ndjson")
_RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")


def find_turn(response: HttpResponse, duration_ms: float) -> ModelTurn | None:
    """The model turn that `answer` is, or None. Never raises on any answer."""
    if response.status != 200 or not any(kind in response.get_header("content-type").lower() for kind in _READABLE):
        return None
    encoding = response.get_header("content-encoding")
    content = unpack_content(response.body, encoding) if encoding else response.body
    try:
        values = [value for value in parse_values((content or b"").decode()) if isinstance(value, Mapping)]
    except (ValueError, RecursionError):
        return None
    if not any(is_model_reply(value) for value in values):
        return None
    try:
        turn = _read_values(values)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None  # it only looked like a model's, and must not fail the agent's request
    return None if turn is None else replace(turn, duration_ms=duration_ms, raw=None, content=None)


def _read_values(values: Sequence[Mapping[str, Any]]) -> ModelTurn | None:
    if any({"candidates", "usageMetadata", "promptFeedback"} & set(value) for value in values):
        from evalkit.providers.gemini.reply import merge_chunks, read_reply

        return read_reply(merge_chunks(values))
    if any("choices" in value for value in values):
        return _read_chat_completion(values)
    if any(value.get("type") == "message_start" for value in values):
        return build_turn([Chunk("anthropic", value) for value in values])
    message = next((value for value in values if value.get("type") == "message"), None)
    if message is not None:
        end = {"type": "message_delta", "delta": {"stop_reason": message.get("stop_reason")}}
        start = {"type": "message_start", "message": message}
        return build_turn([Chunk("anthropic", start), Chunk("anthropic", end)])
    return _read_response(values)


def _read_chat_completion(values: Sequence[Mapping[str, Any]]) -> ModelTurn | None:
    from evalkit.providers.openai.reply import read_reply, read_stream

    choices = [choice for value in values for choice in value.get("choices") or () if isinstance(choice, Mapping)]
    if any("delta" in choice for choice in choices):
        return read_stream(values)
    return read_reply(values[0]) if any("message" in choice for choice in choices) else None


def _read_response(values: Sequence[Mapping[str, Any]]) -> ModelTurn | None:
    """OpenAI's responses: the object itself, or the one that ends the stream."""
    ends = [value.get("response") for value in values if value.get("type") in _RESPONSE_ENDS]
    response = next((value for value in [*reversed(ends), *values] if _is_response(value)), None)
    if response is None:
        return None
    output = [item for item in response.get("output") or () if isinstance(item, Mapping)]
    calls = tuple(_read_function_call(item) for item in output if item.get("type") == "function_call")
    parts = [part for item in output if item.get("type") == "message" for part in item.get("content") or ()]
    text = "".join(str(part.get("text") or "") for part in parts if part.get("type") == "output_text")
    refusal = next((str(part["refusal"]) for part in parts if part.get("refusal")), None)
    done = "tool_calls" if calls else "content_filter" if refusal else "stop" if text else "empty"
    cut = (response.get("incomplete_details") or {}).get("reason")
    return ModelTurn(
        text=text,
        calls=calls,
        finish_reason={"max_output_tokens": "length", "content_filter": "content_filter"}.get(str(cut), done),
        finish_message=refusal,
        usage=_read_usage(response.get("usage")),
        model=response.get("model") if isinstance(response.get("model"), str) else None,
    )


def _is_response(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("object") == "response"


def _read_function_call(item: Mapping[str, Any]) -> ModelCall:
    raw = item.get("arguments")
    name, call_id = str(item.get("name")), item.get("call_id")
    known_id = call_id if isinstance(call_id, str) else None
    if isinstance(raw, Mapping):
        return ModelCall(name=name, arguments=dict(raw), call_id=known_id)
    arguments, why = parse_arguments(str(raw or ""))
    return ModelCall(name=name, arguments=raw if why else arguments, call_id=known_id, malformed=why, raw=str(raw))


def _read_usage(data: Any) -> Usage | None:
    if not isinstance(data, Mapping):
        return None
    reasoning = (data.get("output_tokens_details") or {}).get("reasoning_tokens") or 0
    output_tokens, input_tokens = data.get("output_tokens") or 0, data.get("input_tokens") or 0
    return Usage(
        input_tokens=input_tokens,
        output_tokens=max(output_tokens - reasoning, 0),
        reasoning_tokens=reasoning,
        cached_tokens=(data.get("input_tokens_details") or {}).get("cached_tokens") or 0,
        total_tokens=data.get("total_tokens") or input_tokens + output_tokens,
    )
