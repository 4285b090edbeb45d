"""The instruction file and the task's attributes of docs/agents.md are what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import evalkit
from evalkit.agents.instruction import parse_instruction
from evalkit.agents.task import Task
from evalkit.records.registry import AGENTS

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")


def test_the_instruction_file_on_the_page_is_one() -> None:
    (example,) = re.findall(r"```markdown\n(.*?)```", PAGE, re.DOTALL)

    instruction = parse_instruction(example, "docs/agents.md")

    assert instruction.name == "valid-warranty"
    assert instruction.available_functions is not None


def test_the_page_names_only_what_a_task_has() -> None:
    source = Path(Task.turn.__code__.co_filename).read_text(encoding="utf-8")
    named = set(re.findall(r"\btask\.(\w+)", PAGE))

    assert {name for name in named if not hasattr(Task, name) and f"self.{name}" not in source} == set()


@pytest.mark.parametrize(("status", "expected"), [("valid", "passed"), ("expired", "failed")])
def test_the_agent_with_a_set_up_on_the_page_is_judged(status: str, expected: str) -> None:
    (example,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "yield answer" in code)
    case = evalkit.case_from_dict(
        {
            "agent": "warranty_desk",
            "input": {
                "email": {"from": "ana@example.com", "body": "?"},
                "mock_function_responses": {"check_warranty": {"status": status}},
            },
            "expected_output": {"response_contains": "Dear Ana, it is valid."},
        }
    )
    try:
        exec(example, {})
        assert evalkit.run_case(case).status == expected
    finally:
        AGENTS.remove("warranty_desk")
    lines = example.partition("@evalkit")[2].splitlines()[1:]
    assert sum(bool(line.strip()) for line in lines) <= 10
