"""Snapshots: what is recorded or handed out is JSON data of its own, never an alias of somebody's object.

Data that already is JSON takes the short way: containers are copied, leaves are shared. Anything else takes the
long way, which converts what has one obvious JSON form and notices cycles.
"""

from __future__ import annotations

import math
from typing import Any

DEPTH = 100
_LEAVES = frozenset((str, int, bool, type(None)))

Path = tuple[str | int, ...]


class NotJsonError(Exception):
    """A value has no obvious JSON form; the text says where and what it is."""


class _LongWay(Exception):  # noqa: N818 - a signal, not an error
    pass


def copied(value: Any) -> Any:
    """A copy of JSON data that shares no container with it."""
    kind = type(value)
    if kind is dict:
        return {key: copied(item) if type(item) in (dict, list) else item for key, item in value.items()}
    if kind is list:
        return [copied(item) if type(item) in (dict, list) else item for item in value]
    return value


def as_json(value: Any) -> Any:
    """`value` as new JSON data, e.g. what a mock's callable returned. NotJsonError where there is no obvious form."""
    try:
        return _short(value, 0)
    except _LongWay:
        from evalkit.functions.conversion import Converter, refuse

        return Converter(refuse).convert(value, ())


def recorded(value: Any) -> Any:
    """`value` as new JSON data, whatever it is: what has no JSON form becomes ``"<module.Class>"``.

    For arguments, which come from the agent and must be on record even when they are odd.
    """
    try:
        return _short(value, 0)
    except _LongWay:
        from evalkit.functions.conversion import Converter, label

        return Converter(label).convert(value, ())


def _short(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _LEAVES or (kind is float and math.isfinite(value)):
        return value
    if depth > DEPTH:
        raise _LongWay
    if kind is dict:
        copy = {}
        for key, item in value.items():
            if type(key) is not str:
                raise _LongWay
            copy[key] = item if type(item) in _LEAVES else _short(item, depth + 1)
        return copy
    if kind is list:
        return [item if type(item) in _LEAVES else _short(item, depth + 1) for item in value]
    raise _LongWay
