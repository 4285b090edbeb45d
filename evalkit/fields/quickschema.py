"""Most declared schemas are simple, and most calls fit them: this says yes to those without jsonschema.

`compile_quick` understands the everyday part of JSON Schema 2020-12. What it builds answers True only for values that
are valid; False means "ask jsonschema", which then also words the message. Schemas with anything else in them
compile to None. A schema that compiles is itself well formed. Both claims are property-tested against jsonschema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Accepts = Callable[[Any], bool]

TYPES: dict[str, Accepts] = {
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
    "string": lambda value: type(value) is str,
    "boolean": lambda value: type(value) is bool,
    "null": lambda value: value is None,
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "number": lambda value: type(value) is int or type(value) is float,
}

_ANNOTATIONS: dict[str, type | tuple[type, ...]] = {
    "title": str,
    "description": str,
    "format": str,
    "default": object,
    "examples": list,
    "deprecated": bool,
}


class _Unknown(Exception):  # noqa: N818 - a signal, not an error
    """The schema needs jsonschema."""


def compile_quick(schema: Any) -> Accepts | None:
    """A function that is True for (nearly all) values that fit `schema`, or None if the schema is beyond it."""
    try:
        return _compile(schema)
    except _Unknown:
        return None


def _compile(schema: Any) -> Accepts:
    if not isinstance(schema, Mapping):
        raise _Unknown
    tests: list[Accepts] = []
    for key, argument in schema.items():
        if key in _ANNOTATIONS:
            if not isinstance(argument, _ANNOTATIONS[key]):
                raise _Unknown
        elif key not in _TOGETHER:
            compiler = _KEYWORDS.get(key)
            if compiler is None:
                raise _Unknown
            tests.append(compiler(argument))
    if not _TOGETHER.isdisjoint(schema):
        tests.append(_object(schema))
    return _all(tests)


def _all(tests: list[Accepts]) -> Accepts:
    if not tests:
        return lambda value: True
    if len(tests) == 1:
        return tests[0]
    if len(tests) == 2:
        first, second = tests
        return lambda value: first(value) and second(value)
    return lambda value: all(test(value) for test in tests)


def _type(names: Any) -> Accepts:
    if isinstance(names, str) and names in TYPES:
        return TYPES[names]
    if not isinstance(names, list) or not names or len({*map(str, names)}) < len(names):
        raise _Unknown
    if not all(isinstance(name, str) and name in TYPES for name in names):
        raise _Unknown
    options = [TYPES[name] for name in names]
    return lambda value: any(option(value) for option in options)


def _enum(values: Any) -> Accepts:
    if not isinstance(values, list) or not all(value is None or isinstance(value, (str, int)) for value in values):
        raise _Unknown
    known = frozenset((isinstance(value, bool), value) for value in values)
    # A float is left to jsonschema: it may equal one of the integers.
    return lambda value: type(value) in (str, int, bool, type(None)) and (type(value) is bool, value) in known


def _const(value: Any) -> Accepts:
    return _enum([value])


_TOGETHER = frozenset(("properties", "required", "additionalProperties"))


def _object(schema: Mapping[str, Any]) -> Accepts:
    """`properties`, `required` and `additionalProperties` speak of each other, so they are one test."""
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping) or not all(isinstance(name, str) for name in properties):
        raise _Unknown
    members = {name: _compile(part) for name, part in properties.items()}
    required = _names(schema.get("required", []))
    others = _others(schema.get("additionalProperties", True))

    def fits(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name in required:
            if name not in value:
                return False
        for name, item in value.items():
            test = members.get(name, others)
            if test is not None and not test(item):
                return False
        return True

    return fits


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _Unknown
    if len(set(value)) < len(value):
        raise _Unknown
    return tuple(value)


def _others(value: Any) -> Accepts | None:
    if isinstance(value, bool):
        return None if value else lambda item: False
    return _compile(value)


def _items(schema: Any) -> Accepts:
    member = _compile(schema)
    return lambda value: type(value) is list and all(member(item) for item in value)


def _any_of(schemas: Any) -> Accepts:
    if not isinstance(schemas, list) or not schemas:
        raise _Unknown
    options = [_compile(schema) for schema in schemas]
    return lambda value: any(option(value) for option in options)


def _bound(holds: Callable[[Any, Any], bool]) -> Callable[[Any], Accepts]:
    def compiler(limit: Any) -> Accepts:
        if type(limit) not in (int, float):
            raise _Unknown
        return lambda value: type(value) in (int, float) and holds(value, limit)

    return compiler


def _size(kind: type[str] | type[list[Any]], holds: Callable[[int, int], bool]) -> Callable[[Any], Accepts]:
    def compiler(limit: Any) -> Accepts:
        if type(limit) is not int or limit < 0:
            raise _Unknown
        return lambda value: type(value) is kind and holds(len(value), limit)

    return compiler


def _pattern(pattern: Any) -> Accepts:
    try:
        search = re.compile(pattern).search
    except (re.error, TypeError):
        raise _Unknown from None
    return lambda value: type(value) is str and search(value) is not None


_KEYWORDS: dict[str, Callable[[Any], Accepts]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "items": _items,
    "anyOf": _any_of,
    "pattern": _pattern,
    "minimum": _bound(lambda value, limit: value >= limit),
    "maximum": _bound(lambda value, limit: value <= limit),
    "exclusiveMinimum": _bound(lambda value, limit: value > limit),
    "exclusiveMaximum": _bound(lambda value, limit: value < limit),
    "minLength": _size(str, lambda length, limit: length >= limit),
    "maxLength": _size(str, lambda length, limit: length <= limit),
    "minItems": _size(list, lambda length, limit: length >= limit),
    "maxItems": _size(list, lambda length, limit: length <= limit),
}
