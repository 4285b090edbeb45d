"""Pieces of JSON Schema from which the schemas of keys are built."""

from __future__ import annotations

from collections.abc import Sequence

from evalkit.jsonvalue import JsonDict

BOOLEAN: JsonDict = {"type": "boolean"}
COUNT: JsonDict = {"type": "integer", "minimum": 0}
POSITIVE: JsonDict = {"type": "integer", "minimum": 1}
AMOUNT: JsonDict = {"type": "number", "minimum": 0}
SHARE: JsonDict = {"type": "number", "minimum": 0, "maximum": 1}
NAME: JsonDict = {"type": "string", "minLength": 1}
NO_TEXT: JsonDict = {"not": {"enum": ["yes", "no", "on", "off", "true", "false"]}}  # YAML 1.2: meant as booleans
NAME_LIST: JsonDict = {"type": "array", "items": NAME, "minItems": 1, "uniqueItems": True}
NAMES: JsonDict = {"oneOf": [NAME, NAME_LIST]}


def make_ref(name: str) -> JsonDict:
    """Refer to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def describe_choices(choices: Sequence[str]) -> JsonDict:
    """Describe one of `choices`, or a list of them."""
    return {"oneOf": [{"enum": list(choices)}, {"type": "array", "items": {"enum": list(choices)}, "minItems": 1}]}
