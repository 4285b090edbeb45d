"""Walking a JSON Schema, and what the services refuse in one.

Sources: google-genai 3.4 (`types.Schema` forbids unknown fields), Gemini's "Function calling" page (names), OpenAI's
"Function calling" and "Structured outputs" pages (names, root, arrays, strict mode).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from evalkit.lint.facts.records import (
    ANTHROPIC,
    GEMINI,
    GEMINI_SCHEMA,
    INSTRUCTION,
    OPENAI,
    PLAIN,
    SUITE,
    DataPath,
    DeclaredFunction,
)
from evalkit.lint.finding import Finding

_GEMINI_FIELDS_WORDS = """additionalProperties any_of anyOf default defs description enum example format items
    maxItems maxLength maxProperties maximum minItems minLength minProperties minimum nullable
    pattern properties propertyOrdering ref required title type"""
_GEMINI_FIELDS = frozenset(_GEMINI_FIELDS_WORDS.split())
_GEMINI_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_OPENAI_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OPENAI_ROOT = ("anyOf", "oneOf", "allOf", "enum", "not")
_OPENAI_STRICT_WORDS = """allOf oneOf not dependentRequired dependentSchemas if then else patternProperties
    propertyNames minProperties maxProperties unevaluatedProperties unevaluatedItems contains
    minContains maxContains uniqueItems default"""
_OPENAI_STRICT = frozenset(_OPENAI_STRICT_WORDS.split())
_INSTEAD = {
    "oneOf": "write anyOf",
    "allOf": "write the parts as one schema",
    "const": "write an enum of one",
    "$ref": "write the schema where it is used",
    "$defs": "write the schemas where they are used",
    "exclusiveMinimum": "write minimum",
    "exclusiveMaximum": "write maximum",
    "examples": "write example, or put them into the description",
    "not": "say it in the description",
}
JSON_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_NEUTRAL = (INSTRUCTION, SUITE, PLAIN)
_NAMED = ("properties", "$defs", "definitions", "patternProperties")
_NESTED = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")


def walk_schema(schema: Any, path: DataPath = ()) -> Iterator[tuple[Mapping[str, Any], DataPath]]:
    """The schema and every schema inside it, with their paths."""
    if not isinstance(schema, Mapping):
        return
    yield schema, path
    for key in _NAMED:
        named = schema.get(key)
        for name, item in named.items() if isinstance(named, Mapping) else ():
            yield from walk_schema(item, (*path, key, name))
    for key in _NESTED:
        yield from walk_schema(schema.get(key), (*path, key))
    for key in _LISTED:
        inner = schema.get(key)
        for index, item in enumerate(inner if isinstance(inner, list) else ()):
            yield from walk_schema(item, (*path, key, index))


def check_service_limits(function: DeclaredFunction, providers: tuple[str, ...] | None) -> Iterator[Finding]:
    """What the services that the declaration is for refuse; `providers` are those that the project says."""
    services: tuple[str, ...] = ()
    if function.form in _NEUTRAL:
        both = () if function.form == PLAIN else ("gemini", "openai")  # a plain dictionary may be for anybody
        services = both if providers is None else providers
    if function.form in (GEMINI, GEMINI_SCHEMA) or "gemini" in services:
        yield from _check_gemini(function)
    if function.form == OPENAI or "openai" in services:
        yield from _check_openai(function)


def _make_finding(name: str, function: DeclaredFunction, path: DataPath, message: str, advice: str) -> Finding:
    return Finding(name=name, location=function.locate(path), message=f"'{function.name}': {message}", advice=advice)


def _check_gemini(function: DeclaredFunction) -> Iterator[Finding]:
    rule = "gemini-rejects"
    if not _GEMINI_NAME.fullmatch(function.name):
        advice = "a letter or _ first, then letters, digits, _ . : -, at most 128"
        yield _make_finding(rule, function, ("name",), "Gemini refuses this name", advice)
    if function.form != GEMINI_SCHEMA:
        return
    for schema, path in walk_schema(function.parameters):
        at = ("parameters", *path)
        for key in schema:
            if key not in _GEMINI_FIELDS:
                advice = _INSTEAD.get(key, "leave it out") + ", or declare with parameters_json_schema"
                yield _make_finding(rule, function, (*at, key), f"Gemini's Schema has no '{key}'", advice)
        if isinstance(schema.get("type"), list):
            advice = "write one type and nullable: true, or declare with parameters_json_schema"
            yield _make_finding(rule, function, (*at, "type"), "Gemini's Schema takes no list of types", advice)
        values = schema.get("enum")
        if isinstance(values, list) and not all(isinstance(value, str) for value in values):
            advice = "write the values as text, or declare with parameters_json_schema"
            yield _make_finding(
                rule, function, (*at, "enum"), "Gemini's Schema takes texts alone as enum values", advice
            )
        if schema.get("type") == "array" and "items" not in schema:
            yield _make_finding(
                rule, function, at, f"{_describe_schema(path)} is an array without 'items'", "say what its items are"
            )


def _check_openai(function: DeclaredFunction) -> Iterator[Finding]:
    rule = "openai-rejects"
    if not _OPENAI_NAME.fullmatch(function.name):
        advice = "letters, digits, _ and -, at most 64; or set providers in [tool.evalkit.lint]"
        yield _make_finding(rule, function, ("name",), "OpenAI refuses this name", advice)
    root = function.parameters
    if not isinstance(root, Mapping):
        return
    kind = root.get("type")
    is_other = kind is None or (kind in JSON_TYPES and kind != "object")  # what is no type at all is told elsewhere
    if root and is_other and "$ref" not in root:
        advice = "write type: object"
        yield _make_finding(rule, function, ("parameters",), "OpenAI wants parameters of type 'object'", advice)
    for key in _OPENAI_ROOT:
        if key in root:
            advice = "say in the description which parameters go together"
            yield _make_finding(rule, function, ("parameters", key), f"OpenAI refuses '{key}' at the root", advice)
    for schema, path in walk_schema(root):
        at = ("parameters", *path)
        if schema.get("type") == "array" and not {"items", "prefixItems"} & schema.keys():
            yield _make_finding(
                rule, function, at, f"{_describe_schema(path)} is an array without 'items'", "say what its items are"
            )
        if function.strict:
            yield from _check_strict(function, schema, at)


def _check_strict(function: DeclaredFunction, schema: Mapping[str, Any], at: DataPath) -> Iterator[Finding]:
    rule = "openai-rejects"
    for key in sorted(_OPENAI_STRICT & schema.keys()):
        if at == ("parameters",) and key in _OPENAI_ROOT:
            continue  # said already
        yield _make_finding(rule, function, (*at, key), f"strict mode refuses '{key}'", "leave it out, or drop strict")
    if schema.get("type") != "object" and "properties" not in schema:
        return
    if schema.get("additionalProperties") is not False:
        advice = "add it, or drop strict"
        yield _make_finding(
            rule, function, at, f"strict mode wants 'additionalProperties: false' in {_describe_schema(at[1:])}", advice
        )
    properties, required = schema.get("properties"), schema.get("required")
    missing = (
        [name for name in properties or () if name not in (required or ())] if isinstance(properties, Mapping) else []
    )
    if missing:
        message = f"strict mode wants every parameter in 'required'; {_join_names(missing)} not"
        advice = "list it and let it be null (type: [string, 'null']), or drop strict"
        yield _make_finding(rule, function, at, message, advice)


def _join_names(names: list[str]) -> str:
    return f"{', '.join(repr(name) for name in names)} {'is' if len(names) == 1 else 'are'}"


def _describe_schema(path: DataPath) -> str:
    """A schema in words: ``'tags'``, or the parameters themselves."""
    names = [step for before, step in pairwise(path) if before in ("properties", "$defs")]
    return f"'{'.'.join(map(str, names))}'" if names else "the parameters"


def is_service_form(function: DeclaredFunction) -> bool:
    """Whether the declaration is one that a service is given, so that calls come natively."""
    return function.form in (GEMINI, GEMINI_SCHEMA, OPENAI, ANTHROPIC)
