"""One key of a text's top mapping, without building the rest: collecting many files asks for little of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evalkit.errors import SpecError
from evalkit.yamlfile import events as ev
from evalkit.yamlfile import text
from evalkit.yamlfile.builder import Builder, read
from evalkit.yamlfile.text import DEFAULT, Limits

ABSENT = object()
_ANYWHERE = object()  # only the whole text tells


def peek(data: bytes, key: str, limits: Limits = DEFAULT) -> Any:
    """The value under `key` in the mapping that `data` holds; ABSENT if there is none, or if it can't be read.

    Of a text with problems any answer may come: whoever reads it as a whole is told of them.
    """
    try:
        builder = Builder(text.prepare(text.decode(data, "", limits.max_bytes)), "", limits)
    except SpecError:
        return ABSENT
    found = builder.through(lambda get: _value(get, key, builder))
    if found is _ANYWHERE or builder.problems:
        whole = read(data, "", limits).value
        return whole.get(key, ABSENT) if isinstance(whole, dict) else ABSENT
    return found


def _value(get: Callable[[], Any], key: str, builder: Builder) -> Any:
    get()  # the stream's start
    if get().__class__ is ev.StreamEndEvent or get().__class__ is not ev.MappingStartEvent:
        return ABSENT
    while True:
        event = get()
        if event.__class__ is ev.MappingEndEvent:
            return ABSENT
        if event.__class__ is not ev.ScalarEvent or event.value == "<<" or event.anchor is not None:
            return _ANYWHERE  # an alias, a merged mapping: what they stand for is not known here
        if event.value == key:
            return builder.node(get)
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
