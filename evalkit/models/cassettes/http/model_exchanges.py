"""Requests to model services and their replies, in the traffic of an agent's own client.

They are read by their APIs' own modules (`evalkit.wire`), and normalised for a recording.

Ids, time stamps and signatures, which services draw anew, go through a whole conversation: the client sends them back.
So each is replaced by a numbered stand-in everywhere in the cassette, and replay is as consistent as the recording was.
Other services' replies stay as they are: their ids may be the subject of a case.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Mapping

from evalkit.jsonvalue import JsonDict, JsonObject, map_strings
from evalkit.models.cassettes.http.messages import HttpRequest, HttpResponse, unpack_content
from evalkit.wire.bodies import read_values, split_unread
from evalkit.wire.records import Exchange
from evalkit.wire.table import Api, find_api, find_api_of_value, read_exchange


def read_http_exchange(request: HttpRequest, response: HttpResponse, duration_ms: float) -> Exchange | None:
    """Read an exchange with a model's service; None for any other."""
    charset = re.search(r"charset=[\"']?([\w.-]+)", response.get_header("content-type") or "")
    return read_exchange(
        request.method, request.url, request.body, response.status, _unpack(response), duration_ms,
        charset="utf-8" if charset is None else charset[1], is_whole=response.is_whole,
    )  # fmt: skip


def is_cut_reply(request: HttpRequest, response: HttpResponse) -> bool:
    """Return whether a response that came whole by HTTP holds a model's reply without the end that its API asks for."""
    exchange = read_http_exchange(request, response, 0.0) if response.is_whole else None
    return exchange is not None and exchange.mark_break() is not exchange


def _unpack(response: HttpResponse) -> bytes:
    encoding = response.get_header("content-encoding")
    content = unpack_content(response.body, encoding) if encoding and not response.is_unpacked else response.body
    return content or b""


# -- stand-ins

_SHORTEST = 8  # shorter ids are a server's own counters, which do not change
_BASE64 = ("signature", "encrypted")  # names of stand-ins for what is base64
_TO_URL_SAFE = str.maketrans("+/", "-_")


def normalise_exchanges(exchanges: list[JsonDict]) -> list[JsonDict]:
    """Copy `exchanges` without what would differ in a second recording."""
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for exchange in exchanges:
        api, values = find_replies(exchange.get("response") or {})
        for kind, value in _find_random_values(values, api):
            if value not in names:
                # The prefix of an id stays, ``call_`` of ``call_9xYz``: clients may look at it.
                prefix = re.match(r"[A-Za-z]{2,12}[_-]", value)
                is_base64 = kind in _BASE64
                begin = prefix[0] if prefix is not None and not is_base64 else f"{kind}-"
                counts[begin] = counts.get(begin, 0) + 1
                # Clients send bytes back in the other of base64's two alphabets.
                for form in {value, value.translate(_TO_URL_SAFE)} if is_base64 else {value}:
                    name = f"{begin}{counts[begin]}"
                    names[form] = base64.b64encode(name.encode()).decode() if is_base64 else name
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
        api, _ = find_replies(original.get("response") or {})
        if api is not None:
            response, times = dict(exchange["response"]), getattr(api, "TIMES", ())
            if "json" in response:
                response["json"] = _reset_times(response["json"], times)
            if "text" in response and times:
                response["text"] = re.sub(rf'("(?:{"|".join(times)})"\s*:\s*)\d+', r"\g<1>0", response["text"])
            exchange = {**exchange, "response": response}
        normalised.append(exchange)
    return normalised


def _find_random_values(data: object, api: Api | None) -> Iterator[tuple[str, str]]:
    """Find random values, in the order of the reply, and what their stand-ins are called."""
    volatile: Mapping[str, str] = getattr(api, "VOLATILE", {})
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key in volatile and isinstance(value, str) and len(value) >= _SHORTEST:
                yield volatile[key], value
            elif key not in getattr(api, "WORDS", ()):  # what the model says is no id of the service
                yield from _find_random_values(value, api)
    elif isinstance(data, list):
        for item in data:
            yield from _find_random_values(item, api)


def find_replies(response: JsonObject) -> tuple[Api | None, list[object]]:
    """Find the JSON of a model's reply in a recorded response, one value or the events of a stream, and its API.
    Nothing for other services."""
    if "json" in response:
        values = response["json"] if isinstance(response["json"], list) else [response["json"]]
    else:
        values, _ = split_unread(read_values(str(response.get("text") or "").encode("utf-8", "surrogatepass")))
    api = next((api for value in values if (api := find_api_of_value(value)) is not None), None)
    return api, [] if api is None else values


def is_model_exchange(exchange: JsonObject) -> bool:
    """Tell whether an exchange of a recording is one with a model, by its request or its reply."""
    request = exchange["request"]
    data = request.get("json")
    if isinstance(data, Mapping) and find_api(str(request["url"]), data) is not None:
        return True
    return find_replies(exchange.get("response") or {})[0] is not None


def _reset_times(data: object, keys: Collection[str]) -> object:
    if isinstance(data, Mapping):
        zero = {int: 0, float: 0, str: "1970-01-01T00:00:00Z"}
        return {
            key: zero.get(type(value), value) if key in keys else _reset_times(value, keys)
            for key, value in data.items()
        }
    return [_reset_times(value, keys) for value in data] if isinstance(data, list) else data


# With dashes, or drawn at random and written without: `uuid4().hex`, as pydantic-ai's ids of calls.
_UUID = re.compile(
    r"(?<![0-9a-z])(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15})(?![0-9a-z])",
    re.IGNORECASE,
)


def replace_uuids(request: JsonObject) -> JsonDict:
    """Copy a request with every UUID as the same stand-in."""
    copied: JsonDict = map_strings(request, lambda text: _UUID.sub("uuid", text))
    return copied
