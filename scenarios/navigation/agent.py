"""A document navigator: it opens the right section instead of answering.

The only function, `navigate_to_section`, is declared from the headings of the document at hand: a new heading is a new
value that the model may choose, and no line of Python. Models stray from such lists all the same, so the function looks
names up leniently and answers with a message rather than an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import evalkit
from evalkit.records.case import Declaration
from scenarios.navigation.document import Document, read_document

ROOT = Path(__file__).parents[2]
DOCUMENT = "docs/case-format.md"
PROMPT = Path(__file__).with_name("navigator.md")
RETURNS = {
    "type": "object",
    "properties": {
        "navigated": {"type": "boolean"},
        "section": {"type": ["string", "null"]},
        "subsection": {"type": ["string", "null"]},
        "anchor": {"type": ["string", "null"]},
        "message": {"type": "string"},
    },
    "required": ["navigated", "section", "subsection", "anchor", "message"],
}


@evalkit.agent("navigation")
async def navigation(task: evalkit.Task) -> evalkit.Reply:
    """Navigate in the document that `input.context.document` names, by default in the page on case files."""
    return await navigate(task, PROMPT)


async def navigate(task: evalkit.Task, prompt: Path) -> evalkit.Reply:
    """Run the loop over the prompt in a file, with the function as this document declares it."""
    declared = navigation_function(document_of(task.input))
    instruction = replace(evalkit.load_instruction(prompt), available_functions=(declared,))
    return await task.run_instruction(instruction)


def document_of(data: Mapping[str, Any]) -> Document:
    """The document that a case is about."""
    return read_document(ROOT / (data.get("context") or {}).get("document", DOCUMENT))


def navigation_function(document: Document) -> Declaration:
    """`navigate_to_section` for a document: its titles are the values, its outline is in the description.

    JSON Schema could say which subsection belongs to which section; models rarely heed that, so it is said in words.
    """
    outline = "\n".join(
        f"- {section.title}" + "".join(f"\n  - {below.title}" for below in section.subsections)
        for section in document.sections
    )
    section = {"enum": [*dict.fromkeys(section.title for section in document.sections)]}
    properties: dict[str, Any] = {"section": {"type": "string", **section}}
    if document.subsections:
        properties["subsection"] = {
            "type": "string",
            "enum": [*document.subsections],
            "description": "Only together with the section that it belongs to.",
        }
    return Declaration(
        name="navigate_to_section",
        description=f"Open a section of '{document.title}' in the reader's window. Its sections are:\n{outline}",
        parameters={
            "type": "object",
            "properties": properties,
            "required": ["section"],
            "additionalProperties": False,
        },
        returns=RETURNS,
    )


def navigate_to_section(
    section: str, subsection: str | None = None, *, state: dict[str, Any], input: Mapping[str, Any]
) -> dict[str, Any]:
    """Open a section: what `navigate_to_section` does, but for the window, for which `state` stands in.

    A subsection that belongs elsewhere opens the section itself, and the message says so. An unknown section opens
    nothing.
    """
    place = document_of(input).find(section, subsection)
    if place.section is None or place.heading is None:
        return {"navigated": False, "section": None, "subsection": None, "anchor": None, "message": place.remark}
    state["anchor"] = place.heading.anchor
    return {
        "navigated": True,
        "section": place.section.title,
        "subsection": place.subsection.title if place.subsection else None,
        "anchor": place.heading.anchor,
        "message": place.remark or f"Opened '{place.heading.title}'.",
    }
