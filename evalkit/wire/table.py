"""The APIs that are known, the one to which an exchange belongs, and the exchange read by it.

An exchange is recognised by the path of its URL and the form of its body together; behind another path by the body, or
by the reply. What looks like a request to a model, and belongs to no API here, is unread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from evalkit.jsonvalue import JsonObject, filter_mappings
from evalkit.wire import anthropic_messages, gemini_content, ollama_chat, openai_chat, openai_responses
from evalkit.wire.bodies import EventDecoder, read_values, split_unread
from evalkit.wire.reading import build_unread
from evalkit.wire.records import Exchange, Failure, Item, Reply, Request


class Stream(Protocol):
    """Reads a streamed reply in pieces."""

    def feed(self, value: JsonObject) -> None: ...
    def finish(self) -> Reply: ...


class Api(Protocol):
    """One API of model services: a module of this package, or an object that a user registers."""

    NAME: str
    PATHS: Sequence[str]  # endings of its URLs' paths
    KEY: str  # of a request's body

    def is_request(self, data: JsonObject) -> bool: ...
    def is_value(self, data: JsonObject) -> bool: ...
    def is_streamed(self, value: JsonObject) -> bool: ...
    def read_request(self, data: JsonObject) -> Request: ...
    def read_reply(self, data: JsonObject) -> Reply: ...
    def StreamReader(self) -> Stream: ...  # noqa: N802 - a class


APIS: list[Api] = [anthropic_messages, openai_responses, gemini_content, ollama_chat, openai_chat]  # type: ignore[list-item]
# Paths of model services that answer with no turn.
_NO_TURNS = re.compile(
    r"(/embeddings|/models(/[^/:]+)*|/count_tokens|:countTokens|:(batch)?[eE]mbedContents?|/moderations|/files(/.*)?"
    r"|/batches(/.*)?|/uploads(/.*)?|/cachedContents(/.*)?|/audio/\w+|/images/\w+|/rerank|/tokenize|/detokenize|/input_items"
    r"|/api/(tags|show|pull|embed|embeddings|version|ps)|/conversations(/.*)?|/responses/compact|/responses/input_tokens)$"
)
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "model", "function"})
_UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)


def parse_body(body: bytes) -> JsonObject | None:
    """Parse the JSON object of a request; None for anything else."""
    if body.lstrip()[:1] != b"{":
        return None
    with suppress(ValueError, RecursionError):
        data = json.loads(body)
        return data if isinstance(data, Mapping) else None
    return None


def find_api(url: str, data: JsonObject | None) -> Api | None:
    """Find the API of a request."""
    path = urlsplit(url).path.rstrip("/")
    by_path = [api for api in APIS if path.endswith(tuple(api.PATHS))]
    if data is None:
        return None
    for api in by_path:
        if api.is_request(data) or (api.KEY in data and ("model" in data or api.KEY != "messages")):
            return api
    return next((api for api in APIS if api.is_request(data) and looks_like_model_request(data)), None)


def is_candidate(method: str, url: str, body: bytes) -> bool:
    """Return whether a request may go to a model: its path is an API's, or its body looks like it."""
    path = urlsplit(url).path.rstrip("/")
    if _NO_TURNS.search(path) or (method.upper() == "GET" and "/responses/" not in path):
        return False
    if any(path.endswith(tuple(api.PATHS)) for api in APIS) or "/responses/" in path:
        return True
    data = parse_body(body)
    return data is not None and looks_like_model_request(data)


def looks_like_model_request(data: JsonObject) -> bool:
    """Return whether a body declares functions, or holds messages with roles, at its top."""
    if any(declares_functions(tool) for key in ("tools", "functions") for tool in filter_mappings(data.get(key))):
        return True
    for key in ("messages", "contents", "input"):
        listed = list(filter_mappings(data.get(key)))
        if (
            listed
            and all(str(item.get("role")).lower() in _ROLES for item in listed if "role" in item)
            and (any("role" in item for item in listed))
        ):
            return True
    return isinstance(data.get("model"), str) and any(isinstance(data.get(k), str) for k in ("prompt", "input"))


def declares_functions(tool: JsonObject) -> bool:
    inner = next((tool[key] for key in ("function", "toolSpec", "custom") if isinstance(tool.get(key), Mapping)), tool)
    keys = {
        "parameters",
        "input_schema",
        "inputSchema",
        "functionDeclarations",
        "function_declarations",
        "parameters_json_schema",
    }
    return bool(keys & set(inner)) or (
        isinstance(inner.get("name"), str) and tool.get("type") in ("function", "custom")
    )


def find_api_by_reply(values: Sequence[object]) -> Api | None:
    """Find the API of a reply whose request tells nothing, by evidence that other services do not give."""
    for value in values:
        if not isinstance(value, Mapping):
            continue
        for api in APIS:
            if api.is_value(value) and (api.NAME != "anthropic_messages" or _is_message(value)):
                return api
    return None


def _is_embedding(value: JsonObject) -> bool:
    """Return whether a reply holds embeddings, whose requests look like those of other APIs."""
    data = value.get("data")
    return "embeddings" in value or "embedding" in value or any("embedding" in item for item in filter_mappings(data))


def _is_message(value: JsonObject) -> bool:
    message = value.get("message") if value.get("type") == "message_start" else value
    return isinstance(message, Mapping) and message.get("role") == "assistant" and "content" in message


def read_exchange(
    method: str, url: str, request_body: bytes, status: int, content: bytes, duration_ms: float = 0.0
) -> Exchange | None:
    """Read an exchange with a model's service; None for one with any other. Never raises."""
    path = urlsplit(url).path.rstrip("/")
    data = parse_body(request_body)
    if _NO_TURNS.search(path):
        return None
    api = find_api(url, data)
    values, unparsed = split_unread(read_values(content))
    mappings = [value for value in values if isinstance(value, Mapping)]
    if any(_is_embedding(value) for value in mappings):
        return None
    if api is None or (mappings and not any(api.is_value(value) or value.get("error") for value in mappings)):
        api = find_api_by_reply(mappings) or api
    if api is None:
        if data is None or not looks_like_model_request(data):
            return None
        unread: Item = build_unread("unknown_api", f"{method} {url.partition('?')[0]}", data)
        return Exchange(api="", url=url, request=Request(items=(unread,)), duration_ms=duration_ms)
    try:
        request = api.read_request(data) if data is not None else Request()
    except _UNREADABLE as error:
        request = Request(items=(build_unread(f"{api.NAME}.request", "request", repr(error)),))
    reply = read_reply_values(api, status, mappings, unparsed)
    return Exchange(api=api.NAME, url=url, request=request, reply=reply, duration_ms=duration_ms)


def read_reply_values(api: Api, status: int, values: Sequence[JsonObject], unparsed: Sequence[Item]) -> Reply:
    """Read the values of a reply."""
    if status >= 400:
        if (
            (read := cast("Callable[[JsonObject], Reply | None] | None", getattr(api, "read_refusal", None)))
            is not None
            and values
            and (reply := read(values[0])) is not None
        ):
            return reply  # what the model wrote, which the service could not read
        text = next((value.get("error") or value.get("message") or value for value in values), None)
        inner = text.get("message", text) if isinstance(text, Mapping) else text
        return Reply(end="other", failure=Failure(str(inner or f"HTTP {status}"), status), has_ended=False)
    try:
        streamed = len(values) > 1 or any(api.is_streamed(value) for value in values)
        if not values:
            items = tuple(unparsed) or (build_unread(f"{api.NAME}.reply", "body", ""),)
            return Reply(end="empty", items=items, has_ended=False)
        if streamed:
            reader = api.StreamReader()
            for value in values:
                reader.feed(value)
            reply = reader.finish()
        elif api.is_value(values[0]) or values[0].get("error"):
            reply = api.read_reply(values[0])
        else:
            return Reply(end="other", items=(build_unread(f"{api.NAME}.reply", "body", values[0]),), has_ended=False)
    except _UNREADABLE as error:
        return Reply(
            end="other", items=(*unparsed, build_unread(f"{api.NAME}.reply", "body", repr(error))), has_ended=False
        )
    if not unparsed:
        return reply
    return replace(reply, items=(*reply.items, *unparsed))


class ReplyReader:
    """Reads the reply to one request in pieces of any size: for traffic that is passed on while it is read."""

    def __init__(self, method: str, url: str, request_body: bytes, status: int) -> None:
        self._about = (method, url, request_body, status)
        self._api = find_api(url, parse_body(request_body))
        self._decoder = EventDecoder()
        self._values: list[object] = []

    def feed(self, content: bytes) -> None:
        self._values += self._decoder.feed(content)
