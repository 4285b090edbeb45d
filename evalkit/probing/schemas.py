"""A value that a JSON Schema allows, for arguments of which a case says nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from evalkit.operators.text import Pattern
from evalkit.probing.examples import generate_texts

_BY_FORMAT = {
    "date": "2026-01-18",
    "date-time": "2026-01-18T10:00:00Z",
    "email": "customer@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_DEPTH = 5


def make_schema_example(schema: Any, depth: int = 0) -> Any:
    """What the schema's own words offer (`const`, `enum`, `default`, `examples`), else a small value of its type.

    Nothing is promised: whoever uses it asks the schema again.
    """
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return "x"
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return make_schema_example(schema[key][0], depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _make_of_kind(kind[0] if isinstance(kind, list) and kind else kind, schema, depth)


def _make_matching_text(schema: Mapping[str, Any]) -> str:
    """A text that matches the pattern and has the length; any text made from the pattern where none has both."""
    texts = list(generate_texts(schema["pattern"]))
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", sys.maxsize)
    fitting = (
        text
        for text in texts
        if shortest <= len(text) <= longest and Pattern("$search", schema["pattern"]).is_match(text)
    )
    return next(fitting, texts[0] if texts else "x")


def _make_of_kind(kind: Any, schema: Mapping[str, Any], depth: int) -> Any:
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: make_schema_example(properties.get(name), depth + 1) for name in schema.get("required") or ()}
    if kind == "array":
        return [make_schema_example(schema.get("items"), depth + 1) for _ in range(schema.get("minItems", 0))]
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("maximum", 1))
    if kind == "string" and isinstance(schema.get("pattern"), str):
        return _make_matching_text(schema)
    if kind == "string":
        text = _BY_FORMAT.get(str(schema.get("format")), "x")
        return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
    return {"boolean": True, "null": None}.get(str(kind), "x")
