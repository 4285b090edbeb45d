"""Snapshots: what is recorded or handed out is JSON data of its own, never an alias of somebody's object.

Data that already is JSON takes the short way: containers are copied, leaves are shared. Anything else takes the
long way, which converts what has one obvious JSON form and notices cycles.
"""

from __future__ import annotations

import math
from typing import Any

MAX_DEPTH = 100
_LEAVES = frozenset((str, int, bool, type(None)))

KeyPath = tuple[str | int, ...]


class NotJsonError(Exception):
    """A value has no obvious JSON form; the text says where and what it is."""


class _NeedsConversion(Exception):  # noqa: N818 - a signal, not an error
    pass


def copy_json(value: Any) -> Any:
    """A copy of JSON data that shares no container with it."""
    kind = type(value)
    if kind is dict:
        return {key: copy_json(item) if type(item) in (dict, list) else item for key, item in value.items()}
    if kind is list:
        return [copy_json(item) if type(item) in (dict, list) else item for item in value]
    return value


def to_json(value: Any) -> Any:
    """`value` as new JSON data, e.g. what a mock's callable returned. NotJsonError where there is no obvious form."""
    try:
        return _copy_plain_json(value, 0)
    except _NeedsConversion:
        from evalkit.functions.conversion import JsonConverter, raise_not_json

        return JsonConverter(raise_not_json).convert(value, ())


def to_recordable_json(value: Any) -> Any:
    """`value` as new JSON data, whatever it is: what has no JSON form becomes ``"<module.Class>"``.

    For arguments, which come from the agent and must be on record even when they are odd.
    """
    try:
        return _copy_plain_json(value, 0)
    except _NeedsConversion:
        from evalkit.functions.conversion import JsonConverter, build_type_label

        return JsonConverter(build_type_label).convert(value, ())


def _copy_plain_json(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _LEAVES or (kind is float and math.isfinite(value)):
        return value
    if depth > MAX_DEPTH:
        raise _NeedsConversion
    if kind is dict:
        copy = {}
        for key, item in value.items():
            if type(key) is not str:
                raise _NeedsConversion
            copy[key] = item if type(item) in _LEAVES else _copy_plain_json(item, depth + 1)
        return copy
    if kind is list:
        return [item if type(item) in _LEAVES else _copy_plain_json(item, depth + 1) for item in value]
    raise _NeedsConversion
