"""Log files: JSON or JSON Lines, whose records are told apart by their keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from evalkit.errors import Location, UsageError
from evalkit.importing.anthropic_log import anthropic_parts, is_anthropic
from evalkit.importing.conversation import (
    Conversation,
    Event,
    Replied,
    Said,
    UnreadableLogError,
    mappings,
    merged,
    parsed,
)
from evalkit.importing.gemini_log import gemini_parts
from evalkit.importing.openai_log import chat_parts, responses_parts
from evalkit.importing.otel_log import is_export, span_conversations
from evalkit.lint.facts import GEMINI, Declared
from evalkit.lint.shapes import declared

Parts = Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[str, list[Event]]]
_PARTS: dict[str, Parts] = {
    "openai": chat_parts,
    "responses": responses_parts,
    "gemini": gemini_parts,
    "anthropic": anthropic_parts,
}
FORMATS = (*_PARTS, "otel")
_KEYS = {"messages": "openai", "contents": "gemini", "input": "responses"}
_LINES = (".jsonl", ".ndjson")
_MOST_LINES = 3  # that are no JSON, told one by one
_WRAPPERS = (("request", "response"), ("body", "response"), ("kwargs", "output"))
_EXPECTED = "expected {messages, tools}, {contents, tools}, {input, tools}, {request, response} or OTLP/JSON spans"


def read_log(path: Path, form: str | None = None) -> Iterator[Conversation | UsageError]:
    """The conversations in a file, and a UsageError for each record that is none; `form` is one of FORMATS, or None.

    A record that another one continues (an agent logs every request, and each repeats what went before) is left out.
    """
    records: list[tuple[str, Any]] = []
    for item in _records(path):
        if isinstance(item, UsageError):
            yield item
        else:
            records.append(item)
    exports = [record for _, record in records if is_export(record)]
    found: list[Conversation] = []
    if exports and form in (None, "otel"):
        for told in span_conversations(exports, path.name):
            if isinstance(told, UsageError):
                yield told
            else:
                found.append(told)
        records = [item for item in records if not is_export(item[1])]
    for source, record in records:
        try:
            found.append(_conversation(record, form, source))
        except UnreadableLogError as error:
            yield UsageError(f"{source}: {error}")
    yield from longest(found)


def longest(conversations: list[Conversation]) -> list[Conversation]:
    """`conversations` without those that are the beginning of another one, and each once."""
    nodes: dict[tuple[int, str], int] = {}  # a trie, so that long conversations are not compared pair by pair
    continued: set[int] = set()
    ends: list[int] = []
    for one in conversations:
        node = 0
        for told in (one.system, *map(repr, one.events)):
            continued.add(node)
            node = nodes.setdefault((node, told), len(nodes) + 1)
        ends.append(node)
    last = {node: number for number, node in enumerate(ends)}
    return [one for n, one in enumerate(conversations) if ends[n] not in continued and last[ends[n]] == n]


def _records(path: Path) -> Iterator[tuple[str, Any] | UsageError]:
    """Each record with the place where it stands, and an error for each line that is none."""
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: this is not UTF-8: byte {error.start}") from None
    try:
        data = None if path.suffix in _LINES else parsed(text)
    except ValueError:
        data = None
    if data is None:
        yield from _lines(path, text)
        return
    if isinstance(data, list) and not any(isinstance(item, Mapping) and "role" in item for item in data):
        yield from ((f"{path.name}, record {number}", item) for number, item in enumerate(data, 1))
    else:
        yield path.name, {"messages": data} if isinstance(data, list) else data


def _lines(path: Path, text: str) -> Iterator[tuple[str, Any] | UsageError]:
    """Lines end with a line feed and nothing else: JSON may hold U+2028 and its like as they are."""
    wrong = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"{path.name}:{number}", parsed(line)
        except ValueError as error:
            wrong += 1
            if wrong <= _MOST_LINES:
                yield UsageError(f"{path.name}:{number}: this is no JSON: {error}")
    if wrong > _MOST_LINES:
        yield UsageError(f"{path.name}: {wrong - _MOST_LINES} more lines are no JSON")


def _conversation(record: Any, form: str | None, source: str) -> Conversation:
    if not isinstance(record, Mapping):
        raise UnreadableLogError(f"a record is a JSON object, got {json.dumps(record)[:60]}")
    request, response = _unwrapped(record)
    form = form or form_of(request)
    if form is None or form == "otel":
        raise UnreadableLogError(f"no conversation in {', '.join(map(repr, record)) or 'an empty object'}; {_EXPECTED}")
    try:
        system, events = _PARTS[form](request, response)
    except KeyError as error:
        raise UnreadableLogError(
            f"a record of format '{form}' has no {error}; got {', '.join(map(repr, request))}"
        ) from None
    events = [event for event in events if not isinstance(event, Said) or event.text]
    if not any(isinstance(event, Replied) for event in events):
        raise UnreadableLogError("there is no reply of a model in it")
    return Conversation(events=merged(events), system=system, functions=tuple(functions(request)), source=source)


def _unwrapped(record: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Request and response, where a log keeps both; else the record, which may hold the response's keys itself."""
    for outer, answer in _WRAPPERS:
        request, response = record.get(outer), record.get(answer)
        if isinstance(request, Mapping) and form_of(request) is not None:
            return request, response if isinstance(response, Mapping) else {}
    return record, record


def form_of(request: Mapping[str, Any]) -> str | None:
    """The format of a request by its keys; None if it is none."""
    found = next((form for key, form in _KEYS.items() if isinstance(request.get(key), list | str)), None)
    return "anthropic" if found == "openai" and is_anthropic(request) else found


def functions(request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What the request declares, in JSON Schema and in evalkit's own form."""
    tools = [*mappings(request.get("tools")), *mappings(request.get("functions"))]
    config = request.get("config")
    if isinstance(config, Mapping):
        tools += mappings(config.get("tools"))
    for tool in tools:
        inner = next((tool[key] for key in ("functionDeclarations", "function_declarations") if key in tool), None)
        for item in [tool] if inner is None else mappings(inner):
            found = declared(item, lambda path: Location(""), form=None if inner is None else GEMINI)
            if isinstance(found, Declared):
                yield _plain(found)


def _plain(found: Declared) -> Mapping[str, Any]:
    described = {"description": found.description} if isinstance(found.description, str) else {}
    parameters = {"parameters": dict(found.parameters)} if isinstance(found.parameters, Mapping) else {}
    return {"name": found.name, **described, **parameters}
