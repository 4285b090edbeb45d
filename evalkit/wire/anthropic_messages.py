"""Anthropic's messages: what requests and replies hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue, filter_mappings
from evalkit.model.transcript import Usage
from evalkit.wire.reading import build_unread, choose_end, get_text, read_answer_value, read_call
from evalkit.wire.records import CLIENT, SERVER, SERVICE, Answer, Call, Failure, Item, Reply, Request, Text, Thought

NAME = "anthropic_messages"
PATHS = ("/messages",)
KEY = "messages"  # of a request's body
ENDS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
STATUSES = {"overloaded_error": 529, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504}
_CALLS = {"tool_use": CLIENT, "server_tool_use": SERVICE, "mcp_tool_use": SERVER}
# Results of what the service carried out: ``web_search_tool_result``, ``mcp_tool_result``, ...
_RESULTS = frozenset({"mcp_tool_result", "web_search_tool_result", "web_fetch_tool_result", "tool_search_tool_result",
    "code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result",
    "advisor_tool_result"})  # fmt: skip
_NO_CALLS = frozenset({"image", "document", "search_result", "container_upload", "compaction", "tool_addition",
    "tool_removal", "tool_reference", "fallback", "mid_conv_system", "file"})  # fmt: skip


def is_request(data: JsonObject) -> bool:
    """Return whether a body is a request of this API, by its form alone."""
    if not isinstance(data.get("messages"), list) or "inferenceConfig" in data:
        return False
    blocks = (b for m in filter_mappings(data["messages"]) for b in filter_mappings(m.get("content")))
    return (
        "system" in data
        or "anthropic_version" in data
        or any("input_schema" in tool for tool in filter_mappings(data.get("tools")))
        or any(block.get("type") in ("tool_use", "tool_result") for block in blocks)
    )


def is_value(data: JsonObject) -> bool:
    return data.get("type") in ("message", "message_start") or (
        data.get("type") == "error" and isinstance(data.get("error"), Mapping)
    )


def is_streamed(value: JsonObject) -> bool:
    return value.get("type") == "message_start"


def read_block(block: JsonObject, role: str, place: str) -> Iterator[Item]:
    """Read a block of a message's content."""
    kind = block.get("type")
    if kind == "text":
        yield Text(str(block.get("text") or ""), role)
    elif kind in ("thinking", "redacted_thinking"):
        yield Thought(str(block.get("thinking") or ""))
    elif kind in _CALLS and (block.get("name") or kind != "tool_use"):
        yield read_call(
            block.get("name"), block.get("input"), block.get("id"),
            kind=str(kind), carrier=_CALLS[str(kind)], server=get_text(block, "server_name"),
        )  # fmt: skip
    elif kind == "tool_use":
        yield build_unread(f"{NAME}.block.tool_use", place, block)
    elif kind == "tool_result":
        is_error = block.get("is_error") is True
        yield Answer(
            value=read_answer_value(block.get("content")), call_id=get_text(block, "tool_use_id"), is_error=is_error
        )
    elif kind in _RESULTS:
        content = block.get("content")
        is_error = block.get("is_error") is True or str(get_text(content, "type")).endswith("_error")
        carrier = SERVER if kind == "mcp_tool_result" else SERVICE
        value = read_answer_value(content) if kind == "mcp_tool_result" else content
        yield Answer(value=value, call_id=get_text(block, "tool_use_id"), is_error=is_error, carrier=carrier)
    elif kind not in _NO_CALLS:
        yield build_unread(f"{NAME}.block.{kind}", place, block)


def read_request(data: JsonObject) -> Request:
    """Read a request's body."""
    items: list[Item] = []
    names: dict[str, str] = {}
    for number, message in enumerate(filter_mappings(data.get("messages"))):
        role, content = str(message.get("role")), message.get("content")
        if isinstance(content, str):
            items.append(Text(content, role))
        for place, block in enumerate(filter_mappings(content)):
            for item in read_block(block, role, f"messages[{number}].content[{place}]"):
                if isinstance(item, Answer) and item.call_id in names and item.name is None:
                    item = Answer(
                        value=item.value, call_id=item.call_id, name=names[item.call_id or ""],
                        is_error=item.is_error, carrier=item.carrier,
                    )  # fmt: skip
                elif isinstance(item, Call) and item.call_id:
                    names[item.call_id] = item.name
                items.append(item)
    choice = data.get("tool_choice")
    tools = [*filter_mappings(data.get("tools"))]
    return Request(
        items=tuple(items),
        functions=tuple(str(tool.get("name")) for tool in tools if tool.get("type") in (None, "custom")),
        hosted=tuple(str(tool.get("type")) for tool in tools if tool.get("type") not in (None, "custom")),
        forced_name=get_text(choice, "name"),
        model=get_text(data, "model"),
        is_streamed=data.get("stream") is True,
    )


def read_failure(data: JsonObject) -> Failure | None:
    """Return the failure that a body or an event reports."""
    error = data.get("error")
    if not error:
        return None
    inner = error if isinstance(error, Mapping) else {"message": error}
    code = get_text(inner, "type")
    return Failure(str(inner.get("message") or json.dumps(inner)), STATUSES.get(str(code)), code)


def read_reply(data: JsonObject) -> Reply:
    """Read one whole message."""
    if data.get("type") == "error":
        return Reply(end="other", failure=read_failure(data), raw=dict(data))
    content = data.get("content")
    items: list[Item] = []
    if isinstance(content, str):
        items.append(Text(content))
    elif not isinstance(content, list):
        items.append(build_unread(f"{NAME}.content", "content", content))
    blocks = list(filter_mappings(content))
    for number, block in enumerate(blocks):
        items += read_block(block, "assistant", f"content[{number}]")
    reason = data.get("stop_reason")
    echo: JsonValue = {"role": "assistant", "content": [dict(block) for block in blocks]} if blocks else None
    return Reply(
        items=tuple(items),
        end=choose_end(ENDS.get(str(reason), "other") if reason else "stop", items),
        usage=read_usage(data.get("usage")),
        model=get_text(data, "model"),
        reply_id=get_text(data, "id"),
        has_ended=bool(reason),
        raw=dict(data),
        echo=echo,
    )


def read_usage(data: object) -> Usage | None:
    """Read the token counts: the service counts what it read from and wrote to its cache beside the input."""
    if not isinstance(data, Mapping):
        return None

    def count(counts: object, key: str) -> int:
        value = counts.get(key) if isinstance(counts, Mapping) else None
        return value if isinstance(value, int) else 0

    cached, output = count(data, "cache_read_input_tokens"), count(data, "output_tokens")
    reasoning = count(data.get("output_tokens_details"), "thinking_tokens")
    entered = count(data, "input_tokens") + cached + count(data, "cache_creation_input_tokens")
    return Usage(
        input_tokens=entered,
        output_tokens=max(output - reasoning, 0),
        reasoning_tokens=reasoning,
        cached_tokens=cached,
        total_tokens=entered + output,
    )


_PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "compaction_delta": "content",
}


class StreamReader:
    """Reads a streamed message: `feed` its events, in any number, and `finish` at the end."""

    def __init__(self) -> None:
        self._restart()
        self._failure: Failure | None = None
        self._count = 0

    def _restart(self) -> None:
        self._message: JsonDict = {}
        self._blocks: dict[object, JsonDict] = {}
        self._inputs: dict[object, str] = {}
        self._whole: set[object] = set()
        self._unknown: list[Item] = []

    def feed(self, event: JsonObject) -> None:
        """Add one event."""
        self._count += 1
        kind, index = event.get("type"), repr(event.get("index"))
        if kind == "message_start":
            self._restart()  # a gateway that retries sends a second one: what came before it belongs to no message
            started = event.get("message")
            self._message = dict(started) if isinstance(started, Mapping) else {}
            for place, block in enumerate(filter_mappings(self._message.get("content"))):
                self._blocks[f"start {place}"] = dict(block)
                self._whole.add(f"start {place}")
        elif kind == "content_block_start":
            opened = event.get("content_block")
            self._blocks[index] = dict(opened) if isinstance(opened, Mapping) else {}
        elif kind == "content_block_delta":
            delta = event.get("delta")
            self._add_delta(index, delta if isinstance(delta, Mapping) else {})
        elif kind == "content_block_stop":
            self._whole.add(index)
        elif kind == "message_delta":
            delta = event.get("delta")
            self._message |= {
                key: v for key, v in (delta if isinstance(delta, Mapping) else {}).items() if v is not None
            }
            usage = event.get("usage")
            counts = {key: v for key, v in (usage if isinstance(usage, Mapping) else {}).items() if v is not None}
            self._message["usage"] = {**(self._message.get("usage") or {}), **counts}
        elif kind == "error" or (kind is None and event.get("error")):
            failure = read_failure(event)
            if failure is not None:
                self._failure = Failure(failure.message, failure.status, failure.code, is_midstream=bool(self._message))
        elif kind not in ("message_stop", "ping", "message"):
            self._unknown.append(build_unread(f"{NAME}.event.{kind}", f"event {self._count}", event))

    def _add_delta(self, index: object, delta: JsonObject) -> None:
        block = self._blocks.setdefault(index, {})
        kind = str(delta.get("type"))
        if kind == "input_json_delta":
            self._inputs[index] = self._inputs.get(index, "") + str(delta.get("partial_json") or "")
        elif kind in _PIECES:
            block[_PIECES[kind]] = str(block.get(_PIECES[kind]) or "") + str(delta.get(_PIECES[kind]) or "")
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
        else:
            self._unknown.append(build_unread(f"{NAME}.delta.{kind}", f"event {self._count}", delta))

    def finish(self) -> Reply:
        """End the stream: the same reply as if it had come whole, except where it broke off."""
        reason = self._message.get("stop_reason")
        broken: str | None = None
        content: list[JsonDict] = []
        for place, (index, block) in enumerate(self._blocks.items()):
            if block.get("type") in _CALLS:
                text = self._inputs.get(index)
                if text is not None:
                    call = read_call(block.get("name"), text, block.get("id"))
                    is_last = place == len(self._blocks) - 1
                    if call.malformed is not None and (
                        index not in self._whole or (is_last and reason == "max_tokens")
                    ):
                        broken = f"{block.get('name')}({text})"
                        continue
                    block = {**block, "input": text if call.malformed else call.arguments}
                elif index not in self._whole and reason is None:
                    broken = f"{block.get('name')}()"
                    continue
            content.append(block)
        reply = read_reply({**self._message, "content": content})
        end, message = reply.end, None
        if broken is not None:
            why = f" (finish reason {reason!r})" if reason else ""
            message = f"the stream ended inside a function call{why}: {broken}; the call was not made"
        if reason is None:
            end = "truncated"
        elif broken is not None:
            end = "length" if reason == "max_tokens" else "malformed_call"
        return Reply(
            items=(*reply.items, *self._unknown), end=end, end_message=message, usage=reply.usage, model=reply.model,
            reply_id=reply.reply_id, failure=self._failure, has_ended=bool(reason), raw=reply.raw, echo=reply.echo,
        )  # fmt: skip


def read_stream(values: Iterable[object]) -> Reply:
    """Read the events of a stream."""
    reader = StreamReader()
    for value in values:
        if isinstance(value, Mapping):
            reader.feed(value)
    return reader.finish()
