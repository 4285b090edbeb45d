"""Ollama's own chat API: JSON lines, calls with arguments as objects and, until 2026, without ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from evalkit.jsonvalue import JsonObject, filter_mappings
from evalkit.model.transcript import Usage
from evalkit.wire.reading import CallNames, check_keys, choose_end, get_text, read_answer_value, read_call
from evalkit.wire.records import Answer, Failure, Item, Reply, Request, Text, Thought

NAME = "ollama_chat"
PATHS = ("/api/chat",)
KEY = "messages"  # of a request's body
_KNOWN = frozenset({"role", "content", "thinking", "tool_calls", "images", "tool_name", "tool_call_id"})


def is_request(data: JsonObject) -> bool:
    return False  # by its form it is one of OpenAI's: the path tells them apart


def is_value(data: JsonObject) -> bool:
    return isinstance(data.get("done"), bool) and isinstance(data.get("message"), Mapping)


def is_streamed(value: JsonObject) -> bool:
    return is_value(value)


def _read_message(message: JsonObject, role: str, place: str) -> Iterator[Item]:
    if role == "tool":
        yield Answer(
            value=read_answer_value(message.get("content")),
            call_id=get_text(message, "tool_call_id"),
            name=get_text(message, "tool_name"),
        )
        return
    if message.get("thinking"):
        yield Thought(str(message["thinking"]))
    if isinstance(message.get("content"), str) and message["content"]:
        yield Text(message["content"], role)
    for call in filter_mappings(message.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, Mapping):
            yield read_call(function.get("name"), function.get("arguments") or {}, call.get("id"))
    yield from check_keys(message, _KNOWN, f"{NAME}.message", place)


def read_request(data: JsonObject) -> Request:
    names = CallNames()
    items: list[Item] = []
    for number, message in enumerate(filter_mappings(data.get("messages"))):
        items += map(names.complete, _read_message(message, str(message.get("role")), f"messages[{number}]"))
    tools = filter_mappings(data.get("tools"))
    declared = (get_text(tool.get("function"), "name") for tool in tools)
    return Request(
        items=tuple(items), functions=tuple(name for name in declared if name), model=get_text(data, "model"),
        is_streamed=data.get("stream") is not False,
    )  # fmt: skip


class StreamReader:
    """Reads the lines of a reply: `feed` them, and `finish` at the end."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._text: list[str] = []
        self._last: JsonObject = {}
        self._failure: Failure | None = None

    def feed(self, line: JsonObject) -> None:
        if line.get("error"):
            self._failure = Failure(str(line["error"]), is_midstream=bool(self._last))
            return
        self._last = line
        message = line.get("message")
        for item in _read_message(message if isinstance(message, Mapping) else {}, "assistant", "message"):
            if isinstance(item, Text):
                self._text.append(item.text)
            else:
                self._items.append(item)

    def finish(self) -> Reply:
        items = ([Text("".join(self._text))] if self._text else []) + self._items
        has_ended = self._last.get("done") is True
        reason = str(self._last.get("done_reason") or "stop")
        counts = [self._last.get(key) for key in ("prompt_eval_count", "eval_count")]
        entered, left = (count if isinstance(count, int) else 0 for count in counts)
        end = "length" if reason == "length" else choose_end("stop", items) if has_ended else "truncated"
        return Reply(
            items=tuple(items), end=end, model=get_text(self._last, "model"),
            failure=self._failure, has_ended=has_ended,
            usage=Usage(input_tokens=entered, output_tokens=left, total_tokens=entered + left) if has_ended else None,
        )  # fmt: skip


def read_reply(data: JsonObject) -> Reply:
    return read_stream([data])


def read_stream(values: Iterable[object]) -> Reply:
    reader = StreamReader()
    for value in values:
        if isinstance(value, Mapping):
            reader.feed(value)
    return reader.finish()
