"""Operators that no value of a declared schema satisfies: the schema, written as operators too, contradicts them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.operators.compile import Mode, OperatorProblems, compile_value

_BOUNDS = {"minimum": "$ge", "maximum": "$le", "exclusiveMinimum": "$gt", "exclusiveMaximum": "$lt"}
_LENGTHS = {"minLength": "$ge", "maxLength": "$le", "minItems": "$ge", "maxItems": "$le"}


def explain_contradiction(value: Mapping[str, Any], schema: Any, mode: Mode) -> str:
    """Why no argument can satisfy both the operators `value` and the schema; "" where one may, or nobody can tell."""
    if not isinstance(schema, Mapping) or not _can_compile(value, mode):
        return ""  # what is wrong with the operators alone is told elsewhere
    for limit in _to_operators(schema):
        try:
            compile_value({"$all_of": [dict(value), limit]}, mode=mode)
        except OperatorProblems as found:
            return f"the declared schema rules it out: {found.problems[0].message}"
    return ""


def _can_compile(value: Mapping[str, Any], mode: Mode) -> bool:
    try:
        matcher = compile_value(dict(value), mode=mode)
        return not matcher.has_templates and not matcher.accepts_absence
    except OperatorProblems:
        return False


def _to_operators(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What the schema demands, one operator each, as far as there are operators for it."""
    kind, listed = schema.get("type"), schema.get("enum")
    if isinstance(kind, (str, list)) and kind:
        yield {"$type": kind}
    if "const" in schema:
        yield {"$eq": schema["const"]}
    if isinstance(listed, list) and listed:
        yield {"$one_of": [{"$eq": item} for item in listed]}
    for names, wrap in ((_BOUNDS, dict), (_LENGTHS, lambda limit: {"$len": limit})):
        limits = {operator: schema[key] for key, operator in names.items() if _is_number(schema.get(key))}
        if limits:
            yield wrap(limits)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
