"""Convert records to plain JSON data and back. Records are `msgspec.Struct`s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.text.format import cut

VERSION = 2  # of run files, verdicts and transcripts

T = TypeVar("T")
_DEEPEST = 200
_LONGEST_REPR = 1000
_LONGEST_INT = 14_000  # bits; Python writes and reads no number of more than 4,300 digits


def always_written(default: T) -> T:
    """Return the default of a field that JSON always has: ``omit_defaults`` leaves out what is identical to a default.

    So None, ``""`` and empty collections are left out; zeros, False and words such as "ok" stand in every file.
    """
    value: T = msgspec.field(default_factory=lambda: default)
    return value


def has_fields(value: object) -> bool:
    """Return whether `value` is a record or an instance of a dataclass."""
    return isinstance(value, Struct) or (is_dataclass(value) and not isinstance(value, type))


def encode_fields(record: Any) -> JsonDict:
    """Return the fields of a record that are written, with their values unchanged.

    A class with ``omit_defaults=True`` leaves out the fields whose value and default are the same empty value: None,
    ``""`` or an empty collection. Zeros and False are always written.
    """
    if not isinstance(record, Struct):
        return {field.name: getattr(record, field.name) for field in fields(record)}
    return {
        name: value
        for name, omitted in _omitted_types(type(record))
        if (value := getattr(record, name)) or type(value) is not omitted
    }


@cache
def _omitted_types(cls: type[Struct]) -> tuple[tuple[str, type | None], ...]:
    """Return each field's name, and the type whose empty value is left out (None: the field is always written)."""
    omitted: list[tuple[str, type | None]] = []
    for info in msgspec.structs.fields(cls):
        factory = info.default_factory
        default = info.default if factory is msgspec.NODEFAULT else factory()
        is_empty = default is None or (isinstance(default, (str, tuple, list, dict)) and not default)
        omitted.append((info.name, type(default) if is_empty and cls.__struct_config__.omit_defaults else None))
    return tuple(omitted)


def to_plain_json(value: object, depth: int = 0, ancestors: tuple[int, ...] = ()) -> Any:
    """Return `value` as JSON data, whatever it is: NaN, infinities and endless numbers as text, objects by their repr,
    cycles cut."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _LONGEST_INT else f"<a number of {value.bit_length()} bits>"
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if id(value) in ancestors or depth > _DEEPEST:
        return "…"
    inner = (*ancestors, id(value))
    if has_fields(value):
        value = encode_fields(value)
    if isinstance(value, Mapping):
        return {
            (key if isinstance(key, str) else describe(key)): to_plain_json(item, depth + 1, inner)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [to_plain_json(item, depth + 1, inner) for item in value]
    return describe(value)


def describe(value: object) -> str:
    """Return text for a value that is no JSON data."""
    try:
        text = repr(value)
    except (Exception, SystemExit, GeneratorExit) as error:  # an object of the agent; its repr may do anything
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return cut(text, _LONGEST_REPR)


def decode(cls: type[T], data: JsonObject) -> T:
    """Rebuild the record that `to_plain_json` wrote. Unknown keys are ignored: files of newer versions load.

    Raises ValueError, with the path in the data, for a value of the wrong type.
    """
    try:
        return msgspec.convert(data, cls)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
