"""Requests to model services and their replies, in the traffic of an agent's own client.

Of a request, the answers to functions that it brings and the function that it forces are read. Replies are read as
turns, and normalised for a recording.

OpenAI's chat completions and responses, Anthropic's messages and Gemini's contents are read, whole or streamed, so that
the client's turns, tokens and cost are known.

Ids, time stamps and signatures, which services draw anew, go through a whole conversation: the client sends them back.
So each is replaced by a numbered stand-in everywhere in the cassette, and replay is as consistent as the recording was.
Other services' replies stay as they are: their ids may be the subject of a case.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from evalkit.cassettes.http.messages import HttpRequest, HttpResponse, unpack_content
from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue, filter_mappings, map_strings, parse_arguments
from evalkit.model.transcript import CallAnswer, ModelCall, ModelTurn, Usage
from evalkit.providers.table import PROVIDERS
from evalkit.providers.turns import Chunk, build_turn
from evalkit.streaming import parse_values


class RequestReading(Struct, frozen=True):
    """The results that a request brings back since the model's last reply; the one function that it makes the model
    call, which is how clients ask for structured output."""

    answers: tuple[CallAnswer, ...] = ()
    forced_name: str | None = None


def read_model_request(request: HttpRequest) -> RequestReading:
    """Read a request to a model's service. Never raises: of any other request nothing is found."""
    try:
        data = json.loads(request.body)
        answers: list[CallAnswer] = []
        for message in data.get("messages") or data.get("contents") or data.get("input") or ():
            if message.get("role") in ("assistant", "model") or message.get("type") in ("function_call", "reasoning"):
                answers.clear()  # these answer an earlier reply
            answers += _read_message(message)
        return RequestReading(tuple(answers), _find_forced_name(data))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError):
        return RequestReading()


def _read_message(message: JsonObject) -> Iterator[CallAnswer]:
    if message.get("role") == "tool":
        yield CallAnswer(_read_content(message.get("content")), call_id=message.get("tool_call_id"))
    elif message.get("type") == "function_call_output":
        yield CallAnswer(_read_content(message.get("output")), call_id=message.get("call_id"))
    for block in filter_mappings(message.get("content")):
        if block.get("type") == "tool_result":
            is_error = block.get("is_error") is True
            yield CallAnswer(_read_content(block.get("content")), call_id=block.get("tool_use_id"), is_error=is_error)
    for part in filter_mappings(message.get("parts")):
        answer = part.get("functionResponse") or part.get("function_response")
        if answer:
            yield CallAnswer(answer.get("response"), call_id=answer.get("id"), name=answer.get("name"))


def _read_content(content: JsonValue) -> JsonValue:
    """Return the value that an answer's content stands for: JSON if it reads as JSON, else the text itself."""
    texts: Iterable[object] = [block.get("text") for block in filter_mappings(content)]
    text = content if isinstance(content, str) else "".join(item for item in texts if isinstance(item, str))
    if not text:
        return content
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return text
    return value


def _find_forced_name(data: JsonObject) -> str | None:
    choice = data.get("tool_choice")
    if isinstance(choice, Mapping):
        name = (choice.get("function") or choice).get("name")
        return name if isinstance(name, str) else None
    settings = data.get("toolConfig") or data.get("tool_config") or {}
    calling = settings.get("functionCallingConfig") or settings.get("function_calling_config") or {}
    names = calling.get("allowedFunctionNames") or calling.get("allowed_function_names") or []
    return str(names[0]) if str(calling.get("mode")).upper() == "ANY" and len(names) == 1 else None


_READABLE = ("json", "event-stream", "ndjson")
_RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")


def find_turn(response: HttpResponse, duration_ms: float) -> ModelTurn | None:
    """Return the model turn in `response`, or None. Never raises on any response."""
    if response.status != 200 or not any(kind in response.get_header("content-type").lower() for kind in _READABLE):
        return None
    encoding = response.get_header("content-encoding")
    content = unpack_content(response.body, encoding) if encoding else response.body
    try:
        values = [value for value in parse_values((content or b"").decode()) if isinstance(value, Mapping)]
        turn = _read_values(values) if any(is_model_reply(value) for value in values) else None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError):
        return None  # it only looked like a model's, and must not fail the agent's request
    return None if turn is None else replace(turn, duration_ms=duration_ms, raw=None, content=None)


def _read_values(values: Sequence[JsonObject]) -> ModelTurn | None:
    if any({"candidates", "usageMetadata", "promptFeedback"} & set(value) for value in values):
        return PROVIDERS["gemini"]().read_stream(values)
    if any("choices" in value for value in values):
        choices = [choice for value in values for choice in value.get("choices") or () if isinstance(choice, Mapping)]
        if any("delta" in choice for choice in choices):
            return PROVIDERS["openai"]().read_stream(values)
        is_whole = any("message" in choice for choice in choices)
        return PROVIDERS["openai"]().read_reply(values[0]) if is_whole else None
    if any(value.get("type") == "message_start" for value in values):
        return build_turn([Chunk("anthropic", value) for value in values])
    message = next((value for value in values if value.get("type") == "message"), None)
    if message is not None:
        end = {"type": "message_delta", "delta": {"stop_reason": message.get("stop_reason")}}
        start = {"type": "message_start", "message": message}
        return build_turn([Chunk("anthropic", start), Chunk("anthropic", end)])
    ends = [value.get("response") for value in values if value.get("type") in _RESPONSE_ENDS]
    candidates = [value for value in [*reversed(ends), *values] if isinstance(value, Mapping)]
    response = next((value for value in candidates if value.get("object") == "response"), None)
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


def _read_function_call(item: JsonObject) -> ModelCall:
    raw = item.get("arguments")
    name, call_id = str(item.get("name")), item.get("call_id")
    known_id = call_id if isinstance(call_id, str) else None
    if isinstance(raw, Mapping):
        return ModelCall(name=name, arguments=dict(raw), call_id=known_id)
    arguments, why = parse_arguments(str(raw or ""))
    return ModelCall(name=name, arguments=raw if why else arguments, call_id=known_id, malformed=why, raw=str(raw))


def _read_usage(data: object) -> Usage | None:
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


# -- stand-ins

# key of a model's reply -> what its stand-ins are called
_IDS = {
    "id": "id",
    "call_id": "call",
    "responseId": "response",
    "response_id": "response",
    "item_id": "item",
    "request_id": "request",
    "system_fingerprint": "fingerprint",
    "thoughtSignature": "signature",
    "thought_signature": "signature",
    "encrypted_content": "encrypted",
    "obfuscation": "padding",
}
_TIMES = ("created", "created_at", "completed_at", "createTime")
_SHORTEST = 8  # shorter ids are a server's own counters, which do not change
_TIME_TEXT = re.compile(r'("(?:created|created_at|completed_at)"\s*:\s*)\d+')
_BASE64 = ("thoughtSignature", "thought_signature", "encrypted_content")
_TO_URL_SAFE = str.maketrans("+/", "-_")


def normalise_exchanges(exchanges: list[JsonDict]) -> list[JsonDict]:
    """Copy `exchanges` without what would differ in a second recording."""
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for exchange in exchanges:
        for reply in _find_replies(exchange["response"]):
            for key, value in _find_random_values(reply):
                if value not in names:
                    # Return the prefix of an id, ``call_`` of ``call_9xYz``, which clients may look at.
                    prefix = re.match(r"[A-Za-z]{2,12}[_-]", value)
                    kind = prefix[0] if prefix is not None and key not in _BASE64 else f"{_IDS[key]}-"
                    counts[kind] = counts.get(kind, 0) + 1
                    # Clients send bytes back in the other of base64's two alphabets.
                    for form in {value, value.translate(_TO_URL_SAFE)} if key in _BASE64 else {value}:
                        name = f"{kind}{counts[kind]}"
                        names[form] = base64.b64encode(name.encode()).decode() if key in _BASE64 else name
    names = {value: names[value] for value in sorted(names, key=len, reverse=True)}

    def replace_names(text: str) -> str:
        if text in names or len(text) < _SHORTEST:
            return names.get(text, text)
        for value, name in names.items():
            if value in text:
                text = text.replace(value, name)
        return text

    normalised = []
    renamed = map_strings(exchanges, replace_names) if names else exchanges
    for original, exchange in zip(exchanges, renamed, strict=True):
        if any(True for _ in _find_replies(original["response"])):
            response = dict(exchange["response"])
            if "json" in response:
                response["json"] = _reset_times(response["json"])
            if "text" in response:
                response["text"] = _TIME_TEXT.sub(r"\g<1>0", response["text"])
            exchange = {**exchange, "response": response}
        normalised.append(exchange)
    return normalised


def _find_random_values(data: object) -> Iterator[tuple[str, str]]:
    """Find random values and their keys, in the order of the reply."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key in _IDS and isinstance(value, str) and len(value) >= _SHORTEST:
                yield key, value
            elif key not in ("arguments", "args", "input", "parameters"):  # what the model says is no id of the service
                yield from _find_random_values(value)
    elif isinstance(data, list):
        for item in data:
            yield from _find_random_values(item)


def _find_replies(response: JsonObject) -> Iterator[object]:
    """Find the JSON of a model's reply: one value, or the events of a stream. Nothing for other services."""
    if "json" in response:
        values = response["json"] if isinstance(response["json"], list) else [response["json"]]
    elif isinstance(response.get("text"), str) and "data:" in response["text"]:
        values = []
        for line in response["text"].splitlines():
            if line.startswith("data:"):
                with suppress(ValueError):
                    values.append(json.loads(line[len("data:") :]))
    else:
        return
    if any(is_model_reply(value) for value in values):
        yield from values


def is_model_reply(value: object) -> bool:
    """Tell whether `value` looks like a reply of OpenAI's, Anthropic's or Google's API, or an event of its stream."""
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("candidates"), list) or {"usageMetadata", "promptFeedback"} & set(value):
        return True
    if str(value.get("object", "")).startswith(("chat.completion", "text_completion")) or "choices" in value:
        return True
    if value.get("object") == "response" or str(value.get("type", "")).startswith("response."):
        return True
    return value.get("type") in ("message", "message_start")


def _reset_times(data: object) -> object:
    if isinstance(data, Mapping):
        return {
            key: 0
            if key in _TIMES and isinstance(value, (int, float))
            else "1970-01-01T00:00:00Z"
            if key in _TIMES and isinstance(value, str)
            else _reset_times(value)
            for key, value in data.items()
        }
    return [_reset_times(value) for value in data] if isinstance(data, list) else data


_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)


def has_uuids(request: JsonObject) -> bool:
    """Tell whether a request holds UUIDs, which clients draw anew each time."""
    return _UUID.search(json.dumps(request, default=str)) is not None


def replace_uuids(request: JsonObject) -> JsonDict:
    """Copy a request with every UUID as the same stand-in."""
    copied: JsonDict = map_strings(request, lambda text: _UUID.sub("uuid", text))
    return copied
