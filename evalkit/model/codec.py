"""Frozen dataclasses to plain JSON data and back, by their annotations; one codec for every record."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from evalkit.record import attributes_of, is_record

T = TypeVar("T")
_DEEPEST = 200
_LONGEST_REPR = 1000
_EMPTY = (type(None), str, tuple, list, dict)


def encode(value: Any) -> Any:
    """JSON data: dataclasses become mappings, tuples lists. Fields with a default of None or empty are left out when
    they are empty, except in classes that say `complete_json`: a reader of those need not know the defaults. What came
    from outside (`Any`) is left out only if it is the default: a result of ``{}`` is not no result."""
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if has_fields(value):
        return {name: encode(item) for name, item in shallow(value).items()}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    raise TypeError(f"{type(value).__name__} is not JSON data")


def has_fields(value: Any) -> bool:
    """Whether `value` is a record, or an instance of another dataclass."""
    return is_record(type(value)) or is_dataclass(type(value))


def shallow(record: Any) -> dict[str, Any]:
    """One level of `encode`: the fields of a dataclass that are written, their values as they are."""
    cls: Any = type(record)
    return {
        name: item for name, dropped in _fields(cls) if (item := getattr(record, name)) or item.__class__ not in dropped
    }


def plain(value: Any, depth: int = 0, seen: tuple[int, ...] = ()) -> Any:
    """`value` as JSON data, whatever it is: NaN and infinities as text, objects by their repr, cycles cut."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if id(value) in seen or depth > _DEEPEST:
        return "…"
    inner = (*seen, id(value))
    if has_fields(value):
        value = shallow(value)
    if isinstance(value, Mapping):
        return {_key(key): plain(item, depth + 1, inner) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1, inner) for item in value]
    return described(value)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else described(key)


def described(value: Any) -> str:
    """What is no JSON data, as text."""
    try:
        text = repr(value)
    except Exception as error:  # an object of the agent; its repr may do anything
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= _LONGEST_REPR else text[:_LONGEST_REPR] + "…"


@cache
def _fields(cls: type) -> tuple[tuple[str, tuple[type, ...]], ...]:
    """The name of each field, and the classes of empty values that are left out."""
    complete = getattr(cls, "complete_json", False)
    found: list[tuple[str, Any, Any, Any]]
    if is_record(cls):
        found = [(one.name, one.default, one.factory, one.hint) for one in attributes_of(cls)]
    else:
        found = [(one.name, one.default, one.default_factory, one.type) for one in fields(cls)]
    return tuple((name, () if complete else _left_out(*said)) for name, *said in found)


def _left_out(default: Any, factory: Any, hint: Any) -> tuple[type, ...]:
    default = {} if factory is dict else default
    if default is not None and default not in ("", (), {}):
        return ()
    return (type(default),) if hint == "Any" else _EMPTY


def decode(cls: type[T], data: Mapping[str, Any]) -> T:
    """The dataclass that `encode` made `data` of. Keys that it does not know are ignored: newer files load."""
    hashable: Any = cls
    decoders = _decoders(hashable)
    return cls(**{key: decoders[key](value) for key, value in data.items() if key in decoders})


@cache
def _decoders(cls: type) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(cls)
    return {f.name: _decoder(hints[f.name]) for f in fields(cls)}


def _decoder(hint: Any) -> Callable[[Any], Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = [_decoder(argument) for argument in arguments if argument is not type(None)]
        chosen = inner[0] if len(inner) == 1 else _same
        return lambda value: None if value is None else chosen(value)
    if origin is tuple:
        item = _decoder(arguments[0])
        return lambda value: tuple(item(element) for element in value)
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: decode(hint, value)
    return _same


def _same(value: Any) -> Any:
    return value
