"""What a scalar means: JSON's types, decided by how it is written.

A plain scalar is a number only if it is a JSON number without exponent. `true`, `false`, `null` (also with a capital,
as in YAML's core schema), `~` and nothing are what they say. Everything else is a string: `no`, `on`, `012`, `0x1F`,
`1e5`, `12:30`, `2026-01-18`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

_CORE_INT = r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+"
_CORE_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_MAX_DIGITS = 4000  # Python itself refuses to read integers of more than 4300 digits
_PREFIX = "tag:yaml.org,2002:"

CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
NUMBER_STARTS = frozenset("-0123456789")


class ScalarError(ValueError):
    """A scalar that can't be the value it is written as; the text says what to write."""


@cache  # few suites have many numbers, and some cases none
def _compile_json_number() -> Callable[[str], re.Match[str] | None]:
    return re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?").fullmatch


def read_number(text: str) -> int | float | str:
    """The number that `text` is, or `text`. ScalarError where the number is too large for JSON's readers."""
    match = _compile_json_number()(text)
    if match is None:
        return text
    if match[1] is None:
        return _read_whole(text, 10)
    return _read_finite(text)


def _read_whole(text: str, base: int) -> int:
    if len(text) > _MAX_DIGITS:
        raise ScalarError(f"a number of {len(text)} digits is too long; quote it if it is text")
    return int(text, base)


def _read_finite(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise ScalarError(f"number {_cut(text)} is too large; quote it if it is text")
    return value


def _cut(text: str) -> str:
    return text if len(text) <= 30 else text[:30] + "…"


def read_tagged(tag: str, text: str) -> Any:
    """The value of a scalar with an explicit tag: one of YAML's core tags, or `!` (a string)."""
    kind = tag.removeprefix(_PREFIX)
    if tag == "!" or (tag == _PREFIX + kind and kind == "str"):
        return text
    if tag != _PREFIX + kind or kind not in ("int", "float", "bool", "null"):
        raise ScalarError(describe_refused_tag(tag))
    if kind == "int" and re.fullmatch(_CORE_INT, text):
        return _read_whole(text, 0 if text[:2] in ("0x", "0o") else 10)
    if kind == "float" and re.fullmatch(_CORE_FLOAT, text):
        return _read_finite(text)
    expected_type = bool if kind == "bool" else type(None)
    if kind in ("bool", "null") and text in CONSTANTS and isinstance(CONSTANTS[text], expected_type):
        return CONSTANTS[text]
    raise ScalarError(f"{_cut(text)!r} is no !!{kind}")


def describe_refused_tag(tag: str) -> str:
    """The message for a tag that is not one of YAML's core tags."""
    tag_text = "!!" + tag.removeprefix(_PREFIX) if tag.startswith(_PREFIX) else tag
    return f"tag {tag_text} is refused: evalkit reads plain data; remove the tag, or quote the text if it is text"
