"""OpenAI's chat completions, as dozens of servers speak them: what requests and replies hold.

Of a reply with several choices all calls are read: some gateways give a text in one and the calls in another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from msgspec.structs import replace

from evalkit.errors import IncompleteCallError
from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue, filter_mappings
from evalkit.model.transcript import Usage
from evalkit.streaming import CUT_OFF, StreamAccumulator, explain_cut_off
from evalkit.wire.anthropic_messages import read_block
from evalkit.wire.reading import (
    MENTIONS_CALLS,
    CallNames,
    build_unread,
    check_keys,
    choose_end,
    get_text,
    read_answer_value,
    read_call,
)
from evalkit.wire.records import SERVICE, Answer, Call, Failure, Item, Reply, Request, Text, Thought

NAME = "openai_chat"
PATHS = ("/chat/completions",)
KEY = "messages"  # of a request's body

ENDS = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
# Where servers without `prompt_tokens_details` say how much of the prompt was cached: Mistral, DeepSeek, Moonshot.
CACHED_TOKEN_KEYS = ("num_cached_tokens", "prompt_cache_hit_tokens", "cached_tokens")
# Keys of a message, beside text and calls, that its server wants to see again.
ECHOED_KEYS = ("reasoning_content", "reasoning_details", "extra_content", "thought_signature")
# Keys of a message that are read, or hold no call.
_KNOWN = frozenset({"role", "content", "refusal", "tool_calls", "function_call", "executed_tools", "name", "audio",
    "annotations", "reasoning", "reasoning_content", "reasoning_details", "tool_call_id", "prefix", "extra_content",
    "thought_signature", "finish_reason", "channel", "citations", "images", "tool_use_id"})  # fmt: skip
_HARMLESS_PARTS = frozenset({"image_url", "input_audio", "file", "video_url", "reference", "audio", "document_url"})
_CALL_KEYS = frozenset({"id", "type", "index", "function", "custom", "extra_content", "thought_signature"})


# -- recognition


def is_request(data: JsonObject) -> bool:
    """Return whether a body is a request of this API, by its form alone."""
    return isinstance(data.get("messages"), list) and "system" not in data and "inferenceConfig" not in data


def is_value(data: JsonObject) -> bool:
    """Return whether a value is a reply, or a piece of a streamed one."""
    return "choices" in data or str(data.get("object", "")).startswith(("chat.completion", "text_completion"))


# -- requests


def read_request(data: JsonObject) -> Request:
    """Read a request's body."""
    names = CallNames()
    items: list[Item] = []
    for place, message in enumerate(filter_mappings(data.get("messages"))):
        items += map(names.complete, _read_message(message, f"messages[{place}]"))
    tools = [*filter_mappings(data.get("tools"))]
    older = [get_text(function, "name") for function in filter_mappings(data.get("functions"))]
    declared = [get_text(tool.get("function") or tool.get("custom"), "name") for tool in tools]
    return Request(
        items=tuple(items),
        functions=tuple(name for name in (*declared, *older) if name),
        hosted=tuple(str(tool.get("type")) for tool in tools if tool.get("type") not in (None, "function", "custom")),
        forced_name=_find_forced_name(data),
        model=get_text(data, "model"),
        is_streamed=data.get("stream") is True,
    )


def _find_forced_name(data: JsonObject) -> str | None:
    for choice in (data.get("tool_choice"), data.get("function_call")):
        if isinstance(choice, Mapping):
            return get_text(choice.get("function") or choice.get("custom") or choice, "name")
    return None


def _read_message(message: JsonObject, place: str) -> Iterator[Item]:
    role = str(message.get("role"))
    content = message.get("content")
    if role in ("tool", "function"):
        name = get_text(message, "name")
        yield Answer(
            value=read_answer_value(content),
            call_id=get_text(message, "tool_call_id"),
            name=name if role == "function" else None,
        )
        return
    yield from _read_content(content, role, place)
    if role == "assistant":
        yield from _read_calls(message, place, 0)
        yield from check_keys(message, _KNOWN, f"{NAME}.message", place)


def _read_content(content: object, role: str, place: str) -> Iterator[Item]:
    if isinstance(content, str):
        yield Text(content, role)
    for number, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type") if isinstance(part, Mapping) else None
        where = f"{place}.content[{number}]"
        if isinstance(part, str):
            yield Text(part, role)
        elif kind == "text" or (kind is None and isinstance(part, Mapping) and isinstance(part.get("text"), str)):
            yield Text(str(part.get("text") or ""), role)
        elif kind == "refusal":
            yield Text(str(part.get("refusal") or ""), role, is_refusal=True)
        elif kind in ("thinking", "reasoning"):
            yield Thought()
        elif kind in ("tool_use", "tool_result") and isinstance(part, Mapping):  # of gateways before Anthropic's API
            yield from read_block(part, role, where)
        elif kind not in _HARMLESS_PARTS and role == "assistant":
            yield build_unread(f"{NAME}.part.{kind}", where, part)


def _read_calls(message: JsonObject, place: str, choice: int) -> Iterator[Item]:
    """Read the calls of a message, whole ones."""
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        yield build_unread(f"{NAME}.tool_calls", f"{place}.tool_calls", calls)
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        where = f"{place}.tool_calls[{number}]"
        kind = call.get("type") or "function" if isinstance(call, Mapping) else None
        function = call.get("function") if isinstance(call, Mapping) else None
        custom = call.get("custom") if isinstance(call, Mapping) else None
        if isinstance(custom, Mapping) and custom.get("name"):
            yield _read_custom(custom, call.get("id"), choice)
        elif isinstance(function, Mapping) and function.get("name"):
            arguments = {} if function.get("arguments") is None else function["arguments"]
            yield read_call(function["name"], arguments, call.get("id"), choice=choice)
            yield from check_keys(call, _CALL_KEYS, f"{NAME}.tool_call", where)
        elif isinstance(call, Mapping) and not (call.get("id") or any((function or {}).values())):
            continue  # an empty place
        elif not isinstance(function, Mapping):
            yield build_unread(f"{NAME}.tool_call.{kind}", where, call)
    older = message.get("function_call")
    if isinstance(older, Mapping) and older.get("name") and not calls:
        arguments = {} if older.get("arguments") is None else older["arguments"]
        yield read_call(older["name"], arguments, None, choice=choice, kind="function_call")
    for number, tool in enumerate(filter_mappings(message.get("executed_tools"))):  # of Groq's compound systems
        call_id = f"executed_{tool.get('index', number)}"
        arguments = tool.get("arguments") or {}
        yield read_call(tool.get("name") or tool.get("type"), arguments, call_id, kind="executed_tool", carrier=SERVICE)
        yield Answer(value=read_answer_value(tool.get("output")), call_id=call_id, carrier=SERVICE)


def _read_custom(custom: JsonObject, call_id: object, choice: int) -> Call:
    text = str(custom.get("input") or "")
    known_id = call_id if isinstance(call_id, str) and call_id else None
    return Call(name=str(custom["name"]), arguments={"input": text}, call_id=known_id, kind="custom", choice=choice)


# -- replies


def read_reply(data: JsonObject) -> Reply:
    """Read one whole reply."""
    if (failure := read_failure(data)) is not None and not data.get("choices"):
        return Reply(end="other", failure=failure, raw=dict(data))
    choices = list(filter_mappings(data.get("choices")))
    items: list[Item] = []
    text = ""
    for number, choice in enumerate(choices):
        message = choice.get("message")
        place = f"choices[{number}].message"
        if not isinstance(message, Mapping):
            if isinstance(choice.get("text"), str):  # the older completions
                text = text or choice["text"]
                items += [Text(choice["text"])]
            elif choice.get("delta") is None:
                items.append(build_unread(f"{NAME}.choice", f"choices[{number}]", choice))
            continue
        found = [*_read_content(message.get("content"), "assistant", place), *_read_calls(message, place, number)]
        if number:
            found = [item for item in found if not isinstance(item, Text)]
        if get_text(message, "refusal"):
            found.append(Text(message["refusal"], is_refusal=True))
        items += [*found, *check_keys(message, _KNOWN, f"{NAME}.message", place)]
    first: JsonObject = choices[0] if choices else {}
    finishes = [choice.get("finish_reason") for choice in choices if choice.get("finish_reason")]
    finish = first.get("finish_reason") or (finishes[0] if finishes else None)
    return _end_reply(items, finish, data, first.get("message"))


def read_refusal(data: JsonObject) -> Reply | None:
    """Read what the model wrote out of HTTP 400 of Groq's, ``tool_use_failed``: a call that does not fit its schema, or
    is none. It is the model's reply, and no failure of the service. Frameworks make a call of it, too."""
    error = data.get("error")
    if not isinstance(error, Mapping) or error.get("code") != "tool_use_failed":
        return None
    written = str(error.get("failed_generation") or "")
    items: list[Item] = []
    with suppress(ValueError, RecursionError):
        value = json.loads(written)
        for call in value if isinstance(value, list) else [value]:
            if isinstance(call, Mapping) and isinstance(call.get("name"), str):
                text = json.dumps(call.get("arguments") or call.get("parameters") or {}, ensure_ascii=False)
                why = str(error.get("message") or "the service refused it")
                items.append(Call(name=call["name"], arguments=text, malformed=why, raw=text))
    return Reply(
        items=tuple(items or [Text(written)]), end="malformed_call", end_message=written or str(error.get("message"))
    )


def _end_reply(items: list[Item], finish: object, data: JsonObject, message: object) -> Reply:
    message = message if isinstance(message, Mapping) else {}
    broken = _find_broken_call(items, message, finish)
    calls = [item for item in items if isinstance(item, Call) and not item.choice]
    if broken and calls:
        items = [item for item in items if item is not calls[-1]]
    refusal = next((item.text for item in items if isinstance(item, Text) and item.is_refusal), None)
    if broken and not calls:
        end = "malformed_call"
    elif not message and not items:
        end = "empty"
    elif refusal:
        end = "content_filter"
    else:
        end = ENDS.get(str(finish), "other") if finish else "stop"
        end = choose_end(end, items)
    text = "".join(item.text for item in items if isinstance(item, Text) and not item.is_refusal)
    return Reply(
        items=tuple(items),
        end=end,
        end_message=refusal or (explain_cut_off(broken, finish, "reply") if broken else None),  # type: ignore[arg-type]
        usage=read_usage(data.get("usage")),
        model=get_text(data, "model"),
        reply_id=get_text(data, "id"),
        failure=read_failure(data),
        has_ended=bool(finish),
        raw=dict(data),
        echo=_build_echo(message, text, len(calls) - (1 if broken and calls else 0)),
    )


def read_failure(data: JsonObject) -> Failure | None:
    """Return the failure that a body or an event reports."""
    error = data.get("error")
    if not error:
        return None
    inner = error.get("error", error) if isinstance(error, Mapping) else {"message": error}
    inner = inner if isinstance(inner, Mapping) else {"message": inner}
    status = next((inner[key] for key in ("status_code", "code", "status") if isinstance(inner.get(key), int)), None)
    return Failure(str(inner.get("message") or json.dumps(inner)), status, str(inner.get("code") or "") or None)


def _find_broken_call(items: list[Item], message: JsonObject, finish: object) -> str | None:
    """Describe the last call of a reply that ended at its limit, if that was inside the call; or, where no call came,
    one without a name, which can't be made."""
    calls = [item for item in items if isinstance(item, Call) and not item.choice]
    if calls:
        last = calls[-1]
        is_cut_off = finish in CUT_OFF and (last.malformed is not None or last.raw == "")
        return f"{last.name}({last.raw})" if is_cut_off else None
    listed = message.get("tool_calls")
    for call in listed if isinstance(listed, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping) and (call.get("id") or function.get("arguments")):
            return f"(no name)({function.get('arguments') or ''})"
    return None


def _build_echo(message: JsonObject, text: str, count: int) -> JsonValue:
    """Build the message that goes back, without keys that servers send and do not accept."""
    if not message:
        return None
    content: JsonDict = {"role": "assistant", "content": text or None}
    came = [*filter_mappings(message.get("tool_calls"))]
    if not came and isinstance(message.get("function_call"), Mapping):
        came = [{"function": message["function_call"]}]
    came = [c for c in came if any(isinstance(c.get(k), Mapping) and c[k].get("name") for k in ("function", "custom"))]
    if came[:count]:
        content["tool_calls"] = [
            {key: value for key, value in call.items() if value is not None and key != "index"} for call in came[:count]
        ]
        content |= {key: message[key] for key in ECHOED_KEYS if message.get(key) is not None}
    return content


def read_usage(data: object) -> Usage | None:
    """Read the token counts. OpenAI counts reasoning among the completion's; xAI and Gemini's compatible API beside
    them, which only the total shows. `Usage` has them apart."""
    if not isinstance(data, Mapping):
        return None

    def read_count(counts: object, key: str) -> int:
        value = counts.get(key) if isinstance(counts, Mapping) else None
        return value if isinstance(value, int) else 0

    prompt, completion, total = (read_count(data, f"{key}_tokens") for key in ("prompt", "completion", "total"))
    reasoning = read_count(data.get("completion_tokens_details"), "reasoning_tokens")
    extra = max(total - prompt - completion, 0)
    return Usage(
        input_tokens=prompt,
        output_tokens=completion if extra else max(completion - reasoning, 0),
        reasoning_tokens=extra or reasoning,
        cached_tokens=read_count(data.get("prompt_tokens_details"), "cached_tokens")
        or next((count for key in CACHED_TOKEN_KEYS if (count := read_count(data, key))), 0),
        total_tokens=total or prompt + completion,
    )


class _Choice:
    """One choice of a streamed reply."""

    def __init__(self) -> None:
        self.accumulator = StreamAccumulator()
        self.text: list[str] = []
        self.parts: list[Item] = []
        self.message: JsonDict = {}
        self.custom: dict[object, JsonDict] = {}  # calls of custom tools, by their index
        self.reason: str | None = None
        self.unknown: list[Item] = []

    def feed(self, choice: JsonObject, number: int) -> None:
        raw_delta = choice.get("delta") or choice.get("message") or {}
        delta: JsonDict = dict(raw_delta) if isinstance(raw_delta, Mapping) else {}
        if isinstance(choice.get("text"), str) and not delta:
            self.text.append(choice["text"])
        for item in _read_content(delta.get("content"), "assistant", f"choices[{number}].delta"):
            if isinstance(item, Text) and not item.is_refusal:
                self.text.append(item.text)
            else:
                self.parts.append(item)
        pieces = delta.get("tool_calls")
        if pieces is not None and not isinstance(pieces, list):
            self.unknown.append(build_unread(f"{NAME}.tool_calls", f"choices[{number}].delta.tool_calls", pieces))
        rest = []
        for piece in filter_mappings(pieces):
            index = piece.get("index") or 0
            custom = piece.get("custom")
            if isinstance(custom, Mapping) or (index in self.custom and not piece.get("function")):
                call = self.custom.setdefault(index, {"id": "", "name": "", "input": ""})
                call["id"] += piece.get("id") or ""
                for key in ("name", "input"):
                    call[key] += (custom or {}).get(key) or ""
            elif piece.get("function") is None and piece.get("type") not in (None, "function"):
                self.unknown.append(
                    build_unread(f"{NAME}.tool_call.{piece.get('type')}", f"choices[{number}].delta", piece)
                )
            else:
                rest.append(piece)
        self.accumulator.feed({**delta, "content": None, "tool_calls": rest})
        for key in (*ECHOED_KEYS, "refusal"):
            value = delta.get(key)
            if isinstance(value, str):
                self.message[key] = self.message.get(key, "") + value
            elif isinstance(value, list):
                self.message[key] = [*self.message.get(key, []), *value]
            elif value is not None:
                self.message[key] = value
        if delta.get("executed_tools"):
            self.message["executed_tools"] = delta["executed_tools"]
        if any(value and key not in _KNOWN and MENTIONS_CALLS.search(key) for key, value in delta.items()):
            self.unknown += check_keys(delta, _KNOWN, f"{NAME}.delta", f"choices[{number}].delta")
        if choice.get("finish_reason"):
            self.reason = str(choice["finish_reason"])
            self.accumulator.finish(self.reason)

    def build_message(self) -> tuple[JsonDict, str | None]:
        """Build the message as it would have come whole, and describe a call that is not."""
        broken = None
        certain = self.accumulator.begun(certain=True)
        if not self.reason:
            try:
                self.accumulator.close()
            except IncompleteCallError as error:
                broken = str(error)
        calls = self.accumulator.begun() if broken is None else certain
        for index, custom in sorted(self.custom.items(), key=lambda pair: str(pair[0])):
            body = {"name": custom["name"], "input": custom["input"]}
            place = index if isinstance(index, int) else len(calls)
            calls.insert(place, {"id": custom["id"] or None, "type": "custom", "custom": body})
        message = {"role": "assistant", **self.message, "content": "".join(self.text)}
        return message | ({"tool_calls": calls} if calls else {}), broken


class StreamReader:
    """Reads a streamed reply: `feed` its values, in any number, and `finish` at the end."""

    def __init__(self) -> None:
        self._choices: dict[int, _Choice] = {}
        self._about: JsonDict = {}
        self._failure: Failure | None = None
        self._unknown: list[Item] = []
        self._refusal: Reply | None = None

    def feed(self, chunk: JsonObject) -> None:
        """Add one chunk."""
        if (refusal := read_refusal(chunk)) is not None:
            self._refusal = refusal
            return
        if (failure := read_failure(chunk)) is not None:
            self._failure = Failure(failure.message, failure.status, failure.code, is_midstream=bool(self._choices))
            return
        self._about |= {key: chunk[key] for key in ("id", "model", "usage", "created") if chunk.get(key)}
        for choice in filter_mappings(chunk.get("choices")):
            index = choice.get("index")
            number = index if isinstance(index, int) else 0
            self._choices.setdefault(number, _Choice()).feed(choice, number)

    def finish(self) -> Reply:
        """End the stream: the same reply as if it had come whole, except where it broke off."""
        if self._refusal is not None:
            text = "".join(text for choice in self._choices.values() for text in choice.text)
            return replace(self._refusal, items=(*([Text(text)] if text else []), *self._refusal.items))
        raw_choices: list[JsonDict] = []
        broken: str | None = None
        unknown: list[Item] = [*self._unknown]
        parts: list[Item] = []
        for number, choice in sorted(self._choices.items()):
            message, why = choice.build_message()
            broken = broken or why
            index = {"index": number} if number else {}
            raw_choices.append({**index, "message": message, "finish_reason": choice.reason})
            unknown += choice.unknown
            parts += choice.parts
        about = {key: self._about.get(key) for key in ("usage", "model")}
        reply = replace(read_reply({"choices": raw_choices, **about}), reply_id=get_text(self._about, "id"))
        end, message_text = reply.end, reply.end_message
        has_ended = any(choice.reason for choice in self._choices.values())
        if not has_ended and (broken is not None or not reply.calls):
            end, message_text = "truncated" if reply.text or broken else "empty", broken
        items = (*(part for part in parts if isinstance(part, Thought)), *reply.items, *unknown)
        return Reply(
            items=items, end=end, end_message=message_text, usage=reply.usage, model=reply.model,
            reply_id=reply.reply_id, failure=self._failure, has_ended=has_ended, raw=reply.raw, echo=reply.echo,
        )  # fmt: skip


def read_stream(values: Iterable[object]) -> Reply:
    """Read the values of a stream."""
    reader = StreamReader()
    for value in values:
        if isinstance(value, Mapping):
            with suppress(AttributeError, TypeError, KeyError):
                reader.feed(value)
    return reader.finish()


def is_streamed(value: JsonObject) -> bool:
    """Return whether a value is a piece of a stream."""
    return any("delta" in choice for choice in filter_mappings(value.get("choices"))) or (
        value.get("object") == "chat.completion.chunk"
    )
