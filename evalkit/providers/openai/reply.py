"""From chat completions, whole or streamed, to a ModelTurn. Servers differ in small ways; all of them are read here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from evalkit.errors import IncompleteCallError
from evalkit.model.transcript import ModelCall, ModelTurn, Usage
from evalkit.providers.turns import parse_arguments
from evalkit.streaming.accumulate import CUT_OFF, StreamAccumulator, explain_cut_off

FINISH_REASONS = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
# Where servers without `prompt_tokens_details` say how much of the prompt was cached: Mistral, DeepSeek, Moonshot.
CACHED_TOKEN_KEYS = ("num_cached_tokens", "prompt_cache_hit_tokens", "cached_tokens")
# What a message holds beside text and calls that its server wants to see again.
ECHOED_KEYS = ("reasoning_content", "reasoning_details", "extra_content", "thought_signature")


def read_reply(data: Any) -> ModelTurn:
    """The turn that one whole response is. Never raises on any JSON."""
    data = data if isinstance(data, Mapping) else {}
    choice = _get_choice(data.get("choices"))
    message = choice.get("message")
    message = message if isinstance(message, Mapping) else {}
    text = join_text_parts(message.get("content"))
    finish = choice.get("finish_reason")
    came = tuple(_read_call(call) for call in _list_calls(message))
    broken = _find_cut_off_call(came, finish) or (None if came else _find_nameless_call(message))
    calls = came[:-1] if came and broken else came
    return ModelTurn(
        text=text,
        calls=calls,
        finish_reason="malformed_call"
        if broken and not came
        else _read_finish_reason(finish, message, bool(calls), bool(text)),
        finish_message=message.get("refusal") or (explain_cut_off(broken, finish, "reply") if broken else None),
        usage=read_usage(data.get("usage")),
        raw=dict(data),
        content=_build_content(message, text, calls),
        model=data.get("model") if isinstance(data.get("model"), str) else None,
    )


def _get_choice(choices: Any) -> Mapping[str, Any]:
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, Mapping) else {}


def join_text_parts(content: Any) -> str:
    """A message's text: a string, or the text parts of a list."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text")
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _list_calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    candidates = [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []
    if not candidates and isinstance(message.get("function_call"), Mapping):
        candidates = [{"function": message["function_call"]}]
    return [call for call in candidates if isinstance(call.get("function"), Mapping) and call["function"].get("name")]


def _find_nameless_call(message: Mapping[str, Any]) -> str | None:
    """A call that has no name, and so is none."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping) and (call.get("id") or function.get("arguments")):
            return f"(no name)({function.get('arguments') or ''})"
    return None


def _find_cut_off_call(calls: Sequence[ModelCall], finish: Any) -> str | None:
    """The last call of a reply that ended at its limit, if that was inside it."""
    if not calls or finish not in CUT_OFF:
        return None
    last = calls[-1]
    return f"{last.name}({last.raw})" if last.malformed is not None or last.raw == "" else None


def _read_call(data: Mapping[str, Any]) -> ModelCall:
    function = data["function"]
    arguments, call_id = function.get("arguments"), data.get("id")
    known_id = call_id if isinstance(call_id, str) and call_id else None
    name = str(function["name"])
    if arguments is None or isinstance(arguments, Mapping):
        return ModelCall(name=name, arguments=dict(arguments or {}), call_id=known_id)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    value, why = parse_arguments(text)
    return ModelCall(name=name, arguments=text if why else value, call_id=known_id, malformed=why, raw=text)


def _read_finish_reason(reason: Any, message: Mapping[str, Any], has_calls: bool, has_text: bool) -> str:
    if not message:
        return "empty"
    if message.get("refusal"):
        return "content_filter"
    if not reason or reason in ("stop", "tool_calls", "function_call"):
        return "tool_calls" if has_calls else "stop" if has_text else "empty"
    return FINISH_REASONS.get(str(reason), "other")


def read_usage(data: Any) -> Usage | None:
    """Tokens. OpenAI counts reasoning among the completion's; xAI and Gemini's compatible API beside them, which only
    the total tells. `Usage` has them apart."""
    if not isinstance(data, Mapping):
        return None
    prompt_tokens, completion_tokens, total = (
        _get_count(data, key) for key in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    reasoning = _get_count(data.get("completion_tokens_details"), "reasoning_tokens")
    extra_tokens = max(total - prompt_tokens - completion_tokens, 0)
    return Usage(
        input_tokens=prompt_tokens,
        output_tokens=completion_tokens if extra_tokens else max(completion_tokens - reasoning, 0),
        reasoning_tokens=extra_tokens or reasoning,
        cached_tokens=_get_count(data.get("prompt_tokens_details"), "cached_tokens")
        or next((count for key in CACHED_TOKEN_KEYS if (count := _get_count(data, key))), 0),
        total_tokens=total or prompt_tokens + completion_tokens,
    )


def _get_count(mapping: Any, key: str) -> int:
    value = mapping.get(key) if isinstance(mapping, Mapping) else None
    return value if isinstance(value, int) else 0


def _build_content(message: Mapping[str, Any], text: str, calls: tuple[ModelCall, ...]) -> dict[str, Any] | None:
    """The message as it goes back. What a server sends and does not take again is left out."""
    if not message:
        return None
    content: dict[str, Any] = {"role": "assistant", "content": text or None}
    came = _list_calls(message)[: len(calls)]
    if came:
        content["tool_calls"] = [
            {key: value for key, value in call.items() if value is not None and key != "index"} for call in came
        ]
        content |= {key: message[key] for key in ECHOED_KEYS if message.get(key) is not None}
    return content


def read_stream(chunks: Iterable[Any]) -> ModelTurn:
    """The turn that a stream's chunks make: the same as if it had come whole, except where the stream breaks off."""
    accumulator = StreamAccumulator()
    text: list[str] = []
    message: dict[str, Any] = {}
    reason = usage = model = None
    for chunk in (chunk for chunk in chunks if isinstance(chunk, Mapping)):
        usage, model = chunk.get("usage") or usage, chunk.get("model") or model
        choice = _get_choice(chunk.get("choices"))
        if choice.get("index"):
            continue  # another reply to the same request
        delta = choice.get("delta") or choice.get("message") or {}
        text.append(join_text_parts(delta.get("content")))
        accumulator.feed({**delta, "content": None})
        _collect_extras(delta, message)
        if choice.get("finish_reason"):
            reason = choice["finish_reason"]
            accumulator.finish(reason)
    calls, broken = (accumulator.begun(), None) if reason else _close_stream(accumulator)
    full_message = {"role": "assistant", **message, "content": "".join(text)} | ({"tool_calls": calls} if calls else {})
    turn = read_reply({"choices": [{"message": full_message, "finish_reason": reason}], "usage": usage, "model": model})
    if reason is None and (broken is not None or not turn.calls):
        return replace(turn, finish_reason="truncated" if turn.text or broken else "empty", finish_message=broken)
    return turn


def _close_stream(accumulator: StreamAccumulator) -> tuple[list[dict[str, Any]], str | None]:
    """The calls of a stream that ended without saying that it was whole, and what it ended inside of."""
    certain = accumulator.begun(certain=True)
    try:
        accumulator.close()
    except IncompleteCallError as error:
        return certain, str(error)
    return accumulator.begun(), None


def _collect_extras(delta: Mapping[str, Any], message: dict[str, Any]) -> None:
    """What comes in pieces beside text and arguments, and must go back: reasoning, signatures."""
    for key in (*ECHOED_KEYS, "refusal"):
        value = delta.get(key)
        if isinstance(value, str):
            message[key] = message.get(key, "") + value
        elif isinstance(value, list):
            message[key] = [*message.get(key, []), *value]
        elif value is not None:
            message[key] = value
