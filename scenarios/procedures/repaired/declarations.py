"""What the model is told of: three functions, under names that the dispatch table knows."""

from __future__ import annotations

from evalkit.records.case import Declaration

SEARCHES = [
    {
        "name": "search_procedure",
        "description": "Search the company's procedures. Use it first for everything that has a rule.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "Words to look for, e.g. hotel limit."}},
            "required": ["query"],
        },
    },
    {
        "name": "search_guidelines",
        "description": "Search the guidelines on how to behave towards customers and suppliers.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "Words to look for."}},
            "required": ["query"],
        },
    },
    {
        "name": "search_rag",
        "description": "Search all other documents, when procedures and guidelines say nothing.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "The question, in words."}},
            "required": ["query"],
        },
    },
]
DECLARATIONS = tuple(Declaration(**search) for search in SEARCHES)  # type: ignore[arg-type]
