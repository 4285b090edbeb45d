"""Gemini's contents: what requests and replies hold. A prototype: it reads replies by the provider's functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evalkit.jsonvalue import JsonObject, filter_mappings
from evalkit.streaming import to_wire_keys
from evalkit.wire.reading import build_unread, check_keys, get_text, read_call
from evalkit.wire.records import SERVICE, Answer, Call, Failure, Item, Reply, Request, Text, Thought

NAME = "gemini_content"
PATHS = (":generateContent", ":streamGenerateContent")
KEY = "contents"  # of a request's body
_KNOWN = frozenset({"text", "thought", "thoughtSignature", "inlineData", "fileData", "videoMetadata", "functionCall",
    "functionResponse", "executableCode", "codeExecutionResult", "mediaResolution", "partMetadata"})  # fmt: skip


def is_request(data: JsonObject) -> bool:
    return isinstance(data.get("contents"), list | str)


def is_value(data: JsonObject) -> bool:
    return isinstance(data.get("candidates"), list) or bool({"usageMetadata", "promptFeedback"} & set(data))


def is_streamed(value: JsonObject) -> bool:
    return is_value(value)


def _read_part(part: JsonObject, role: str, place: str) -> Iterator[Item]:
    part = to_wire_keys(part)
    call, answer = part.get("functionCall"), part.get("functionResponse")
    if isinstance(call, Mapping):
        yield read_call(call.get("name"), call.get("args") or {}, call.get("id"))
    elif isinstance(answer, Mapping):
        yield Answer(value=answer.get("response"), call_id=get_text(answer, "id"), name=get_text(answer, "name"))
    elif isinstance(part.get("executableCode"), Mapping):
        yield Call(
            name="code_execution", arguments=dict(part["executableCode"]), kind="executableCode", carrier=SERVICE
        )
    elif isinstance(part.get("codeExecutionResult"), Mapping):
        yield Answer(value=dict(part["codeExecutionResult"]), name="code_execution", carrier=SERVICE)
    elif part.get("thought"):
        yield Thought(str(part.get("text") or ""))
    elif isinstance(part.get("text"), str):
        yield Text(part["text"], role)
    elif part and not set(part) & _KNOWN:
        yield build_unread(f"{NAME}.part.{next(iter(part))}", place, part)
    yield from check_keys(part, _KNOWN, f"{NAME}.part", place)


def read_request(data: JsonObject) -> Request:
    contents = data.get("contents")
    contents = [{"role": "user", "parts": [{"text": contents}]}] if isinstance(contents, str) else contents
    items: list[Item] = []
    for number, content in enumerate(filter_mappings(contents)):
        role = "assistant" if content.get("role") in ("model", "assistant") else "user"
        for place, part in enumerate(filter_mappings(content.get("parts"))):
            items += _read_part(part, role, f"contents[{number}].parts[{place}]")
    settings = data.get("toolConfig") or data.get("tool_config") or {}
    calling = settings.get("functionCallingConfig") or settings.get("function_calling_config") or {}
    names = calling.get("allowedFunctionNames") or calling.get("allowed_function_names") or []
    forced = str(names[0]) if str(calling.get("mode")).upper() == "ANY" and len(names) == 1 else None
    tools = [to_wire_keys(tool) for tool in filter_mappings(data.get("tools"))]
    declared = [d for tool in tools for d in filter_mappings(tool.get("functionDeclarations"))]
    return Request(
        items=tuple(items), functions=tuple(str(d.get("name")) for d in declared), forced_name=forced,
        hosted=tuple(key for tool in tools for key in tool if key != "functionDeclarations"),
    )  # fmt: skip


class StreamReader:
    """Reads a reply's chunks."""

    def __init__(self) -> None:
        self._chunks: list[Any] = []
        self._failure: Failure | None = None

    def feed(self, chunk: JsonObject) -> None:
        error = chunk.get("error")
        if isinstance(error, Mapping):
            status = error.get("code") if isinstance(error.get("code"), int) else None
            self._failure = Failure(str(error.get("message")), status, get_text(error, "status"), bool(self._chunks))
        else:
            self._chunks.append(chunk)

    def finish(self) -> Reply:
        from evalkit.providers.gemini import merge_chunks, read_reply  # to move here

        data = merge_chunks(self._chunks)
        turn = read_reply(data)
        items: list[Item] = []
        for number, candidate in enumerate(filter_mappings(data.get("candidates"))):
            content = candidate.get("content")
            parts = filter_mappings(content.get("parts")) if isinstance(content, Mapping) else ()
            for place, part in enumerate(parts):
                items += _read_part(part, "assistant", f"candidates[{number}].parts[{place}]")
        return Reply(
            items=tuple(items), end=turn.finish_reason, end_message=turn.finish_message, usage=turn.usage,
            model=turn.model, reply_id=get_text(data, "responseId"), failure=self._failure,
            has_ended=turn.finish_reason != "truncated", raw=data, echo=turn.content,
        )  # fmt: skip


def read_reply(data: JsonObject) -> Reply:
    return read_stream([data])


def read_stream(values: Iterable[object]) -> Reply:
    reader = StreamReader()
    for value in values:
        if isinstance(value, Mapping):
            reader.feed(value)
    return reader.finish()
