"""Logged conversations, whatever wrote them down: messages, replies, calls and answers; and JSON as logs hold it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from evalkit.errors import EvalkitError
from evalkit.jsonvalue import JsonObject

_DEEPEST = 80  # levels of a value, of the hundred that a file may have


class UnreadableLogError(EvalkitError):
    """A conversation that can't be made a case; the message says why."""


class TooDeepError(ValueError):
    """JSON with more levels than a case file can hold."""


class UserMessage(Struct, frozen=True):
    """A message of the user."""

    text: str


class LoggedCall(Struct, frozen=True):
    """A call that the model asked for. `arguments` is a JSON object."""

    name: str
    arguments: JsonObject
    call_id: str | None = None


class ModelReply(Struct, frozen=True):
    """A reply of the model."""

    text: str = ""
    calls: tuple[LoggedCall, ...] = ()


class FunctionAnswer(Struct, frozen=True):
    """The answer of a function. `call_id` or `name` says which call; `failed`: the answer is an error."""

    value: Any
    call_id: str | None = None
    name: str | None = None
    failed: bool = False


Event = UserMessage | ModelReply | FunctionAnswer


class Conversation(Struct, frozen=True, kw_only=True):
    """A logged conversation. `functions` are declarations in JSON Schema; `source` is where it stands."""

    events: tuple[Event, ...]
    system: str = ""
    functions: tuple[JsonObject, ...] = ()
    source: str = ""


def merge_events(events: Iterable[Event]) -> tuple[Event, ...]:
    """Join the pieces of a reply, and messages of the user between two replies."""
    result: list[Event] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, ModelReply) and isinstance(last, ModelReply):
            text = "\n".join(part for part in (last.text, event.text) if part)
            result[-1] = ModelReply(text, (*last.calls, *event.calls))
        elif isinstance(event, UserMessage) and isinstance(last, UserMessage):
            result[-1] = UserMessage(f"{last.text}\n\n{event.text}")
        else:
            result.append(event)
    return tuple(result)


def read_arguments(value: Any, name: str) -> JsonObject:
    """Return arguments as a JSON object, from an object or its text. Raise UnreadableLogError for anything else."""
    if isinstance(value, str):
        try:
            value = parse_json(value or "{}")
        except ValueError as error:
            problem = "nested too deep for a case" if isinstance(error, TooDeepError) else "no JSON"
            raise UnreadableLogError(f"the arguments of {name} are {problem}: {value[:80]}") from None
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UnreadableLogError(f"the arguments of {name} are no JSON object: {json.dumps(value)[:80]}")
    return value


def parse_json(text: str) -> Any:
    """Parse JSON. Raise ValueError for anything else, for NaN and infinities, and for what is nested too deep."""
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise TooDeepError("it is nested too deep") from None
    if text.count("[") + text.count("{") > _DEEPEST:
        level = [data]
        for _ in range(_DEEPEST):
            containers = [value for value in level if isinstance(value, (dict, list))]
            level = [inner for value in containers for inner in (value.values() if isinstance(value, dict) else value)]
        if level:
            raise TooDeepError("it is nested too deep")
    return data


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no number in JSON")


def read_value(text: object) -> Any:
    """Return a function's answer: the JSON object or list that a text is, else the value as it is."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return parse_json(text)
    except ValueError:
        return text


def join_texts(content: object, key: str = "text") -> str:
    """Return the text of a message: a string, or the texts of its parts, a line each."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part if isinstance(part, str) else part.get(key) for part in parts if isinstance(part, str | Mapping))
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def filter_mappings(value: object) -> Iterator[JsonObject]:
    """Yield the mappings in `value`, if it is a list."""
    return (item for item in value if isinstance(item, Mapping)) if isinstance(value, list) else iter(())
