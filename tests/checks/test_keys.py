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

DOCUMENT = Path(__file__).parents[2] / "docs" / "expectations.md"
MODIFIERS = {name for name, key in list_expected_keys().items() if key.is_modifier}
TABLES: dict[str, Mapping[str, DescribedKey]] = {
    "expected": list_expected_keys(),
    "call": list_call_keys(),
    "group": GROUP_KEYS,
    "forbidden": list_forbidden_keys(),
}

VALUES: dict[str, Any] = {
    "expected_function_calls": [
        "a",
        {"function_name": "b", "body_contains": "x"},
        {"any_order": ["c", {"in_order": ["d"]}]},
    ],
    "call_order": "any",
    "extra_calls": "allow",
    "forbidden_function_calls": [{"function_name": "z", "arguments_contain": {"a": 1}}],
    "grounded": ["a"],
    "valid_arguments": False,
    "ignored_arguments": ["trace_id"],
    "final_function_call": "a",
    "expected_handoffs": ["triage -> billing"],
    "expected_delegations": [],
    "expected_approvals": ["z", {"function_name": "y", "arguments": {"a": 1}, "body_contains": "x"}],
    "response_contains": ["a"],
    "response_excludes": "b",
    "response_matches": "^c",
    "response_json": {"type": "object"},
    "state": {"orders": []},
    "state_contains": {"orders": {"A-1": {"$any": True}}},
    "stop_reason": "completed",
    "model_failure": True,
    "scenario_instruction_used": "valid-warranty",
    "max_model_turns": 4,
    "max_function_calls": 3,
    "max_identical_calls": 2,
    "max_tokens": 1000,
    "max_cost_usd": 0.01,
    "processing_time_ms": 60000,
    "max_overhead_ms": 12.5,
    "min_score": {"f1": 0.8},
    "judge": ["The tone is friendly."],
    "email_sent": True,
    "ticket_created": False,
    "ticket_fields": {"priority": "high"},
    "response_body_contains": "x",
    "response_body_excludes": ["y"],
}
CALL_VALUES: dict[str, Any] = {
    "function_name": "f",
    "arguments": {"a": 1},
    "arguments_contain": {"a": "x"},
    "arguments_absent": "cc",
    "result_contains": 5,
    "outcome": "error",
    "times": {"min": 1, "max": 2},
    "optional": True,
    "channel": ["native"],
    "answered_by": ["application"],
    "by": "billing",
    "in_reply_to": {"$search": "yes"},
    "approval": ["approved", "none"],
    "max_latency_ms": 500,
    "valid": False,
    "grounded": True,
}
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
    assert VALUES.keys() == list_expected_keys().keys()
    assert CALL_VALUES.keys() == list_call_keys().keys()
    assert GROUP_VALUES.keys() == GROUP_KEYS.keys()


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
