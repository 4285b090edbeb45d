"""Values as messages show them: JSON, bounded in length, whatever the value is.

Never raises and never runs on: cycles, depth, hostile objects and enormous texts are cut with `…`. Lone surrogates
are escaped, so that every message can be encoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from evalkit.operators.equality import ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, STRING, get_kind

TEXT_LIMIT = 240  # characters of a value in a message
WINDOW_SIZE = 60  # characters shown on either side of the first difference of two long texts
_TEXT_DEPTH = 12
_KIND_NAMES = {
    STRING: "a string",
    NUMBER: "a number",
    BOOLEAN: "a boolean",
    NULL: "null",
    ARRAY: "a list",
    OBJECT: "a mapping",
}


def format_value(value: Any, limit: int = TEXT_LIMIT) -> str:
    """`value` as JSON on one line, at most about `limit` characters; what is not JSON is shown as Python has it."""
    try:
        text = "".join(_cut_pieces(_format_pieces(value, limit, _TEXT_DEPTH, ()), limit))
    except Exception:
        text = f"<{type(value).__name__}, which cannot be shown>"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def cut(text: str, limit: int = 2 * TEXT_LIMIT) -> str:
    """`text`, at most `limit` characters of it."""
    return text if len(text) <= limit else text[:limit] + "…"


def describe_type(value: Any) -> str:
    """``a string``, ``null``, ``a tuple, which is not JSON``: what a value is, for messages."""
    name = type(value).__name__
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return _KIND_NAMES.get(get_kind(value)) or f"{article} {name}, which is not JSON"


def _cut_pieces(pieces: Iterator[str], limit: int) -> Iterator[str]:
    remaining = limit
    for piece in pieces:
        if len(piece) > remaining + 1:
            yield piece[:remaining] + "…"
            return
        remaining -= len(piece)
        yield piece


def _format_pieces(value: Any, limit: int, depth: int, above: tuple[int, ...]) -> Iterator[str]:
    of_kind = get_kind(value)
    if of_kind not in (OBJECT, ARRAY):
        yield _format_scalar(value, of_kind, limit)
    elif id(value) in above:
        yield "<cycle>"
    elif not depth:
        yield "…"
    elif of_kind == OBJECT:
        yield from _format_mapping(value, limit, depth - 1, (*above, id(value)))
    else:
        yield "["
        for index, item in enumerate(islice(value, limit)):
            yield ", " if index else ""
            yield from _format_pieces(item, limit, depth - 1, (*above, id(value)))
        yield ", …]" if len(value) > limit else "]"


def _format_mapping(value: dict[Any, Any], limit: int, depth: int, above: tuple[int, ...]) -> Iterator[str]:
    yield "{"
    for index, (key, item) in enumerate(islice(dict.items(value), limit)):
        yield ", " if index else ""
        yield from _format_pieces(key, limit, 0, ())
        yield ": "
        yield from _format_pieces(item, limit, depth, above)
    yield ", …}" if len(value) > limit else "}"


def _format_scalar(value: Any, of_kind: str, limit: int) -> str:
    if of_kind == STRING:
        return _format_string(str.__str__(value), limit)
    if of_kind == NUMBER and isinstance(value, int) and value.bit_length() > 4096:
        return f"<integer of {value.bit_length()} bits>"
    if of_kind:
        return json.dumps(value)
    return f"<{type(value).__name__} {repr(value)[:limit]}>"


def _format_string(text: str, limit: int) -> str:
    if len(text) <= limit - 2:
        return json.dumps(text, ensure_ascii=False)
    return json.dumps(text[: limit - 3], ensure_ascii=False)[:-1] + '…"'


def format_window(text: str, start: int, end: int) -> str:
    """The part of `text` around ``text[start:end]``, quoted, with `…` where it was cut."""
    first, last = max(0, start - WINDOW_SIZE), min(len(text), end + WINDOW_SIZE)
    excerpt = json.dumps(text[first:last], ensure_ascii=False)[1:-1]
    quoted = f'"{"…" if first else ""}{excerpt}{"…" if last < len(text) else ""}"'
    return quoted.encode("utf-8", "backslashreplace").decode("utf-8")


def find_first_difference(a: str, b: str) -> int:
    """The index of the first character at which two different texts differ (a prefix differs at its end)."""
    low, high = 0, min(len(a), len(b))
    while low < high:  # by halves: slices compare at memory speed, a loop over characters does not
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
