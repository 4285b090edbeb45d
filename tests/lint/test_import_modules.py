"""Code under lint is never run, unless `--import` says so; then what it makes at import is seen too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXPLOSIVE = """\
raise RuntimeError("this code was run")
TOOLS = [{"name": "search", "description": "d", "input_schema": {"type": "object", "properties": {}}}]
"""
MADE_AT_IMPORT = """\
from functools import wraps
from typing import Any

NAMES = ["procedure", "rag"]
TOOLS = [
    {
        "name": "search_" + name,
        "description": "Searches.",
        "input_schema": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["query"],
        },
    }
    for name in NAMES
]


def procedure(query, limit=5): ...


def rag(query): ...


HANDLERS = {f"tool_search_{name}": globals()[name] for name in NAMES}
"""


@pytest.fixture(autouse=True)
def forgotten(tmp_path: Path) -> Iterator[None]:
    """Modules of one test's project are not those of the next."""
    before, path = set(sys.modules), [*sys.path]
    yield
    for name in set(sys.modules) - before:  # only the project's: a library dropped here would come back as a twin
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    assert sys.path == path


def test_no_code_of_the_project_is_run(project: Any) -> None:
    """Not the code under lint, nor conftest.py, nor what cases and instructions name."""
    files = {
        "agent_one.py": EXPLOSIVE,
        "conftest.py": EXPLOSIVE,
        "desk.md": "---\nname: desk\navailable_functions:\n  - {name: search, description: d, "
        "patch: 'agent_one:search'}\n---\nSearch.\n",
        "scenarios/suite.yaml": "agent: 'agent_one:search'\nfunctions: {search: {patch: 'agent_one:search'}}\n",
        "scenarios/desk_001.yaml": "input:\n  message: hello\n  mock_function_responses:\n"
        "    search: {$call: 'agent_one:answer'}\nexpected_output: {expected_function_calls: [search]}\n",
    }
    before = set(sys.modules)
    assert project.found(files) == []
    assert not {"agent_one", "conftest"} & (set(sys.modules) - before)


def test_with_import_a_module_that_fails_is_told_and_the_rest_is_linted(project: Any) -> None:
    assert project.found({"agent_two.py": EXPLOSIVE, "agent_three.py": EXPLOSIVE[40:]}, imports=True) == [
        "L602 importing agent_two raised RuntimeError: this code was run"
    ]


def test_what_is_made_at_import_is_seen_with_import_alone(project: Any) -> None:
    """Declarations from a comprehension, and a table from another."""
    assert project.found({"made.py": MADE_AT_IMPORT}) == []
    assert project.found(imports=True) == [
        "L203 'search_rag': 'limit' is declared, and rag() in made.py does not take it",
        "L302 declared as 'search_procedure', dispatched as 'tool_search_procedure' in made.py: "
        "the prefix 'tool_' differs",
        "L302 declared as 'search_rag', dispatched as 'tool_search_rag' in made.py: the prefix 'tool_' differs",
    ]


def test_declarations_of_google_genai_are_seen_with_import(project: Any) -> None:
    """Objects of the client library, made by a function that the syntax does not show."""
    pytest.importorskip("google.genai")
    code = """\
from google.genai import types


def declare(name):
    schema = types.Schema(type="OBJECT", properties={"tags": types.Schema(type="ARRAY")})
    return types.FunctionDeclaration(name=name, description=None, parameters=schema)


TOOL = types.Tool(function_declarations=[declare("search_all")])
"""
    assert project.found({"gem.py": code}) == []
    assert project.found(imports=True) == [
        "L104 'search_all' is declared without a description",
        "L107 'search_all': 'tags' is an array without 'items'",
    ]
