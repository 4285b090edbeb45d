"""JSON equality: `true` is not `1`, `"5"` is not `5`, `5` is `5.0`, null is not missing, lists are ordered.

Only JSON values are equal to anything. A tuple, bytes, a set, a mapping with a key that is not a string and any
other Python object differ from everything, themselves included. Two exceptions, so that a value that went through a
run unchanged equals itself: NaN equals NaN, and cyclic values are equal when they unfold alike.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

STRING, NUMBER, BOOLEAN, NULL, ARRAY, OBJECT = "string", "number", "boolean", "null", "array", "object"
KINDS = frozenset({STRING, NUMBER, BOOLEAN, NULL, ARRAY, OBJECT})

_KIND_BY_TYPE = {str: STRING, int: NUMBER, float: NUMBER, bool: BOOLEAN, type(None): NULL, list: ARRAY, dict: OBJECT}
_MAX_RECURSION = 60  # how deep plain recursion goes before the explicit stack takes over
_MISSING = object()


class _TooDeepError(Exception):
    pass


def get_kind(value: Any) -> str:
    """The JSON type of `value` (`string`, `number`, `boolean`, `null`, `array`, `object`), or "" if it has none.

    Subclasses count as their base (an IntEnum is a number); the type decides, not what the object says of itself.
    """
    exact_kind = _KIND_BY_TYPE.get(type(value))
    if exact_kind is not None:
        return exact_kind
    for base in (str, int, float, list, dict):
        if issubclass(type(value), base):
            return _KIND_BY_TYPE[base]
    return ""


def is_json_equal(a: Any, b: Any) -> bool:
    """Whether `a` and `b` are the same JSON value. Never raises, whatever the values are."""
    try:
        return _is_equal(a, b, _MAX_RECURSION)
    except _TooDeepError:
        pass
    except Exception:  # a dict or key subclass that raises: not JSON
        return False
    try:
        return _is_equal_by_stack(a, b)
    except Exception:
        return False


def _is_equal(a: Any, b: Any, depth: int) -> bool:
    # The hot path of judging: exact types first, loops instead of generators.
    of_type = type(a)
    if of_type is not type(b) or of_type not in _KIND_BY_TYPE:
        return _is_equal_across_types(a, b, depth)
    if of_type is dict:
        if not depth:
            raise _TooDeepError
        if len(a) != len(b):
            return False
        for key, value in a.items():
            if type(key) is not str and get_kind(key) != STRING:
                return False
            if not _is_equal(value, b.get(key, _MISSING), depth - 1):
                return False
        return True
    if of_type is list:
        if not depth:
            raise _TooDeepError
        if len(a) != len(b):
            return False
        for x, y in zip(a, b, strict=True):  # noqa: SIM110 - twice as fast as all(...)
            if not _is_equal(x, y, depth - 1):
                return False
        return True
    return bool(a == b or (a != a and b != b))


def _is_equal_across_types(a: Any, b: Any, depth: int) -> bool:
    """As `_equal`, for values of different Python types: 5 and 5.0, or subclasses of JSON's types."""
    of_kind = get_kind(a)
    if not of_kind or of_kind != get_kind(b):
        return False
    if of_kind == NUMBER:
        return bool(a == b or (a != a and b != b))
    if of_kind == STRING:
        return str.__eq__(a, b)
    if of_kind == OBJECT:
        return _is_equal(dict(dict.items(a)), dict(dict.items(b)), depth)
    return _is_equal(list(list.__iter__(a)), list(list.__iter__(b)), depth)


def _is_equal_by_stack(a: Any, b: Any) -> bool:
    """As `_equal`, for values nested so deep (or in themselves) that recursion would end in an error."""
    pairs = [(a, b)]
    compared_ids: set[tuple[int, int]] = set()
    while pairs:
        x, y = pairs.pop()
        x_kind = get_kind(x)
        if not x_kind or x_kind != get_kind(y):
            return False
        if x_kind not in (ARRAY, OBJECT):
            if not _is_equal(x, y, 0):
                return False
            continue
        if (id(x), id(y)) in compared_ids:
            continue
        compared_ids.add((id(x), id(y)))
        if len(x) != len(y):
            return False
        if x_kind == ARRAY:
            pairs.extend(zip(x, y, strict=True))
        elif all(get_kind(key) == STRING for key in x):
            pairs.extend((value, dict.get(y, key, _MISSING)) for key, value in dict.items(x))
        else:
            return False
    return True


def to_hashable(value: Any) -> Hashable:
    """A hashable that is equal for two values exactly when `json_equal` says so; None if `value` is not JSON.

    Cyclic values, and those nested deeper than recursion reaches, count as not JSON.
    """
    try:
        return _to_hashable(value)
    except Exception:  # not JSON, too deep, or a subclass that raises
        return None


def _to_hashable(value: Any) -> Hashable:
    of_kind = get_kind(value)
    if of_kind == OBJECT:
        if not all(get_kind(key) == STRING for key in value):
            raise TypeError
        return (OBJECT, frozenset((key, _to_hashable(item)) for key, item in dict.items(value)))
    if of_kind == ARRAY:
        return (ARRAY, tuple(_to_hashable(item) for item in value))
    if of_kind == NUMBER and value != value:
        return (NUMBER, "NaN")
    if not of_kind:
        raise TypeError
    return (of_kind, value)
