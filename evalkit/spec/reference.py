"""The key tables of docs/case-format.md, written from the tables that the loader reads by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from evalkit.spec.agent_forms import COMMAND_KEYS, URL_KEYS, AgentKey
from evalkit.spec.keys import CASE_KEYS, FUNCTION_KEYS, INPUT_KEYS, SETTINGS_KEYS, TURN_KEYS

_MARKED = re.compile(r"(?s)(<!-- keys: (\w+) -->\n).*?(<!-- end -->)")
_TYPES = {
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


def fill_tables(page: str) -> str:
    """`page` with what stands between ``<!-- keys: NAME -->`` and ``<!-- end -->`` written anew."""
    return _MARKED.sub(lambda mark: f"{mark[1]}{_TABLES[mark[2]]}{mark[3]}", page)


def _format_table(rows: Mapping[str, tuple[Mapping[str, Any], str]]) -> str:
    lines = [f"| `{key}` | {_describe_form(schema)} | {doc} |" for key, (schema, doc) in rows.items()]
    return "\n".join(["| key | value | meaning |", "|---|---|---|", *lines]) + "\n"


def _get_rows(keys: Mapping[str, AgentKey]) -> dict[str, tuple[Mapping[str, Any], str]]:
    return {key: (row.schema, row.doc) for key, row in keys.items()}


def _describe_form(schema: Mapping[str, Any]) -> str:
    """What a schema asks for, in a few words."""
    if "oneOf" in schema:
        return ", or ".join(dict.fromkeys(_describe_form(part) for part in schema["oneOf"]))
    if "$ref" in schema:
        return "a list" if schema["$ref"].endswith("turns") else "a mapping"
    if "pattern" in schema and "d{4}" in schema["pattern"]:
        return "a date"
    types = schema.get("type", [])
    return " or ".join(_TYPES[name] for name in ([types] if isinstance(types, str) else types)) or "anything"


_TABLES = {
    "case": _format_table({key: (row.schema, row.doc) for key, row in CASE_KEYS.items()}),
    "input": _format_table({key: (row.schema, row.doc) for key, row in INPUT_KEYS.items()}),
    "turn": _format_table({key: (row.schema, row.doc) for key, row in TURN_KEYS.items()}),
    "settings": _format_table({key: (row.schema, row.doc) for key, row in SETTINGS_KEYS.items()}),
    "function": _format_table(FUNCTION_KEYS),
    "command": _format_table(_get_rows(COMMAND_KEYS)),
    "url": _format_table(_get_rows(URL_KEYS)),
}
