"""Log files: JSON or JSON Lines, whose formats are recognized by the keys of their records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from evalkit.errors import Location, UsageError
from evalkit.importers.log_formats import (
    Conversation,
    ModelReply,
    Parts,
    UnreadableLogError,
    UserMessage,
    filter_mappings,
    is_anthropic,
    is_export,
    merge_events,
    parse_json,
    read_anthropic,
    read_chat,
    read_gemini,
    read_responses,
    read_spans,
)
from evalkit.jsonvalue import JsonObject
from evalkit.lint.facts.declared_data import locate_at, read_declaration
from evalkit.lint.facts.records import GEMINI, DeclaredFunction

PartsReader = Callable[[JsonObject, JsonObject], Parts]
_READERS: dict[str, PartsReader] = {
    "openai": read_chat,
    "responses": read_responses,
    "gemini": read_gemini,
    "anthropic": read_anthropic,
}
FORMATS = (*_READERS, "otel")
_KEYS = {"messages": "openai", "contents": "gemini", "input": "responses"}
_LINES = (".jsonl", ".ndjson")
_MOST_LINES = 3  # that are no JSON, reported one by one
_WRAPPERS = (("request", "response"), ("body", "response"), ("kwargs", "output"))
_EXPECTED = "expected {messages, tools}, {contents, tools}, {input, tools}, {request, response} or OTLP/JSON spans"


def read_log(path: Path, form: str | None = None) -> Iterator[Conversation | UsageError]:
    """Yield the conversations in a file, and a UsageError for each record that is none; `form` is one of FORMATS.

    A record that another one continues (an agent logs every request, and each repeats what went before) is left out.
    """
    records: list[tuple[str, Any]] = []
    for item in _read_records(path):
        if isinstance(item, UsageError):
            yield item
        else:
            records.append(item)
    exports = [record for _, record in records if is_export(record)]
    conversations: list[Conversation] = []
    if exports and form in (None, "otel"):
        for result in read_spans(exports, path.name):
            if isinstance(result, UsageError):
                yield result
            else:
                conversations.append(result)
        records = [item for item in records if not is_export(item[1])]
    for source, record in records:
        try:
            conversations.append(_read_conversation(record, form, source))
        except UnreadableLogError as error:
            yield UsageError(f"{source}: {error}")
    yield from select_longest(conversations)


def select_longest(conversations: list[Conversation]) -> list[Conversation]:
    """Return `conversations` without those that are the beginning of another one, and each once."""
    nodes: dict[tuple[int, str], int] = {}  # a trie, so that long conversations are not compared pair by pair
    continued: set[int] = set()
    ends: list[int] = []
    for conversation in conversations:
        node = 0
        for part in (conversation.system, *map(repr, conversation.events)):
            continued.add(node)
            node = nodes.setdefault((node, part), len(nodes) + 1)
        ends.append(node)
    last = {node: number for number, node in enumerate(ends)}
    return [
        conversation for n, conversation in enumerate(conversations) if ends[n] not in continued and last[ends[n]] == n
    ]


def _read_records(path: Path) -> Iterator[tuple[str, Any] | UsageError]:
    """Yield each record with its place, and an error for each line that is none."""
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: this is not UTF-8: byte {error.start}") from None
    try:
        data = None if path.suffix in _LINES else parse_json(text)
    except ValueError:
        data = None
    wrong = 0
    # Lines end with a line feed alone: JSON may hold U+2028 and its like as they are.
    for number, line in enumerate(text.split("\n") if data is None else (), 1):
        try:
            yield from [(f"{path.name}:{number}", parse_json(line))] if line.strip() else []
        except ValueError as error:
            wrong += 1
            if wrong <= _MOST_LINES:
                yield UsageError(f"{path.name}:{number}: this is no JSON: {error}")
    if wrong > _MOST_LINES:
        yield UsageError(f"{path.name}: {wrong - _MOST_LINES} more lines are no JSON")
    if data is None:
        return
    if isinstance(data, list) and not any(isinstance(item, Mapping) and "role" in item for item in data):
        yield from ((f"{path.name}, record {number}", item) for number, item in enumerate(data, 1))
    else:
        yield path.name, {"messages": data} if isinstance(data, list) else data


def _read_conversation(record: object, form: str | None, source: str) -> Conversation:
    if not isinstance(record, Mapping):
        raise UnreadableLogError(f"a record is a JSON object, got {json.dumps(record)[:60]}")
    request, response = record, record
    for outer, answer in _WRAPPERS:  # where a log keeps both
        inner = record.get(outer)
        if isinstance(inner, Mapping) and find_form(inner) is not None:
            request = inner
            response = record[answer] if isinstance(record.get(answer), Mapping) else {}
            break
    form = form or find_form(request)
    if form is None or form == "otel":
        raise UnreadableLogError(f"no conversation in {', '.join(map(repr, record)) or 'an empty object'}; {_EXPECTED}")
    try:
        system, events = _READERS[form](request, response)
    except KeyError as error:
        raise UnreadableLogError(
            f"a record of format '{form}' has no {error}; got {', '.join(map(repr, request))}"
        ) from None
    events = [event for event in events if not isinstance(event, UserMessage) or event.text]
    if not any(isinstance(event, ModelReply) for event in events):
        raise UnreadableLogError("there is no reply of a model in it")
    return Conversation(
        events=merge_events(events), system=system, functions=tuple(list_functions(request)), source=source
    )


def find_form(request: JsonObject) -> str | None:
    """Return the format of a request by its keys; None if it is none."""
    form = next((form for key, form in _KEYS.items() if isinstance(request.get(key), list | str)), None)
    return "anthropic" if form == "openai" and is_anthropic(request) else form


def list_functions(request: JsonObject) -> Iterator[JsonObject]:
    """Yield the functions that the request declares, in evalkit's own form."""
    tools = [*filter_mappings(request.get("tools")), *filter_mappings(request.get("functions"))]
    config = request.get("config")
    if isinstance(config, Mapping):
        tools += filter_mappings(config.get("tools"))
    for tool in tools:
        inner = next((tool[key] for key in ("functionDeclarations", "function_declarations") if key in tool), None)
        for item in [tool] if inner is None else filter_mappings(inner):
            function = read_declaration(item, locate_at(Location("")), form=None if inner is None else GEMINI)
            if isinstance(function, DeclaredFunction):
                described = {"description": function.description} if isinstance(function.description, str) else {}
                parameters = (
                    {"parameters": dict(function.parameters)} if isinstance(function.parameters, Mapping) else {}
                )
                yield {"name": function.name, **described, **parameters}
