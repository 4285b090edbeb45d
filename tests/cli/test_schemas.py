"""The schemas of the files beside cases: they accept ours, and refuse what the loaders refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from evalkit.agents.instruction import FRONTMATTER_KEYS
from evalkit.cli.schemas import build_cassette_schema, build_instruction_schema
from evalkit.models.cassettes.model import CASSETTE_KEYS, parse_cassette
from evalkit.models.providers.turns import STREAM_TURN_KEYS, TURN_KEYS
from evalkit.yamlfile.parse import load

ROOT = Path(__file__).parents[2]
CASSETTE_SCHEMA, INSTRUCTION_SCHEMA = build_cassette_schema(), build_instruction_schema()
CASSETTE = jsonschema.Draft202012Validator(CASSETTE_SCHEMA)
INSTRUCTION = jsonschema.Draft202012Validator(INSTRUCTION_SCHEMA)
CASSETTES = sorted((ROOT / "mocks" / "cassettes").rglob("*.yaml"))
INSTRUCTIONS = [file for file in sorted((ROOT / "scenarios").rglob("*.md")) if file.read_text("utf-8")[:4] == "---\n"]


def test_the_schemas_are_schemas() -> None:
    for validator in (CASSETTE, INSTRUCTION):
        jsonschema.Draft202012Validator.check_schema(validator.schema)
    assert len(CASSETTES) > 100
    assert len(INSTRUCTIONS) > 5


@pytest.mark.parametrize("file", CASSETTES, ids=lambda file: file.stem)
def test_no_cassette_of_ours_is_red(file: Path) -> None:
    assert [error.message for error in CASSETTE.iter_errors(load(file.read_bytes(), file.name))] == []


@pytest.mark.parametrize("file", INSTRUCTIONS, ids=lambda file: file.stem)
def test_no_instruction_of_ours_is_red(file: Path) -> None:
    frontmatter = file.read_text("utf-8").split("\n---\n", 1)[0].removeprefix("---\n")
    assert [error.message for error in INSTRUCTION.iter_errors(load(frontmatter, file.name))] == []


TURNS: list[tuple[Any, bool]] = [
    ({"turns": ["hi"]}, True),
    ({"turns": [{"text": ""}]}, True),
    ({"turns": [{"calls": ["ping", {"check": {"n": 1}}, {"name": "send", "arguments": "{}", "id": "c1"}]}]}, True),
    ({"turns": [{"calls": [{"name": {"n": 1}}]}]}, True),  # a function called `name`
    ({"turns": [{"stream": {"text": ["a", "b"]}, "duration_ms": 5}]}, True),
    ({"turns": []}, False),
    ({}, False),
    ({"turns": [{}]}, False),
    ({"turns": [{"txt": "a"}]}, False),
    ({"turns": [{"calls": {"check": {}}}]}, False),
    ({"turns": [{"calls": [{"check": {}, "send": {}}]}]}, False),
    ({"turns": [{"calls": [{"name": "f", "args": {}}]}]}, False),
    ({"turns": [{"text": "a", "usage": {"input": 5}}]}, False),
    ({"turns": [{"text": "a", "finish_reason": "done"}]}, False),
    ({"turns": [{"stream": {"openal": [1]}}]}, False),
    ({"evalkit_cassette": 2, "turns": ["a"]}, False),
]


@pytest.mark.parametrize(("data", "is_valid"), TURNS)
def test_a_cassette_is_red_where_the_loader_refuses_it(data: Any, is_valid: bool) -> None:
    assert CASSETTE.is_valid(data) is is_valid
    if "name" not in str(data).replace("'name': 'send'", ""):
        assert (parse_cassette(data)[1] == []) is is_valid


@pytest.mark.parametrize(
    "data", [{}, {"name": ""}, {"name": "x", "tools": []}, {"name": "x", "available_functions": [{"descr": "y"}]}]
)
def test_what_no_frontmatter_may_say_is_red(data: Any) -> None:
    assert not INSTRUCTION.is_valid(data)


def test_every_key_is_described() -> None:
    properties = {**CASSETTE_SCHEMA["properties"], **CASSETTE_SCHEMA["$defs"]["turn"]["properties"]}
    assert set(properties) == {*CASSETTE_KEYS, *TURN_KEYS, *STREAM_TURN_KEYS, "request"}
    assert all(schema["description"].endswith(".") for schema in properties.values())
    assert set(INSTRUCTION_SCHEMA["properties"]) == set(FRONTMATTER_KEYS)
