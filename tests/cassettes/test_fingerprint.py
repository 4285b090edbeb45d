"""What changed between two requests, path by path."""

from __future__ import annotations

from typing import Any

from evalkit.models.cassettes.fingerprint import compare_requests


def declared(properties: dict[str, Any]) -> dict[str, Any]:
    return {"functions": [{"name": "f", "parameters": {"properties": properties}}]}


def test_each_changed_path_of_a_declaration_is_named_with_both_values() -> None:
    was = declared({"a": {"type": "string"}, "b": {"enum": [1, 2, 3]}})
    now = declared({"a": {"type": "integer"}, "b": {"enum": [1, 4, 2, 3]}, "c": {"type": "null"}})
    assert compare_requests(was, now) == [
        "function 'f' is declared differently: "
        'parameters.properties.a.type was "string", is "integer"; '
        "parameters.properties.b.enum[1] was absent, is 4; "
        'parameters.properties.c was absent, is {"type": "null"}'
    ]
