"""docs/how-to.md leads each framework from an empty folder to a green case."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.test_examples import is_installed
from tests.walk import cut_section, walk

PAGE = Path(__file__).parents[2] / "docs" / "how-to.md"
PACKAGES = {"langgraph": "langchain", "adk": "google.adk", "pydantic_ai": "pydantic_ai", "openai_agents": "agents"}
KINDS = [
    pytest.param(name, marks=pytest.mark.skipif(not is_installed(package), reason=f"no {package}"))
    for name, package in PACKAGES.items()
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_framework_gets_to_a_green_case(kind: str, tmp_path: Path) -> None:
    assert walk(cut_section(PAGE.read_text("utf-8"), kind), tmp_path) > 3
