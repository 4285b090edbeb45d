"""JSON values in a line of text: whole where they fit, else with the longest parts cut by ``…``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evalkit.reports.hostile import escape_controls, is_harmless

_CUTS = (80, 60, 48, 40, 34, 28, 24, 20, 16)  # lengths that strings are cut to, tried in turn
_MOST_ITEMS = 6  # of a list or mapping, once anything has to be cut
_DEEPEST = 4  # levels shown, once anything has to be cut
_ENCODED = json.JSONEncoder(ensure_ascii=False).encode


def format_json(value: Any, budget: int) -> str:
    """`value` as JSON, in about `budget` characters."""
    if _measure_size(value, budget) <= budget:
        text = _dump(value)
        if len(text) <= budget:
            return text
    for limit in _select_limits(value):
        text = _dump(_cut_value(value, limit))
        if len(text) <= budget:
            return text
    return _cut_end(text, budget)


def format_arguments(arguments: Any, budget: int) -> str:
    """``serial_number="SN98765", priority="high"``, in about `budget` characters; what is no mapping, as it came."""
    if not isinstance(arguments, Mapping):
        return format_json(arguments, budget)
    if _measure_size(arguments, budget) <= budget:
        text = _format_pairs(arguments)
        if len(text) <= budget:
            return text
    for limit in _select_limits(*arguments.values()):
        text = _format_pairs({key: _cut_value(value, limit) for key, value in arguments.items()})
        if len(text) <= budget:
            return text
    return _cut_end(text, budget)


def _cut_end(text: str, budget: int) -> str:
    """The last resort; a text that is only a little too long is left whole."""
    return text if len(text) <= budget * 1.2 else text[: max(budget - 1, 1)] + "…"


def cut_at_word(text: str, limit: int) -> str:
    """`text` in at most `limit` characters, cut after a word where one ends near."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    space = head.rfind(" ")
    return (head[: space + 1] if space > limit // 2 else head) + "…"


def _format_pairs(arguments: Mapping[Any, Any]) -> str:
    try:
        text = ", ".join([f"{key!s}={_ENCODED(value)}" for key, value in arguments.items()])
    except (TypeError, ValueError, RecursionError):
        text = ""
    if text and is_harmless(text):  # the usual case, at a third of the time of looking at each part
        return text
    return ", ".join(f"{escape_controls(str(key))}={_dump(value)}" for key, value in arguments.items())


def _dump(value: Any) -> str:
    try:
        return escape_controls(_ENCODED(value))
    except (TypeError, ValueError, RecursionError):
        return escape_controls(repr(value))


def _measure_size(value: Any, enough: int) -> int:
    """A lower bound of the length of `value` as JSON; counting stops beyond `enough`."""
    total, stack = 0, [value]
    while stack and total <= enough:
        item = stack.pop()
        if isinstance(item, str):
            total += len(item) + 2
        elif isinstance(item, Mapping):
            total += sum(len(str(key)) + 4 for key in item)
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            total += 2 * len(item)
            stack.extend(item)
        else:
            total += 1
    return total


def _select_limits(*values: Any) -> tuple[int, ...]:
    """Those of _CUTS that are worth trying: of several that cut none of the texts in `values`, one."""
    longest = max(map(_measure_longest, values), default=0)
    harmless = sum(limit >= longest for limit in _CUTS)
    return _CUTS[max(harmless - 1, 0) :]


def _measure_longest(value: Any, depth: int = 0) -> int:
    """The length of the longest text that `_cut` would have to do with."""
    if isinstance(value, str):
        return len(value)
    if depth >= _DEEPEST or not isinstance(value, (Mapping, list, tuple)):
        return 0
    first = list(value)[:_MOST_ITEMS]
    if isinstance(value, Mapping):
        return max((max(len(str(key)), _measure_longest(value[key], depth + 1)) for key in first), default=0)
    return max((_measure_longest(item, depth + 1) for item in first), default=0)


def _cut_value(value: Any, limit: int, depth: int = 0) -> Any:
    if isinstance(value, str):
        return cut_at_word(value, limit)
    if isinstance(value, Mapping):
        if depth >= _DEEPEST:
            return "…"
        pairs = {
            cut_at_word(str(key), limit): _cut_value(value[key], limit, depth + 1) for key in list(value)[:_MOST_ITEMS]
        }
        return pairs if len(value) <= _MOST_ITEMS else {**pairs, "…": "…"}
    if isinstance(value, (list, tuple)):
        if depth >= _DEEPEST:
            return "…"
        items = [_cut_value(item, limit, depth + 1) for item in value[:_MOST_ITEMS]]
        return items if len(value) <= _MOST_ITEMS else [*items, "…"]
    return value
