"""Ollama's own API, ``/api/chat`` and ``/api/generate``: JSON lines, calls with arguments as objects and, until 2026,
without ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from evalkit.jsonvalue import JsonDict, JsonObject, filter_mappings, join_pieces
from evalkit.records.transcript import Usage
from evalkit.wire.reading import (
    CallNames,
    as_mapping,
    build_unread,
    check_keys,
    choose_end,
    feed_values,
    get_text,
    read_answer_value,
    read_call,
    read_count,
)
from evalkit.wire.records import Answer, Failure, FullContext, Item, Reply, Request, Text, Thought

NAME = "ollama_chat"
PATHS = ("/api/chat", "/api/generate")
KEY = "messages"  # of a request's body
# For recordings: `Api` says what they are.
VOLATILE: Mapping[str, str] = {"id": "call"}
TIMES: tuple[str, ...] = ("created_at",)
WORDS = frozenset({"arguments"})
# github.com/ollama/ollama: server/prompt.go; it has no codes.
FULL_CONTEXT = FullContext(words=(r"exceed(s|ed) (the |max )*context length",))

_ENDS = {"stop": "stop", "length": "length", "load": "stop", "unload": "stop"}
_KNOWN = frozenset({"role", "content", "thinking", "tool_calls", "images", "tool_name", "tool_call_id"})
_JOINED = ("content", "thinking")


# -- recognition


def is_request(data: JsonObject) -> bool:
    """Return False: by its form it is one of OpenAI's, and the path tells them apart."""
    return False


def is_value(data: JsonObject) -> bool:
    """Return whether a value is a reply, or a line of a streamed one."""
    return isinstance(data.get("done"), bool) and (
        isinstance(data.get("message"), Mapping) or isinstance(data.get("response"), str)
    )


def is_streamed(value: JsonObject) -> bool:
    """Return whether a value is a line of a stream: here whole replies have the same form."""
    return is_value(value)


# -- requests


def read_request(data: JsonObject) -> Request:
    """Read a request's body."""
    names = CallNames()
    items: list[Item] = [Text(str(data[key]), role) for key, role in _PROMPTS if isinstance(data.get(key), str)]
    for number, message in enumerate(filter_mappings(data.get("messages"))):
        items += map(names.complete, _read_message(message, str(message.get("role")), f"messages[{number}]"))
    declared = (get_text(tool.get("function"), "name") for tool in filter_mappings(data.get("tools")))
    return Request(
        items=tuple(items),
        functions=tuple(name for name in declared if name),
        model=get_text(data, "model"),
        is_streamed=data.get("stream") is not False,
    )


_PROMPTS = (("system", "system"), ("prompt", "user"))  # of ``/api/generate``


def _read_message(message: JsonObject, role: str, place: str) -> Iterator[Item]:
    if role == "tool":
        value = read_answer_value(message.get("content"))
        yield Answer(value=value, call_id=get_text(message, "tool_call_id"), name=get_text(message, "tool_name"))
        return
    if message.get("thinking"):
        yield Thought(str(message["thinking"]))
    if isinstance(message.get("content"), str) and message["content"]:
        yield Text(message["content"], role)
    calls = message.get("tool_calls")
    for number, call in enumerate(calls if isinstance(calls, list) else [calls] if calls else ()):
        function = as_mapping(call).get("function")
        if isinstance(function, Mapping) and get_text(function, "name"):
            yield read_call(function["name"], function.get("arguments") or {}, call.get("id"))
        else:
            yield build_unread(f"{NAME}.tool_call", f"{place}.tool_calls[{number}]", call)
    yield from check_keys(message, _KNOWN, f"{NAME}.message", place)


# -- replies


def read_reply(data: JsonObject) -> Reply:
    """Read one whole reply."""
    failure = read_failure(data)
    message = data.get("message")
    if message is None and isinstance(data.get("response"), str):
        message = {"content": data["response"], "thinking": data.get("thinking")}
    items = [*_read_message(as_mapping(message), "assistant", "message")]
    has_ended = data.get("done") is True
    entered, left = read_count(data, "prompt_eval_count"), read_count(data, "eval_count")
    return Reply(
        items=tuple(items),
        end=choose_end(_ENDS.get(str(data.get("done_reason") or "stop"), "other"), items) if has_ended else "truncated",
        usage=Usage(input_tokens=entered, output_tokens=left, total_tokens=entered + left) if has_ended else None,
        model=get_text(data, "model"),
        failure=failure,
        has_ended=has_ended,
        raw=dict(data),
    )


def read_failure(data: JsonObject) -> Failure | None:
    """Return the failure that a body or a line reports."""
    return Failure(str(data["error"])) if data.get("error") else None


class OllamaStream:
    """Reads the lines of a reply: `feed` them, and `finish` at the end."""

    def __init__(self) -> None:
        self._message: JsonDict = {}
        self._texts: dict[str, list[str]] = {}
        self._last: JsonDict = {}
        self._failure: Failure | None = None

    def feed(self, line: JsonObject) -> None:
        """Add one line."""
        if (failure := read_failure(line)) is not None:
            self._failure = replace(failure, is_midstream=bool(self._last))
            return
        self._last = dict(line)
        message = line.get("message")
        if message is None:
            message = {"content": line.get("response"), "thinking": line.get("thinking")}
        for key, value in as_mapping(message).items():
            if key in _JOINED and isinstance(value, str):
                self._texts.setdefault(key, []).append(value)
            elif isinstance(value, list):
                self._message[key] = [*self._message.get(key, []), *value]
            elif value is not None:
                self._message[key] = value

    def finish(self) -> Reply:
        """End the stream: the same reply as if it had come whole, except where it broke off."""
        rest = {key: value for key, value in self._last.items() if key not in ("response", "thinking")}
        texts = {key: join_pieces(pieces) for key, pieces in self._texts.items()}
        return replace(read_reply({**rest, "message": {**self._message, **texts}}), failure=self._failure)


StreamReader = OllamaStream  # as `Api` calls it


def read_stream(values: Iterable[object]) -> Reply:
    """Read the lines of a reply."""
    return feed_values(OllamaStream(), values).finish()
