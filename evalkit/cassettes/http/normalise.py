"""What changes from one recording of a model's API to the next, and how it is made to stay.

Ids, time stamps and signatures that services draw anew go through a whole conversation: the client sends them back. So
each is replaced by a numbered stand-in everywhere in the cassette, and replay is as consistent as the recording was.
Only replies of the APIs that are known here are touched; other services' ids may be what a case is about.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

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


def normalise_exchanges(exchanges: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`exchanges`, as the file will hold them, without what a second recording would have otherwise."""
    names = _find_stand_ins(exchanges)
    return [
        {
            "request": _replace_values(exchange["request"], names),
            "response": _replace_in_response(exchange["response"], names),
        }
        for exchange in exchanges
    ]


def _replace_in_response(response: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    renamed: dict[str, Any] = _replace_values(response, names)
    if not any(True for _ in _find_replies(response)):
        return renamed
    if "json" in renamed:
        renamed["json"] = _reset_times(renamed["json"])
    if "text" in renamed:
        renamed["text"] = _TIME_TEXT.sub(r"\g<1>0", renamed["text"])
    return renamed


def _find_stand_ins(exchanges: list[dict[str, Any]]) -> dict[str, str]:
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for exchange in exchanges:
        for reply in _find_replies(exchange["response"]):
            for key, value in _find_random_values(reply):
                if value not in names:
                    kind = _get_prefix(key, value)
                    counts[kind] = counts.get(kind, 0) + 1
                    # Clients send bytes back in the other of base64's two alphabets.
                    for form in {value, value.translate(_TO_URL_SAFE)} if key in _BASE64 else {value}:
                        names[form] = _encode_stand_in(key, f"{kind}{counts[kind]}")
    return {value: names[value] for value in sorted(names, key=len, reverse=True)}


def _get_prefix(key: str, value: str) -> str:
    """``call_`` of ``call_9xYz``: clients may look at the prefix."""
    prefix = re.match(r"[A-Za-z]{2,12}[_-]", value)
    return prefix[0] if prefix is not None and key not in _BASE64 else f"{_IDS[key]}-"


def _encode_stand_in(key: str, name: str) -> str:
    return base64.b64encode(name.encode()).decode() if key in _BASE64 else name


def _find_random_values(data: Any) -> Iterator[tuple[str, str]]:
    """Keys and values that were drawn by lot, in the order of the reply."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key in _IDS and isinstance(value, str) and len(value) >= _SHORTEST:
                yield key, value
            elif key not in ("arguments", "args", "input", "parameters"):  # what the model says is no id of the service
                yield from _find_random_values(value)
    elif isinstance(data, list):
        for item in data:
            yield from _find_random_values(item)


def _find_replies(response: Mapping[str, Any]) -> Iterator[Any]:
    """The JSON of a model's reply: one value, or the events of a stream. Nothing for other services."""
    if "json" in response:
        values = response["json"] if isinstance(response["json"], list) else [response["json"]]
    elif isinstance(response.get("text"), str) and "data:" in response["text"]:
        values = [value for line in response["text"].splitlines() if (value := _parse_event(line)) is not None]
    else:
        return
    if any(is_model_reply(value) for value in values):
        yield from values


def _parse_event(line: str) -> Any:
    if not line.startswith("data:"):
        return None
    try:
        return json.loads(line[len("data:") :])
    except ValueError:
        return None


def is_model_reply(value: Any) -> bool:
    """Whether `value` looks like a reply of OpenAI's, Anthropic's or Google's API, or an event of its stream."""
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("candidates"), list) or {"usageMetadata", "promptFeedback"} & set(value):
        return True
    if str(value.get("object", "")).startswith(("chat.completion", "text_completion")) or "choices" in value:
        return True
    if value.get("object") == "response" or str(value.get("type", "")).startswith("response."):
        return True
    return value.get("type") in ("message", "message_start")


def _replace_values(data: Any, names: Mapping[str, str]) -> Any:
    if not names:
        return data
    if isinstance(data, str):
        return _replace_in_text(data, names)
    if isinstance(data, Mapping):
        return {key: _replace_values(value, names) for key, value in data.items()}
    if isinstance(data, list):
        return [_replace_values(value, names) for value in data]
    return data


def _replace_in_text(text: str, names: Mapping[str, str]) -> str:
    if text in names:
        return names[text]
    if len(text) < _SHORTEST:
        return text
    for value, name in names.items():
        if value in text:
            text = text.replace(value, name)
    return text


def _reset_times(data: Any) -> Any:
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


def has_uuids(request: Mapping[str, Any]) -> bool:
    """Whether a request holds what clients draw by lot: UUIDs."""
    return _UUID.search(json.dumps(request, default=str)) is not None


def replace_uuids(data: Any) -> Any:
    """`data` with every UUID as the same stand-in."""
    if isinstance(data, str):
        return _UUID.sub("uuid", data)
    if isinstance(data, Mapping):
        return {key: replace_uuids(value) for key, value in data.items()}
    return [replace_uuids(value) for value in data] if isinstance(data, list) else data
