"""The functions, and the table that finds them by name, in which both names work while the code migrates.

`evalkit lint --fix` has added the names that the model is told of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scenarios.procedures.library import DOCUMENTS, GUIDELINES, PROCEDURES, matching


def tool_search_procedure(query: str) -> list[dict[str, str]]:
    """Search the company's procedures."""
    return matching(PROCEDURES, query)


def tool_search_guidelines(query: str) -> list[dict[str, str]]:
    """Search the guidelines."""
    return matching(GUIDELINES, query)


def tool_search_rag(query: str) -> list[dict[str, str]]:
    """Search all other documents."""
    return matching(DOCUMENTS, query)


TOOLS: dict[str, Callable[..., Any]] = {
    "search_procedure": tool_search_procedure,
    "tool_search_procedure": tool_search_procedure,
    "search_guidelines": tool_search_guidelines,
    "tool_search_guidelines": tool_search_guidelines,
    "search_rag": tool_search_rag,
    "tool_search_rag": tool_search_rag,
}
