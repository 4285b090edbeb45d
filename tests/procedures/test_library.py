"""The suite's own searches are real code, which no case reaches: the cases mock them."""

from __future__ import annotations

import pytest

from scenarios.procedures.as_found import tools as found
from scenarios.procedures.library import PROCEDURES, matching
from scenarios.procedures.repaired import agent as repaired_agent
from scenarios.procedures.repaired import tools as repaired


def test_texts_with_more_of_the_words_come_first() -> None:
    assert [text["id"] for text in matching(PROCEDURES, "first class trains")] == ["TR-7"]
    assert [text["id"] for text in matching(PROCEDURES, "a night in the hotel, or flights")] == ["TR-4", "TR-7"]
    assert matching(PROCEDURES, "lunch") == []


@pytest.mark.parametrize("name", ["search_procedure", "search_guidelines", "search_rag"])
def test_both_systems_have_the_same_functions(name: str) -> None:
    assert (
        found.TOOLS[f"tool_{name}"]("gifts") == repaired.TOOLS[name]("gifts") == repaired.TOOLS[f"tool_{name}"]("gifts")
    )
    assert name not in found.TOOLS


def test_a_name_that_no_tool_has_is_an_error_once_repaired() -> None:
    with pytest.raises(KeyError):
        repaired_agent.looked_up("search_everything", {})
