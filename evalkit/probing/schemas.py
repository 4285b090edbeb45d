"""A value that a JSON Schema allows, for arguments of which a case says nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from evalkit.operators.text import Pattern
from evalkit.probing.examples import texts_of

_BY_FORMAT = {
    "date": "2026-01-18",
    "date-time": "2026-01-18T10:00:00Z",
    "email": "customer@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_DEPTH = 5


def schema_example(schema: Any, depth: int = 0) -> Any:
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
            return schema_example(schema[key][0], depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _of_kind(kind[0] if isinstance(kind, list) and kind else kind, schema, depth)


def _matching(schema: Mapping[str, Any]) -> str:
    """A text that matches the pattern and has the length; any text made from the pattern where none has both."""
    made = list(texts_of(schema["pattern"]))
    least, most = schema.get("minLength", 0), schema.get("maxLength", sys.maxsize)
    fitting = (
        text for text in made if least <= len(text) <= most and Pattern("$search", schema["pattern"]).matches(text)
    )
    return next(fitting, made[0] if made else "x")


def _of_kind(kind: Any, schema: Mapping[str, Any], depth: int) -> Any:
    if kind == "object":
        known = schema.get("properties") or {}
        return {name: schema_example(known.get(name), depth + 1) for name in schema.get("required") or ()}
    if kind == "array":
        return [schema_example(schema.get("items"), depth + 1) for _ in range(schema.get("minItems", 0))]
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("maximum", 1))
    if kind == "string" and isinstance(schema.get("pattern"), str):
        return _matching(schema)
    if kind == "string":
        text = _BY_FORMAT.get(str(schema.get("format")), "x")
        return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
    return {"boolean": True, "null": None}.get(str(kind), "x")
