"""Data to readable block YAML that `load` reads back as the same data, and that other YAML readers do not misread."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from evalkit.errors import UsageError, format_path

KeyPath = tuple[str | int, ...]

_PLAIN = re.compile(r"[^\W\d_](?:[\w ./@+()$%=~^;<>-]|[:,](?=[^\s:,]))*(?<![\s:])")
_SERIAL = re.compile(r"[0-9]*[A-Za-z][\w.-]*")
# What YAML 1.1 readers, other tools among them, take for something else than text.
_MISREAD = re.compile(
    r"(?:~|null|true|false|yes|no|on|off|y|n)|[-+.]?[0-9][-+0-9_.,:]*(?:[eE][-+]?[0-9]+)?|0[xXoObB][0-9A-Fa-f_]+"
    r"|[-+]?\.(?:inf|nan)|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}[Tt ].*",
    re.IGNORECASE,
)
_NOT_IN_BLOCKS = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_TO_ESCAPE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_BLOCK_ODDITY = re.compile(r"[ \t]+$|\A\n*\Z", re.MULTILINE)  # blanks that nobody sees, or nothing else
_MAX_SIMPLE_KEY = 100


def dump(data: Any) -> str:
    """`data` (JSON types; tuples as lists) as YAML. UsageError, with the path, for what YAML or JSON can't express."""
    return "\n".join(_format_lines(data, (), nested=False)) + "\n"


def _format_lines(value: Any, path: KeyPath, *, nested: bool = True) -> Iterator[str]:
    """Lines of a node, unindented: the first may stand behind `key: ` or `- ` if `_is_inline`."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _format_pair(key, item, path)
    elif isinstance(value, (list, tuple)) and value:
        for index, item in enumerate(value):
            inner = _format_lines(item, (*path, index))
            yield "- " + next(inner)
            yield from ("  " + line if line else "" for line in inner)
    elif isinstance(value, str):
        yield from _format_text(value, path, block=nested)
    else:
        yield _format_atom(value, path)


def _format_pair(key: Any, item: Any, path: KeyPath) -> Iterator[str]:
    if not isinstance(key, str):
        raise UsageError(f"can't write {_format_place(path)} as YAML: key {key!r} is not text")
    key_text = next(_format_text(key, path, block=False))
    lines = _format_lines(item, (*path, key))
    if len(key_text) > _MAX_SIMPLE_KEY:
        yield "? " + key_text
        key_text = ""
    if isinstance(item, (Mapping, list, tuple)) and item:
        yield key_text + ":"
    else:
        yield f"{key_text}: {next(lines)}"
    yield from ("  " + line if line else "" for line in lines)


def _format_atom(value: Any, path: KeyPath) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float) and math.isfinite(value):
        digits = format(Decimal(repr(float(value))), "f")
        return digits if "." in digits else digits + ".0"
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, (list, tuple)):
        return "[]"
    raise UsageError(f"can't write {_format_place(path)} as YAML: {value!r} is not JSON data")


def _format_place(path: KeyPath) -> str:
    return format_path(path) or "the data"


def _format_text(value: str, path: KeyPath, *, block: bool) -> Iterator[str]:
    if "\n" in value and block and not _NOT_IN_BLOCKS.search(value) and not _BLOCK_ODDITY.search(value):
        yield from _format_literal(value)
    elif (_PLAIN.fullmatch(value) or _SERIAL.fullmatch(value)) and not _MISREAD.fullmatch(value):
        yield value
    else:
        yield _format_quoted(value, path)


def _format_literal(value: str) -> Iterator[str]:
    body = value.rstrip("\n")
    ends = len(value) - len(body)
    indent = "2" if value[0] in " \t\n" else ""  # where the indentation can't be told from the first line
    yield "|" + indent + ("-", "", "+")[min(ends, 2)]
    yield from body.split("\n")
    yield from [""] * (ends - 1)


def _format_quoted(value: str, path: KeyPath) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"can't write {_format_place(path)} as YAML: {value[error.start]!r} is no character") from None
    quoted = json.dumps(value, ensure_ascii=False)
    return _TO_ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
