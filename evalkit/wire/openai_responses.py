"""OpenAI's responses: what requests and replies hold, over HTTP and WebSocket.

Items of the output are what counts; the events of a stream only carry them. So a reply is what its last event says,
completed by the items whose own last event has come.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from evalkit.jsonvalue import JsonDict, JsonObject, filter_mappings
from evalkit.model.transcript import Usage
from evalkit.wire.reading import build_unread, choose_end, get_text, read_answer_value, read_call
from evalkit.wire.records import (
    CLIENT,
    SERVER,
    SERVICE,
    Answer,
    Call,
    Failure,
    Item,
    Reply,
    Request,
    Text,
    Thought,
    Unread,
)

NAME = "openai_responses"
PATHS = ("/responses",)
KEY = "input"  # of a request's body
ENDINGS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")

# Calls by their kind: the one who carries them out, and the key of what was asked.
_CALLS: dict[str, tuple[str, str]] = {
    "computer_call": (CLIENT, "action"),
    "local_shell_call": (CLIENT, "action"),
    "shell_call": (CLIENT, "action"),
    "apply_patch_call": (CLIENT, "operation"),
    "web_search_call": (SERVICE, "action"),
    "file_search_call": (SERVICE, "queries"),
    "code_interpreter_call": (SERVICE, "code"),
    "image_generation_call": (SERVICE, "revised_prompt"),
    "tool_search_call": (SERVICE, "arguments"),
    "program": (SERVICE, "code"),
}
_NO_CALLS = frozenset({"mcp_list_tools", "item_reference", "compaction", "additional_tools", "mcp_approval_response",
    "compaction_trigger", "compaction_summary"})  # fmt: skip
_ANSWERS = frozenset({"function_call_output", "custom_tool_call_output", "computer_call_output", "program_output",
    "local_shell_call_output", "shell_call_output", "apply_patch_call_output", "tool_search_output"})  # fmt: skip
_TEXTS = frozenset({"output_text", "text", "input_text", "summary_text"})
_NO_TEXTS = frozenset(
    {"input_image", "input_file", "input_audio", "output_audio", "reasoning_text", "computer_screenshot"}
)


# -- recognition


def is_request(data: JsonObject) -> bool:
    if data.get("type") == "response.create":  # over WebSocket
        return True
    listed = data.get("input")
    is_typed = isinstance(listed, list) and any(isinstance(i, Mapping) and ("type" in i or "role" in i) for i in listed)
    return is_typed or (isinstance(listed, str) and "model" in data and "agent" not in data)


def is_value(data: JsonObject) -> bool:
    return data.get("object") == "response" or str(data.get("type", "")).startswith("response.")


def is_streamed(value: JsonObject) -> bool:
    return str(value.get("type", "")).startswith("response.")


# -- items


def read_item(item: JsonObject, place: str) -> Iterator[Item]:
    """Read an item of an input or an output."""
    kind = item.get("type") or ("message" if "role" in item else None)
    call_id = get_text(item, "call_id") or get_text(item, "id")
    if kind == "message":
        yield from _read_content(item.get("content"), str(item.get("role") or "assistant"), place)
    elif kind == "reasoning":
        yield Thought("".join(str(part.get("text") or "") for part in filter_mappings(item.get("summary"))))
    elif kind == "function_call" and get_text(item, "name"):
        yield read_call(item.get("name"), item.get("arguments") or "", call_id)
    elif kind == "custom_tool_call":
        text = str(item.get("input") or "")
        yield Call(name=str(item.get("name")), arguments={"input": text}, call_id=call_id, kind=kind)
    elif kind in ("mcp_call", "mcp_approval_request"):
        about = {"kind": kind, "carrier": SERVER, "server": get_text(item, "server_label")}
        request_id = get_text(item, "approval_request_id")
        yield read_call(
            item.get("name"), item.get("arguments") or "", get_text(item, "id"), request_id=request_id, **about
        )
        if kind == "mcp_call":
            error = item.get("error")
            value = error if error else read_answer_value(item.get("output"))
            yield Answer(
                value=value,
                call_id=get_text(item, "id"),
                name=get_text(item, "name"),
                is_error=bool(error),
                carrier=SERVER,
            )
    elif kind in _CALLS:
        yield from _read_known_call(str(kind), item, call_id)
    elif kind in _ANSWERS:
        carrier = SERVICE if kind in ("program_output",) or item.get("execution") == "server" else CLIENT
        output = item.get("tools") if kind == "tool_search_output" else item.get("output")
        yield Answer(value=read_answer_value(output), call_id=get_text(item, "call_id"), carrier=carrier)
    elif kind not in _NO_CALLS:
        yield build_unread(f"{NAME}.item.{kind}", place, item)


def _read_known_call(kind: str, item: JsonObject, call_id: str | None) -> Iterator[Item]:
    carrier, key = _CALLS[kind]
    if item.get("execution") in ("client", "server"):
        carrier = CLIENT if item["execution"] == "client" else SERVICE
    asked = item.get(key)
    arguments = asked if isinstance(asked, Mapping) else {key: asked} if asked is not None else {}
    if isinstance(asked, str) and key == "arguments":
        call = read_call(kind.removesuffix("_call"), asked, call_id, kind=kind, carrier=carrier)
    else:
        call = Call(
            name=kind.removesuffix("_call"), arguments=dict(arguments), call_id=call_id, kind=kind, carrier=carrier
        )
    yield call
    found = next((item[name] for name in ("results", "outputs") if item.get(name) is not None), None)
    if carrier == SERVICE and (found is not None or item.get("status") in ("completed", "failed")):
        yield Answer(
            value=found, call_id=call_id, name=call.name, is_error=item.get("status") == "failed", carrier=SERVICE
        )


def _read_content(content: object, role: str, place: str) -> Iterator[Item]:
    if isinstance(content, str):
        yield Text(content, role)
    for number, part in enumerate(filter_mappings(content)):
        kind = part.get("type")
        if kind in _TEXTS:
            yield Text(str(part.get("text") or ""), role)
        elif kind == "refusal":
            yield Text(str(part.get("refusal") or ""), role, is_refusal=True)
        elif kind not in _NO_TEXTS and role == "assistant":
            yield build_unread(f"{NAME}.part.{kind}", f"{place}.content[{number}]", part)


# -- requests


def read_request(data: JsonObject) -> Request:
    """Read a request's body; over WebSocket it is an event ``response.create``."""
    data = (
        data["response"]
        if isinstance(data.get("response"), Mapping) and data.get("type") == "response.create"
        else data
    )
    raw = data.get("input")
    inputs = [{"type": "message", "role": "user", "content": raw}] if isinstance(raw, str) else raw
    items: list[Item] = []
    names: dict[str, str] = {}
    for number, item in enumerate(filter_mappings(inputs)):
        for read in read_item(item, f"input[{number}]"):
            if isinstance(read, Call) and read.call_id:
                names[read.call_id] = read.name
            elif isinstance(read, Answer) and read.call_id in names and read.name is None:
                read = Answer(value=read.value, call_id=read.call_id, name=names[read.call_id], carrier=read.carrier)
            items.append(read)
    tools = [*filter_mappings(data.get("tools"))]
    flat = [
        inner
        for tool in tools
        for inner in (filter_mappings(tool["tools"]) if tool.get("type") == "namespace" else [tool])
    ]
    choice = data.get("tool_choice")
    conversation = data.get("conversation")
    kept = get_text(conversation, "id") if isinstance(conversation, Mapping) else conversation
    return Request(
        items=tuple(items),
        functions=tuple(str(tool.get("name")) for tool in flat if tool.get("type") in ("function", "custom")),
        hosted=tuple(str(tool.get("type")) for tool in flat if tool.get("type") not in ("function", "custom")),
        forced_name=get_text(choice, "name"),
        model=get_text(data, "model"),
        continues=get_text(data, "previous_response_id") or (kept if isinstance(kept, str) else None),
        is_streamed=data.get("stream") is True,
    )


# -- replies

_FAILED = {"rate_limit_exceeded": 429, "server_error": 500}


def read_reply(data: JsonObject) -> Reply:
    """Read one whole reply, or what is known of one that the service still works on."""
    status = str(data.get("status") or "completed")
    items: list[Item] = []
    for number, item in enumerate(filter_mappings(data.get("output"))):
        items += read_item(item, f"output[{number}]")
    error = data.get("error")
    failure = None
    if isinstance(error, Mapping) and error:
        code = str(error.get("code") or error.get("type") or "")
        failure = Failure(str(error.get("message") or json.dumps(error)), _FAILED.get(code), code or None)
    elif status == "failed":
        failure = Failure("the response failed, and does not say why")
    reason = get_text(data.get("incomplete_details"), "reason")
    refusal = next((item.text for item in items if isinstance(item, Text) and item.is_refusal), None)
    end = {"max_output_tokens": "length", "content_filter": "content_filter"}.get(str(reason), "stop")
    if end == "stop":
        end = "other" if failure else choose_end("stop", items)
        end = "content_filter" if refusal and end in ("stop", "empty") else end
    return Reply(
        items=tuple(items),
        end=end,
        end_message=refusal or (failure.message if failure else None),
        usage=read_usage(data.get("usage")),
        model=get_text(data, "model"),
        reply_id=get_text(data, "id"),
        failure=failure,
        has_ended=status not in ("queued", "in_progress"),
        raw=dict(data),
    )


def read_usage(data: object) -> Usage | None:
    """Read the token counts."""
    if not isinstance(data, Mapping):
        return None

    def count(counts: object, key: str) -> int:
        value = counts.get(key) if isinstance(counts, Mapping) else None
        return value if isinstance(value, int) else 0

    reasoning = count(data.get("output_tokens_details"), "reasoning_tokens")
    entered, left = count(data, "input_tokens"), count(data, "output_tokens")
    return Usage(
        input_tokens=entered,
        output_tokens=max(left - reasoning, 0),
        reasoning_tokens=reasoning,
        cached_tokens=count(data.get("input_tokens_details"), "cached_tokens"),
        total_tokens=count(data, "total_tokens") or entered + left,
    )


# Pieces of arguments: the event, and the key of the item that they are pieces of.
_PIECES = {
    "response.function_call_arguments": "arguments",
    "response.mcp_call_arguments": "arguments",
    "response.mcp_call.arguments": "arguments",
    "response.custom_tool_call_input": "input",
    "response.code_interpreter_call_code": "code",
}
# Events that bring nothing of a call, or bring again what items have.
_KNOWN_EVENT = re.compile(
    r"response\.(created|in_progress|queued|content_part\.\w+|output_text\.[\w.]+|refusal\.\w+|reasoning[\w.]*|audio[\w.]*"
    r"|(web_search|file_search|code_interpreter|image_generation|mcp|tool_search|shell|computer|apply_patch|local_shell|program)\w*\.\w+"
    r"|mcp_list_tools\.\w+|compaction\.\w+|heartbeat)"
)


class StreamReader:
    """Reads a streamed reply: `feed` its events, in any number, and `finish` at the end."""

    def __init__(self) -> None:
        self._response: JsonDict = {}
        self._items: dict[object, JsonDict] = {}  # by output_index
        self._whole: set[object] = set()
        self._pieces: dict[object, dict[str, str]] = {}
        self._texts: dict[tuple[object, object], list[str]] = {}
        self._has_ended = False
        self._failure: Failure | None = None
        self._unknown: list[Unread] = []
        self._count = 0

    def feed(self, event: JsonObject) -> None:
        """Add one event."""
        self._count += 1
        kind = str(event.get("type", ""))
        place = event.get("output_index", event.get("item_id"))
        prefix, _, last = kind.rpartition(".")
        if kind in ENDINGS or kind in ("response.created", "response.in_progress", "response.queued"):
            response = event.get("response")
            self._response |= response if isinstance(response, Mapping) else {}
            self._has_ended = self._has_ended or kind in ENDINGS
        elif kind in ("response.output_item.added", "response.output_item.done"):
            if isinstance(item := event.get("item"), Mapping):
                self._items[place] = dict(item)
                if last == "done":
                    self._whole.add(place)
        elif prefix in _PIECES and last in ("delta", "done"):
            key = _PIECES[prefix]
            pieces = self._pieces.setdefault(place, {})
            pieces[key] = (
                (pieces.get(key, "") + str(event.get("delta") or "")) if last == "delta" else str(event.get(key) or "")
            )
            if last == "done":
                self._whole.add(place)
        elif prefix == "response.output_text" and last == "delta":
            self._texts.setdefault((place, event.get("content_index")), []).append(str(event.get("delta") or ""))
        elif kind == "error" or (not kind and event.get("error")):
            inner = event.get("error")
            error = inner if isinstance(inner, Mapping) else event
            code = str(error.get("code") or error.get("type") or "")
            self._failure = Failure(str(error.get("message")), _FAILED.get(code), code or None, is_midstream=True)
        elif kind and kind not in ("ping", "keepalive", "session.created") and not _KNOWN_EVENT.fullmatch(kind):
            self._unknown.append(build_unread(f"{NAME}.event.{kind}", f"event {self._count}", event))

    def finish(self) -> Reply:
        """End the stream: the items of its last event, completed by those that came before it."""
        listed = [dict(item) for item in filter_mappings(self._response.get("output"))]
        broken: str | None = None
        if len(listed) < len(self._items):
            known = {item.get("id") for item in listed if item.get("id")}
            for place, item in sorted(
                self._items.items(), key=lambda pair: (not isinstance(pair[0], int), str(pair[0]).zfill(6))
            ):
                if item.get("id") in known and known:
                    continue
                item |= self._pieces.get(place, {})
                texts = [part for (where, _), part in self._texts.items() if where == place]
                if item.get("type") == "message" and not item.get("content"):
                    item["content"] = [{"type": "output_text", "text": "".join(text)} for text in texts]
                if place not in self._whole and not self._has_ended and item.get("type") != "message":
                    broken = (
                        f"{item.get('name') or item.get('type')}({item.get('arguments') or item.get('input') or ''})"
                    )
                    continue
                listed.append(item)
        elif not listed and self._texts:
            text = "".join("".join(parts) for parts in self._texts.values())
            listed = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]
        reply = read_reply(
            {
                **self._response,
                "output": listed,
                "status": self._response.get("status") if self._has_ended else "in_progress",
            }
        )
        # Events that nobody knows are errors only where the reply did not come whole: its last event has all items.
        unknown = () if self._has_ended and listed else tuple(self._unknown)
        end, message = reply.end, reply.end_message
        if not self._has_ended:
            end = "truncated" if listed or broken or self._texts else "empty"
            message = (
                None if broken is None else f"the stream ended inside a function call: {broken}; the call was not made"
            )
            if reply.calls and broken is None and self._failure is None:
                end = "tool_calls"
        failure = self._failure or reply.failure
        return Reply(
            items=(*reply.items, *unknown), end=end, end_message=message, usage=reply.usage, model=reply.model,
            reply_id=reply.reply_id, failure=failure, has_ended=self._has_ended, raw=reply.raw, echo=reply.echo,
        )  # fmt: skip


def read_stream(values: Iterable[object]) -> Reply:
    """Read the events of a stream."""
    reader = StreamReader()
    for value in values:
        if isinstance(value, Mapping):
            reader.feed(value)
    return reader.finish()
