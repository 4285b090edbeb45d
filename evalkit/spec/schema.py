"""The JSON Schema of a case file, for editors, written from the tables that the loader reads by.

It is looser than the loader: what depends on other keys, on suites or on registered code is left to `load_case`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evalkit.checks.keys import DEFINITIONS, EXPECTED_KEYS
from evalkit.functions.directives import DIRECTIVES
from evalkit.spec.agent_forms import COMMAND_KEYS, URL_KEYS, schema_of
from evalkit.spec.keys import CASE_KEYS, FUNCTION_KEYS, INPUT_KEYS, INPUTS, SETTINGS_KEYS, TURN_KEYS, Row

SCHEMA_FILE = Path(__file__).with_name("case.schema.json")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def case_schema(checks: Iterable[str] = ()) -> dict[str, Any]:
    """The schema of a case file. `checks` are names that a project registers with ``@evalkit.check``."""
    expected = {key: {**row.schema, "description": row.doc} for key, row in EXPECTED_KEYS.items()}
    expected |= {name: {"description": "A check of this project."} for name in checks}
    return {
        "$schema": _DIALECT,
        "title": "evalkit case",
        "description": "One case of an evalkit suite: what the agent gets, what its functions answer, what must hold.",
        **_object(_described(CASE_KEYS), never_null={"input"}),
        "required": ["input"],
        "$defs": {
            **DEFINITIONS,
            "agent": {"oneOf": [schema_of(COMMAND_KEYS), schema_of(URL_KEYS)]},
            "input": {
                **_object(_described(INPUT_KEYS), never_null=set(INPUTS)),
                "oneOf": [{"required": [key]} for key in INPUTS],
                "not": {"required": ["mock_responses", "mock_function_responses"]},
            },
            "turn": {
                "oneOf": [
                    {"type": "string"},
                    {**_object(_described(TURN_KEYS), never_null=set(TURN_KEYS)), "required": ["user"]},
                ]
            },
            "settings": _object(_described(SETTINGS_KEYS)),
            "expected_output": {**_object(expected), "minProperties": 1},
            "on_fault": {
                "type": "object",
                "properties": {key: {"$ref": f"#/$defs/expected_output/properties/{key}"} for key in expected},
                "additionalProperties": {"anyOf": [{"$ref": "#/$defs/expected_output"}, {"type": "null"}]},
            },
            "mocks": {"type": "object", "additionalProperties": {"$ref": "#/$defs/answer"}},
            "answer": _answer(),
            "functions": _functions(),
        },
    }


def _described(table: Mapping[str, Row]) -> dict[str, Any]:
    return {key: {**row.schema, "description": row.doc} for key, row in table.items()}


def _object(properties: dict[str, Any], never_null: Iterable[str] = ()) -> dict[str, Any]:
    """An object of these keys and no others. Null is allowed where it can remove what a suite says."""
    return {
        "type": "object",
        "properties": {key: schema if key in never_null else _nullable(schema) for key, schema in properties.items()},
        "additionalProperties": False,
    }


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in schema.items() if key != "description"}
    return {"description": schema["description"], "anyOf": [rest, {"type": "null"}]} if rest else schema


def _answer() -> dict[str, Any]:
    """What a function answers: any JSON, but no `$` key that is not a directive."""
    names = "|".join(name.removeprefix("$") for name in DIRECTIVES)
    return {
        "description": "JSON that is returned each time, or a directive.",
        "propertyNames": {"pattern": rf"^(?:[^$]|\$(?:{names})$|$)"},
        "properties": {
            "$sequence": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/answer"}},
            "$then": {"enum": ["error", "repeat_last", "cycle"]},
            "$match": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["when"]}},
            "$default": {"$ref": "#/$defs/answer"},
            "$return": {"$ref": "#/$defs/answer"},
            "$error": {"type": ["string", "object", "null"]},
            "$delay_ms": {"type": "number", "minimum": 0},
            "$call": {"type": "string", "pattern": ":"},
            "$include": {"type": "string", "minLength": 1},
            "$real": {"const": True},
        },
    }


def _functions() -> dict[str, Any]:
    properties = {key: {**schema, "description": doc} for key, (schema, doc) in FUNCTION_KEYS.items()}
    named = {"name": {"type": "string", "minLength": 1, "description": "The function's name."}, **properties}
    entry = {**_object(properties), "type": ["object", "null"]}
    listed = {"type": "array", "items": {**_object(named), "required": ["name"]}}
    return {"oneOf": [{"type": "object", "additionalProperties": entry}, listed]}


def schema_text(schema: Mapping[str, Any]) -> str:
    """`schema` as the shipped file has it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def ship() -> None:
    """Write the file that comes with the package."""
    SCHEMA_FILE.write_text(schema_text(case_schema()), encoding="utf-8")
