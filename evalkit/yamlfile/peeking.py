"""One key of a text's top mapping, without building the rest: collecting many files asks for little of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evalkit.errors import SpecError
from evalkit.yamlfile import events as ev
from evalkit.yamlfile import text
from evalkit.yamlfile.builder import ValueBuilder, read
from evalkit.yamlfile.text import DEFAULT_LIMITS, Limits

ABSENT = object()
_NEEDS_WHOLE_TEXT = object()  # only the whole text tells


def read_key(data: bytes, key: str, limits: Limits = DEFAULT_LIMITS) -> Any:
    """The value under `key` in the mapping that `data` holds; ABSENT if there is none, or if it can't be read.

    Of a text with problems any answer may come: whoever reads it as a whole is told of them.
    """
    try:
        builder = ValueBuilder(text.prepare(text.decode(data, "", limits.max_bytes)), "", limits)
    except SpecError:
        return ABSENT
    value = builder.parse_events(lambda get: _find_value(get, key, builder))
    if value is _NEEDS_WHOLE_TEXT or builder.problems:
        document = read(data, "", limits).value
        return document.get(key, ABSENT) if isinstance(document, dict) else ABSENT
    return value


def _find_value(get: Callable[[], Any], key: str, builder: ValueBuilder) -> Any:
    get()  # the stream's start
    if get().__class__ is ev.StreamEndEvent or get().__class__ is not ev.MappingStartEvent:
        return ABSENT
    while True:
        event = get()
        if event.__class__ is ev.MappingEndEvent:
            return ABSENT
        if event.__class__ is not ev.ScalarEvent or event.value == "<<" or event.anchor is not None:
            return _NEEDS_WHOLE_TEXT  # an alias, a merged mapping: what they stand for is not known here
        if event.value == key:
            return builder.read_node(get)
        _skip(get)


def _skip(get: Callable[[], Any]) -> None:
    """Pass over one node."""
    depth = 0
    while True:
        kind = get().__class__
        if kind is ev.MappingStartEvent or kind is ev.SequenceStartEvent:
            depth += 1
        elif kind is ev.MappingEndEvent or kind is ev.SequenceEndEvent:
            depth -= 1
        if depth == 0:
            return
