"""The tables of keys are the keys: the reader, the editor's schema and the documentation know the same ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from evalkit.checks.call_key import CallKey
from evalkit.checks.call_keys import list_call_keys, list_forbidden_keys
from evalkit.checks.compile import compile_expectation
from evalkit.checks.expected_key import ExpectedKey
from evalkit.checks.expected_keys import list_expected_keys
from evalkit.checks.key_schemas import GROUP_KEYS, DescribedKey, describe_keys
from evalkit.checks.keys import build_definitions
from evalkit.hooks import EXPECTED
from evalkit.hooks.key_table import KeyTable
from evalkit.operators.base import Operator
from evalkit.operators.builtin import OPERATOR_TABLE
from evalkit.records.transcript import FunctionCall, Transcript
from evalkit.yamlfile.parse import load

DOCUMENT = Path(__file__).parents[2] / "docs" / "expectations.md"
MODIFIERS = {name for name, key in list_expected_keys().items() if key.is_modifier}
TABLES: dict[str, Mapping[str, DescribedKey]] = {
    "expected": list_expected_keys(),
    "call": list_call_keys(),
    "group": GROUP_KEYS,
    "forbidden": list_forbidden_keys(),
}


def collect_examples() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first value on the page of each key of `expected_output`, and of each key of a call."""
    expected: dict[str, Any] = {}
    of_calls: dict[str, Any] = {}

    def collect(value: Any) -> None:
        if isinstance(value, dict) and "function_name" in value:
            of_calls.update({key: item for key, item in value.items() if key not in of_calls})
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            collect(part)

    for block in re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL):
        data = load(block, "docs/expectations.md")
        data = data.get("expected_output", data)
        expected.update({key: value for key, value in data.items() if key not in expected})
        collect(data)
    return expected, of_calls


VALUES, CALL_VALUES = collect_examples()
GROUP_VALUES: dict[str, Any] = {
    "in_order": ["a"],
    "any_order": [{"function_name": "a"}],
    "one_of": [["a", "b"], "c"],
    "in_parallel": ["a", "b"],
}


def problems(expected: Any) -> list[str]:
    return [problem.message for problem in compile_expectation(expected)[1]]


def schema() -> Draft202012Validator:
    return Draft202012Validator(
        {
            "type": "object",
            "properties": describe_keys(list_expected_keys()),
            "additionalProperties": False,
            "$defs": build_definitions(),
        }
    )


TABLES_OF_MODULES = [
    (list_expected_keys(), ExpectedKey),
    (list_call_keys(), CallKey),
    (OPERATOR_TABLE, Operator),
]


@pytest.mark.parametrize(("table", "kind"), TABLES_OF_MODULES, ids=["run", "call", "value"])
def test_each_key_of_a_module_has_a_row_in_its_table(table: Any, kind: Any) -> None:
    """A key without a row is never found, and says nothing."""
    for module in set(table.own.values()):
        keys = {key.name for key in import_module(module).KEYS if isinstance(key, kind)}
        assert keys == {name for name, place in table.own.items() if place == module}, module


def test_a_row_without_a_key_says_where_the_key_belongs() -> None:
    table: KeyTable[Any] = KeyTable({"max_pages": "evalkit.checks.budgets"}, EXPECTED)
    with pytest.raises(LookupError, match=r"'max_pages' has a row .* no key in KEYS of evalkit.checks.budgets; add it"):
        table.find("max_pages")


def test_there_is_an_example_of_every_key() -> None:
    """Those of a run and of a call are on the page; a key without one needs an example there."""
    assert list_expected_keys().keys() - VALUES == set()
    assert list_call_keys().keys() - CALL_VALUES == set()
    assert GROUP_VALUES.keys() == GROUP_KEYS.keys()


def test_each_key_has_tests() -> None:
    """Of those that walk the tables none knows what a key means."""
    files = [file for file in Path(__file__).parents[1].rglob("test_*.py") if not file.stem.endswith("keys")]
    words = {word for file in files for word in re.findall(r"\w+", file.read_text("utf-8"))}
    assert list_expected_keys().keys() | list_call_keys().keys() <= words, "add a test to tests/checks"


@pytest.mark.parametrize("key", list_expected_keys())
def test_a_key_is_read_and_is_valid_in_the_editor(key: str) -> None:
    alone = {key: VALUES[key], **({"max_function_calls": 9} if key in MODIFIERS else {})}
    if key == "final_function_call":
        alone["expected_function_calls"] = ["a"]
    assert problems(alone) == []
    assert list(schema().iter_errors(alone)) == []


@pytest.mark.parametrize("key", sorted(list_expected_keys().keys() - MODIFIERS))
def test_a_key_speaks_of_itself_and_of_its_place_in_a_user_turn_too(key: str) -> None:
    """There the path to it is longer."""
    place = ("input", "turns", 1, "expected_output")
    expectation, found = compile_expectation({key: VALUES[key]}, path=place)
    assert found == []
    judgement = expectation.judge(Transcript(calls=(FunctionCall(name="z", arguments={"a": 1}),), response="b y"))
    assert key in [result.check for result in judgement.checks]
    for reason in judgement.reasons:
        assert reason.place.startswith(f"input.turns[1].expected_output.{key}")


@pytest.mark.parametrize("key", list_call_keys())
def test_a_key_of_a_call_is_read_and_is_valid_in_the_editor(key: str) -> None:
    expected = {"expected_function_calls": [{"function_name": "f", key: CALL_VALUES[key]}]}
    assert problems(expected) == []
    assert list(schema().iter_errors(expected)) == []


@pytest.mark.parametrize("key", GROUP_KEYS)
def test_a_group_is_read_and_is_valid_in_the_editor(key: str) -> None:
    expected = {"expected_function_calls": [{key: GROUP_VALUES[key]}]}
    assert problems(expected) == []
    assert list(schema().iter_errors(expected)) == []


@pytest.mark.parametrize("key", list_forbidden_keys())
def test_a_key_of_a_forbidden_call_is_read_and_is_valid_in_the_editor(key: str) -> None:
    expected = {"forbidden_function_calls": [{"function_name": "f", key: CALL_VALUES[key], "body_contains": "x"}]}
    assert problems(expected) == []
    assert list(schema().iter_errors(expected)) == []


WRONG: list[dict[str, Any]] = [
    {"respnse_contains": "x"},
    {"max_tokens": "5"},
    {"max_tokens": -1},
    {"response_contains": ""},
    {"response_contains": []},
    {"response_contains": [5]},
    {"email_sent": "no"},
    {"call_order": "ordered"},
    {"expected_function_calls": "a"},
    {"expected_function_calls": [{"args": {}}]},
    {"expected_function_calls": [{"function_name": "a", "argument_contain": {}}]},
    {"expected_function_calls": [{"function_name": "a", "arguments_contains": "x"}]},
    {"expected_function_calls": [{"function_name": "a", "result_excludes": "x"}]},
    {"expected_function_calls": [{"function_name": "a", "body_contains": {"x": 1}}]},
    {"expected_function_calls": [{"function_name": "a", "times": 0}]},
    {"expected_function_calls": [{"function_name": "a", "outcome": "okay"}]},
    {"expected_function_calls": [{"any_order": list("abcdefg")}]},
    {"expected_function_calls": [{"in_order": ["a"], "optional": True}]},
    {"forbidden_function_calls": [{"function_name": "a", "outcome": "ok"}]},
    {"expected_function_calls": ["a"], "min_score": 2},
    {"response_json": True},
    {"grounded": []},
]


@pytest.mark.parametrize("expected", WRONG)
def test_what_is_refused_is_marked_in_the_editor_too(expected: Mapping[str, Any]) -> None:
    assert problems(expected) != []
    assert list(schema().iter_errors(expected)) != []


@pytest.mark.parametrize("name", TABLES)
def test_every_key_has_one_sentence(name: str) -> None:
    for key in TABLES[name].values():
        assert re.fullmatch(r"[A-Z`].*\.", key.doc)
        assert key.doc.count(". ") == 0


def test_the_definitions_are_json_schema() -> None:
    Draft202012Validator.check_schema({"$defs": build_definitions(), "properties": describe_keys(list_expected_keys())})


def test_every_key_is_documented() -> None:
    """docs/expectations.md has a heading or a row for each key, with an example."""
    text = DOCUMENT.read_text(encoding="utf-8")
    missing = [key for table in TABLES.values() for key in table if f"`{key}`" not in text]
    assert missing == []
