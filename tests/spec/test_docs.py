"""docs/case-format.md says what the loader does: its tables are current, its examples load, its messages are real."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import SpecError
from evalkit.spec.case_keys import CASE_KEYS
from evalkit.spec.case_reader import TAGS_WITH_EFFECT
from evalkit.spec.load import case_from_dict

PAGE = Path(__file__).parent.parent.parent / "docs" / "case-format.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n# (scenarios/\S+)\n(.*?)```", TEXT, re.DOTALL)


def test_every_key_has_a_row() -> None:
    for key in CASE_KEYS:
        assert f"\n| `{key}` | " in TEXT


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_an_example_loads(project: Any, name: str, text: str) -> None:
    assert project.load(name, {name: text}).id == name


def test_the_page_lists_the_tags_that_are_refused() -> None:
    listed = re.search(r"Names of marks.*?\((.*?)\)", TEXT, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == set(TAGS_WITH_EFFECT)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"must_pass": "yes"}, 'must_pass must be true or false, got "yes"; write true'),
        ({"input": {"message": 12345}}, "input.message must be text, got 12345; quote it: '12345'"),
        ({"descripton": "x"}, "unknown key 'descripton'; did you mean 'description'?"),
        ({"repeat": 0}, "repeat must be a whole number from 1, got 0"),
        (
            {"expected_output": {"expected_function_calls": ["a", {"function_name": "b", "argument_contain": {}}]}},
            "unknown key 'argument_contain' in expected_function_calls[1]; did you mean 'arguments_contain'?",
        ),
    ],
)
def test_a_message_on_the_page_is_one_that_users_get(data: dict[str, Any], message: str) -> None:
    assert message in TEXT
    with pytest.raises(SpecError) as caught:
        case_from_dict({"input": {"message": "x"}, "expected_output": {"response_contains": "x"}, **data})
    assert message in str(caught.value)
