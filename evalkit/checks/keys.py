"""What the schemas of keys refer to as ``#/$defs/<name>``: values, calls, groups, and what features add."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evalkit.checks.call_keys import describe_call, list_call_keys, list_forbidden_keys, list_meant_keys
from evalkit.checks.expected_keys import list_expected_keys
from evalkit.checks.key_schemas import GROUP_KEYS, NAME, DemandKey, describe_keys, make_ref
from evalkit.hooks import load_all, name_errors
from evalkit.operators.base import DATA, LITERAL
from evalkit.operators.base import MODIFIERS as OPERATOR_MODIFIERS
from evalkit.operators.builtin import OPERATOR_TABLE


def describe_value(operators: Iterable[str] = ()) -> dict[str, Any]:
    """Describe an expected value: JSON, or an operator, one that is built in or one of `operators`."""
    value = make_ref("value")
    properties = {
        name: {"description": operator.doc, **({} if operator.operand_form == DATA else value)}
        for name, operator in OPERATOR_TABLE.items()
    }
    properties |= {f"${name}": {"description": "An operator of this project."} for name in operators}
    return {
        "description": "JSON, or an operator; `{$literal: ...}` is data whatever its keys.",
        "if": {"type": "object", "minProperties": 1, "propertyNames": {"pattern": r"^\$"}},
        "then": {"properties": properties, "propertyNames": {"enum": [*properties, LITERAL, *OPERATOR_MODIFIERS]}},
        "else": {"additionalProperties": value, "items": value},
    }


_DEFINITIONS: dict[str, dict[str, Any]] = {
    "phrases": {
        "oneOf": [NAME, {"type": "array", "items": NAME, "minItems": 1}],
        "description": "One phrase, or a list of phrases.",
    },
    "expected_group": {
        "type": "object",
        "properties": describe_keys(GROUP_KEYS),
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    },
    "expected_item": {"oneOf": [NAME, make_ref("expected_call"), make_ref("expected_group")]},
    "group": {"type": "array", "items": make_ref("expected_item"), "minItems": 1, "maxItems": 6},
    "alternatives": {
        "type": "array",
        "items": {
            "oneOf": [
                *[NAME, make_ref("expected_call"), make_ref("expected_group")],
                {"type": "array", "items": make_ref("expected_item")},
            ]
        },
        "minItems": 1,
        "maxItems": 6,
    },
}


def build_definitions(checks: Iterable[str] = ()) -> dict[str, Any]:
    """Build what the schemas of keys refer to. `checks` are names that a project registers."""
    keys: list[DemandKey] = [*list_call_keys().values(), *list_expected_keys().values()]
    own = (key.definitions for key in keys)
    of_features = []
    for feature in load_all():
        with name_errors(feature.name):
            of_features.append(feature.list_definitions(checks))
    return {
        "value": describe_value(),
        **_DEFINITIONS,
        **{name: schema for definitions in (*own, *of_features) for name, schema in definitions.items()},
        "expected_call": describe_call(list_call_keys()),
        "forbidden": {"oneOf": [NAME, describe_call(list_forbidden_keys(), "forbidden_doc")]},
        "meant_call": {"oneOf": [NAME, describe_call(list_meant_keys(), "meant_doc")]},
    }
