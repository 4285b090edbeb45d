"""A key of `input` is one row: its reader, its schema, its sentence, and what people write for it."""

from __future__ import annotations

import pytest

import evalkit
from evalkit.errors import SpecError
from evalkit.runner.run_case import run_case
from evalkit.spec.case_keys import INPUT_KEYS
from evalkit.spec.case_reader import CaseKey, CaseReader
from evalkit.spec.load import case_from_dict
from evalkit.spec.schema import build_case_schema, build_suite_schema

EXPECTED: dict[str, object] = {"expected_function_calls": []}
DOC = "The language that the user writes in."


@pytest.fixture(autouse=True)
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    key = CaseKey(CaseReader.read_name, {"type": "string"}, DOC, synonyms=("locale",))
    monkeypatch.setitem(INPUT_KEYS, "language", key)


def test_editors_know_it() -> None:
    assert build_case_schema()["$defs"]["input"]["properties"]["language"]["description"] == DOC
    assert build_suite_schema()["$defs"]["input"]["properties"]["language"]["description"] == DOC


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("language", 5, "input.language must be a name, got 5; quote it: '5'"),
        ("locale", "pl", "unknown key 'locale' in input; did you mean 'language'?"),
    ],
)
def test_it_is_read(key: str, value: object, message: str) -> None:
    with pytest.raises(SpecError) as error:
        case_from_dict({"input": {"message": "Hello", key: value}, "expected_output": EXPECTED})
    assert [problem.message for problem in error.value.problems] == [message]


def test_the_agent_gets_it() -> None:
    case = case_from_dict({"input": {"message": "Hello", "language": "pl"}, "expected_output": EXPECTED})
    received = []

    def agent(task: evalkit.Task) -> str:
        received.append(task.input)
        return "done"

    run_case(case, agent)
    assert received == [{"message": "Hello", "language": "pl"}]
