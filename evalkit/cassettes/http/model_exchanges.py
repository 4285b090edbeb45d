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
from collections.abc import Iterator, Mapping
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from evalkit.cassettes.http.messages import HttpRequest, HttpResponse, unpack_content
from evalkit.jsonvalue import JsonDict, JsonObject, map_strings
from evalkit.model.transcript import CallAnswer, ModelTurn
from evalkit.wire.records import Exchange
from evalkit.wire.table import APIS, find_api, parse_body, read_exchange


class RequestReading(Struct, frozen=True):
    """The results that a request brings back since the model's last reply; the one function that it makes the model
    call, which is how clients ask for structured output."""

    answers: tuple[CallAnswer, ...] = ()
    forced_name: str | None = None


def read_model_request(request: HttpRequest) -> RequestReading:
    """Read a request to a model's service. Never raises: of any other request nothing is found."""
    data = parse_body(request.body)
    api = find_api(request.url, data) or next((api for api in APIS if data is not None and api.is_request(data)), None)
    if api is None or data is None:
        return RequestReading()
    try:
        read = api.read_request(data)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError):
        return RequestReading()
    answers = (CallAnswer(item.value, item.call_id, item.name, item.is_error) for item in read.new_answers)
    return RequestReading(tuple(answers), read.forced_name)


def read_http_exchange(request: HttpRequest, response: HttpResponse, duration_ms: float) -> Exchange | None:
    """Read an exchange with a model's service; None for any other."""
    charset = re.search(r"charset=[\"']?([\w.-]+)", response.get_header("content-type") or "")
    return read_exchange(
        request.method, request.url, request.body, response.status, _unpack(response), duration_ms,
        charset="utf-8" if charset is None else charset[1],
    )  # fmt: skip


def find_turn(response: HttpResponse, duration_ms: float) -> ModelTurn | None:
    """Return the model turn in `response`, or None. Never raises on any response."""
    exchange = read_exchange("POST", "", b"", response.status, _unpack(response), duration_ms)
    if exchange is None or exchange.reply is None or exchange.reply.failure is not None:
        return None
    return replace(exchange.reply.to_turn(duration_ms), raw=None, content=None)


def _unpack(response: HttpResponse) -> bytes:
    encoding = response.get_header("content-encoding")
    content = unpack_content(response.body, encoding) if encoding else response.body
    return content or b""


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
    elif str(response.get("text", "")).lstrip()[:1] in ("{", "["):
        try:
            data = json.loads(response["text"])
        except (ValueError, RecursionError):
            return
        values = data if isinstance(data, list) else [data]
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


def is_model_exchange(exchange: JsonObject) -> bool:
    """Tell whether an exchange of a recording is one with a model, by its request or its reply."""
    request = exchange["request"]
    data = request.get("json")
    if isinstance(data, Mapping) and find_api(str(request["url"]), data) is not None:
        return True
    return any(True for _ in _find_replies(exchange.get("response") or {}))


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


def replace_uuids(request: JsonObject) -> JsonDict:
    """Copy a request with every UUID as the same stand-in."""
    copied: JsonDict = map_strings(request, lambda text: _UUID.sub("uuid", text))
    return copied
