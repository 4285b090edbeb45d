"""What the schemas of keys refer to as ``#/$defs/<name>``: values, calls, groups; and the keys of policies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evalkit.checks.call_keys import describe_call, list_call_keys, list_forbidden_keys, list_meant_keys
from evalkit.checks.expected_keys import list_expected_keys
from evalkit.checks.key_schemas import COUNT, GROUP_KEYS, NAME, NAMES, DemandKey, Key, describe_keys, make_ref
from evalkit.operators.base import DATA, LITERAL
from evalkit.operators.base import MODIFIERS as OPERATOR_MODIFIERS
from evalkit.operators.builtin import BUILTIN_OPERATORS

POLICY_KEYS: dict[str, Key] = {
    "description": Key({"type": "string"}, "What the policy is for; it stands in the report."),
    "never": Key(make_ref("policy_calls"), "These calls must not be made; attempts count."),
    "at_most": Key(COUNT, "At most so many of the calls under `calls`; attempts count."),
    "calls": Key(make_ref("policy_calls"), "The calls that `at_most` limits."),
    "must": Key(make_ref("policy_calls"), "One of these calls must be made, and succeed."),
    "before": Key(make_ref("policy_events"), "The policy holds up to the first of these; without one, to the end."),
    "until": Key(make_ref("policy_events"), "The same as `before`; it reads better behind `after`."),
    "after": Key(make_ref("policy_events"), "The policy holds after each of these; without it, from the beginning."),
    "for_each": Key(
        {"oneOf": [*NAMES["oneOf"], {"type": "object", "additionalProperties": NAMES, "minProperties": 1}]},
        "The policy holds for each value of this argument by itself; `{function: argument}` where names differ.",
    ),
}


def describe_value(operators: Iterable[str] = ()) -> dict[str, Any]:
    """Describe an expected value: JSON, or an operator, one that is built in or one of `operators`."""
    value = make_ref("value")
    properties = {
        name: {"description": operator.doc, **({} if operator.operand_form == DATA else value)}
        for name, operator in BUILTIN_OPERATORS.items()
    }
    properties |= {f"${name}": {"description": "An operator of this project."} for name in operators}
    return {
        "description": "JSON, or an operator; `{$literal: ...}` is data whatever its keys.",
        "if": {"type": "object", "minProperties": 1, "propertyNames": {"pattern": r"^\$"}},
        "then": {"properties": properties, "propertyNames": {"enum": [*properties, LITERAL, *OPERATOR_MODIFIERS]}},
        "else": {"additionalProperties": value, "items": value},
    }


_DEFINITIONS: dict[str, dict[str, Any]] = {
    "value": describe_value(),
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


def build_definitions() -> dict[str, Any]:
    """Build what the schemas of keys refer to."""
    keys: list[DemandKey] = [*list_call_keys().values(), *list_expected_keys().values()]
    own = (key.definitions for key in keys)
    return {
        **_DEFINITIONS,
        **{name: schema for definitions in own for name, schema in definitions.items()},
        "expected_call": describe_call(list_call_keys()),
        "forbidden": {"oneOf": [NAME, describe_call(list_forbidden_keys(), "forbidden_doc")]},
        "meant_call": {"oneOf": [NAME, describe_call(list_meant_keys(), "meant_doc")]},
    }


def _describe_one_or_more(name: str) -> dict[str, Any]:
    return {"anyOf": [make_ref(name), {"type": "array", "items": make_ref(name), "minItems": 1}]}


# What the schema of policies.yaml refers to, beside the definitions of keys.
POLICY_DEFINITIONS: dict[str, dict[str, Any]] = {
    "policy_calls": _describe_one_or_more("meant_call"),
    "policy_event": {
        "oneOf": [
            make_ref("meant_call"),
            {
                "type": "object",
                "properties": {"user": {**make_ref("value"), "description": "A message of the user that is so."}},
                "required": ["user"],
                "additionalProperties": False,
            },
        ]
    },
    "policy_events": _describe_one_or_more("policy_event"),
}
