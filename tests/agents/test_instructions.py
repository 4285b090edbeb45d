"""Instruction files: frontmatter is strict, every problem has its line in the file, the body is the instruction."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evalkit.agents.instruction import Instruction, load_instruction, parse_instruction
from evalkit.errors import SpecError
from evalkit.records.case import Permissions

VALID = """\
---
name: valid-warranty
trigger: the warranty is valid
version: 2
available_functions:
  - name: check_warranty
    description: Look a serial number up
    parameters:
      type: object
      properties: {serial_number: {type: string}}
      required: [serial_number]
---

You answer customers.

---
A line of dashes belongs to the text.
"""


def test_an_instruction_file_gives_words_functions_and_body(tmp_path: Path) -> None:
    path = tmp_path / "valid.md"
    path.write_text(VALID, encoding="utf-8")

    instruction = load_instruction(path)

    assert (instruction.name, instruction.trigger, instruction.version) == (
        "valid-warranty",
        "the warranty is valid",
        "2",
    )
    assert instruction.available_functions is not None
    assert [function.name for function in instruction.available_functions] == ["check_warranty"]
    assert instruction.body == "You answer customers.\n\n---\nA line of dashes belongs to the text."
    assert instruction.path == path


def test_a_trigger_of_null_is_none() -> None:
    instruction = parse_instruction(VALID.replace("trigger: the warranty is valid", "trigger: null"), "valid.md")
    assert instruction.trigger == ""


def test_an_unchanged_file_is_parsed_once_and_a_changed_one_again(tmp_path: Path) -> None:
    path = tmp_path / "valid.md"
    path.write_text(VALID, encoding="utf-8")
    first = load_instruction(path)
    assert load_instruction(path) is first

    path.write_text(VALID.replace("You answer", "You always answer"), encoding="utf-8")

    assert load_instruction(path).body.startswith("You always answer")


@pytest.mark.parametrize("text", ["\ufeff" + VALID, VALID.replace("\n", "\r\n")], ids=["BOM", "CRLF"])
def test_files_from_windows_read_the_same(tmp_path: Path, text: str) -> None:
    path = tmp_path / "valid.md"
    path.write_bytes(text.encode())

    assert load_instruction(path).body == parse_instruction(VALID, "valid.md").body


def test_no_functions_and_functions_not_mentioned_are_two_things() -> None:
    assert parse_instruction("---\nname: a\navailable_functions: []\n---\nText", "a.md").available_functions == ()
    assert parse_instruction("---\nname: a\n---\nText", "a.md") == Instruction(name="a", body="Text")


PROBLEMS: list[tuple[str, list[str]]] = [
    ("Just text", ["a.md:1:1: an instruction file begins with '---', its frontmatter, and '---'"]),
    ("---\nname: a\nText", ["a.md:1:1: the frontmatter that begins here is never closed; write a line '---' below it"]),
    ("---\n- a\n---\nText", [
        "a.md:2:1: the frontmatter must be a mapping with name, trigger, version, description, available_functions, "
        "got a list",
    ]),
    ("---\ntriger: x\n---\n", [
        "a.md:2:1: unknown key 'triger' in the frontmatter; did you mean 'trigger'?",
        "a.md:2:1: the frontmatter needs a 'name'",
        "a.md:2:1: there is no instruction below the frontmatter",
    ]),
    ("---\nname: a\nversion: 1.10\ntrigger: 5\n---\nText", [
        "a.md:3:10: version must be text, and not empty, got 1.1; quote it: '1.1'",
        "a.md:4:10: trigger must be text, and not empty, got 5; quote it: '5'",
    ]),
    ("---\nname:\n---\nText", ["a.md:2:6: name must be text, and not empty, got null"]),
    ("---\nname: a\navailable_functions:\n---\nText", [
        "a.md:3:21: 'available_functions' is empty; write [] to offer none",
    ]),
    ("---\nname: a\nname: b\n---\nText", [
        "a.md:3:1: duplicate key 'name'; it stands in line 2 already",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), PROBLEMS)
def test_every_problem_of_a_file_is_located_and_explained(text: str, expected: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parse_instruction(text, "a.md")

    assert [str(problem) for problem in caught.value.problems] == expected


def test_a_declaration_that_is_no_schema_is_located() -> None:
    text = "---\nname: a\navailable_functions:\n  - name: f\n    parameters: {type: objekt}\n---\nText"

    with pytest.raises(SpecError) as caught:
        parse_instruction(text, "a.md")

    assert [problem.location.line for problem in caught.value.problems] == [5]


def test_a_file_that_is_not_utf_8_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"---\nname: \xff\n---\nText")

    with pytest.raises(SpecError, match=r"a\.md: this is not UTF-8: byte 10$"):
        load_instruction(path)


def test_a_file_that_code_names_has_nothing_imported(tmp_path: Path) -> None:
    """The code has not read what a pull request has written into it."""
    path = tmp_path / "desk.md"
    functions = 'available_functions: {f: {patch: "antigravity:geohash"}}'
    path.write_text(f"---\nname: desk\n{functions}\n---\nAnswer.\n", "utf-8")
    assert load_instruction(path).available_functions is not None
    assert "antigravity" not in sys.modules
    with pytest.raises(SpecError, match="'antigravity' is not the project's own code"):
        load_instruction(path, permissions=Permissions(folders=(str(tmp_path),)))
    assert "antigravity" not in sys.modules
