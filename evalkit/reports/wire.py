"""A verdict as one line of ASCII JSON: what xdist carries, the journal keeps and the run file is made of.

Agents pass what they like, so everything is representable: text with lone surrogates (escaped by ASCII JSON), NaN,
Python objects, cycles. The C encoder does the common case; only what it refuses goes the slow way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from evalkit.model.codec import shallow
from evalkit.model.verdict import Verdict

_DEEPEST = 200
_LONGEST_REPR = 1000


def to_line(verdict: Verdict) -> str:
    """One line of ASCII JSON; `from_line` reads it back."""
    try:
        return _FAST.encode(verdict)
    except (ValueError, TypeError, RecursionError):  # NaN or a cycle; a key that is no string; nested too deep
        return _FAST.encode(plain(verdict))


def from_line(line: str) -> Verdict:
    """The verdict that `to_line` wrote."""
    return Verdict.from_json(json.loads(line))


def _one_level(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return shallow(value)
    if isinstance(value, Mapping):
        return dict(value)
    return _described(value)


_FAST = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_one_level)


def plain(value: Any, depth: int = 0, seen: tuple[int, ...] = ()) -> Any:
    """`value` as JSON data, whatever it is: NaN and infinities as text, objects by their repr, cycles cut."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if id(value) in seen or depth > _DEEPEST:
        return "…"
    inner = (*seen, id(value))
    if is_dataclass(value) and not isinstance(value, type):
        value = shallow(value)
    if isinstance(value, Mapping):
        return {_key(key): plain(item, depth + 1, inner) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1, inner) for item in value]
    return _described(value)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else _described(key)


def _described(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:  # an object of the agent; its repr may do anything
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= _LONGEST_REPR else text[:_LONGEST_REPR] + "…"
