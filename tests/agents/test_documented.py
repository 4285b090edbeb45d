"""The instruction file and the task's attributes of docs/agents.md are what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from evalkit.agents import Task
from evalkit.agents.instruction import parse_instruction

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
