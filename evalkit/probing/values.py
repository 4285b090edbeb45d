"""Other values than the ones that were sent: as near as a model's slip, and of the same JSON type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

KeyPath = tuple[str | int, ...]

SOMETHING_ELSE = "something else"
_LAST_DIGIT = re.compile(r"[0-9](?=[^0-9]*\Z)")
_FACT = re.compile(r"(?=.*[0-9]).{4,60}", re.DOTALL)
_LONG = 60
_MAX_LEAVES = 12


def make_other_value(value: Any, schema: Mapping[str, Any] | None = None) -> Any:
    """A value of the same type that differs; one that the schema's `enum` allows, if it has another."""
    for allowed in (schema or {}).get("enum") or ():
        if allowed != value:
            return allowed
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return _make_other_text(value)
    if isinstance(value, list):
        return value[:-1] if value else [SOMETHING_ELSE]
    return SOMETHING_ELSE


def _make_other_text(text: str) -> str:
    if is_long(text):
        return SOMETHING_ELSE
    if "@" in text:
        return "someone.else@example.org"
    changed = _LAST_DIGIT.sub(lambda match: str((int(match[0]) + 1) % 10), text)
    return changed if changed != text else SOMETHING_ELSE


def is_long(text: str) -> bool:
    """Whether `text` is prose, of which nobody expects every word."""
    return len(text) > _LONG or "\n" in text


def iter_leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """The values that a mapping holds, at any depth; a list counts as one value."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from iter_leaves(item, (*path, key))
    else:
        yield path, value


def list_first_leaves(value: Any) -> list[tuple[KeyPath, Any]]:
    """The first leaves: a large value has thousands, and they tell the same."""
    first_leaves = []
    for leaf in iter_leaves(value):
        first_leaves.append(leaf)
        if len(first_leaves) == _MAX_LEAVES:
            break
    return first_leaves


def replace_leaf(value: Any, path: KeyPath, leaf: Any) -> Any:
    """`value` with another `leaf` at `path`."""
    if not path:
        return leaf
    return {**value, path[0]: replace_leaf(value[path[0]], path[1:], leaf)}


def build_nested(path: KeyPath, leaf: Any) -> Any:
    """`leaf` below the keys of `path`: ``{"a": {"b": leaf}}``."""
    for step in reversed(path):
        leaf = {step: leaf}
    return leaf


def iter_facts(value: Any) -> Iterator[str]:
    """The texts in a value that look like facts: short and with a digit, such as numbers of tickets, and dates."""
    if isinstance(value, dict):
        for item in value.values():
            yield from iter_facts(item)
    elif isinstance(value, list):
        for item in value:
            yield from iter_facts(item)
    elif isinstance(value, str) and "\n" not in value and _FACT.fullmatch(value):
        yield value


def replace_fact(text: str, fact: str) -> str:
    """`text` in which `fact` is told wrongly, wherever it stands."""
    return re.sub(re.escape(fact), SOMETHING_ELSE, text, flags=re.IGNORECASE)
