"""Editing a YAML text: comments, quotes and layout stay, and lines that were not edited are as they were."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.errors import UsageError
from evalkit.yamlfile.parse import load
from evalkit.yamlfile.write import YamlEditor

TEXT = """\
# head
a:   'one'   # why
list:
  - x: 1   # first
  # between
  - y: "2"
odd: [{a: 1}, null]
"""


def test_nothing_edited_is_nothing_changed() -> None:
    assert YamlEditor(TEXT).to_text() == TEXT


@pytest.mark.parametrize("indent", ["", "  "])
def test_lists_keep_the_indentation_of_the_file(indent: str) -> None:
    text = f"list:\n{indent}- a\n{indent}- b\n"
    editing = YamlEditor(text)
    editing.set_items(("list",), [1, 0, {"c": "d"}])
    assert editing.to_text() == f"list:\n{indent}- b\n{indent}- a\n{indent}- c: d\n"


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (
            "a:\n    - b: 1\n      c: {x: 1}\nd:\n    e: 1\n",
            "a:\n    - b: 1\n      c: {x: 7}\n      n:\n          y: 2\nd:\n    e: 1\n",
        ),
        (
            "d:\n  e: 1\na:\n    - b: 1\n      c: {x: 1}\n",
            "d:\n  e: 1\na:\n    - b: 1\n      c: {x: 7}\n      n:\n        y: 2\n",
        ),
    ],
)
def test_mappings_keep_the_indentation_of_the_file(text: str, changed: str) -> None:
    editing = YamlEditor(text)
    editing.set(("a", 0, "c", "x"), 7)
    editing.set(("a", 0, "n"), {"y": 2})
    assert editing.to_text() == changed


def test_lines_that_would_not_fit_are_written_anew() -> None:
    editing = YamlEditor("a:\n   -   b:\n           c: 1\n")
    editing.set(("a", 0, "d"), {"e": [1]})
    assert load(editing.to_text(), "a.yaml") == {"a": [{"b": {"c": 1}, "d": {"e": [1]}}]}


def test_a_value_is_set_and_its_neighbours_stay() -> None:
    editing = YamlEditor(TEXT)
    editing.set(("list", 0, "x"), 7)
    assert editing.to_text() == TEXT.replace("x: 1 ", "x: 7 ")


def test_lines_of_windows_stay_lines_of_windows() -> None:
    editing = YamlEditor("\ufeffa: 1\r\nb: [1, 2]  # why\r\nc: |\r\n  two\r\n  lines\r\n")
    editing.set(("a",), {"x": "one\ntwo\n"})
    editing.set(("b", 0), 3)
    after = editing.to_text()
    assert after.count("\r\n") == after.count("\n") > 5
    assert load(after, "a.yaml") == {"a": {"x": "one\ntwo\n"}, "b": [3, 2], "c": "two\nlines\n"}


def test_a_key_and_an_item_are_removed() -> None:
    editing = YamlEditor(TEXT)
    editing.remove(("odd",))
    assert editing.to_text() == TEXT.replace("odd: [{a: 1}, null]\n", "")


@pytest.mark.parametrize(
    "value", ["no", "012", "12:30", "a: b", "two\nlines\n", "", " x", "# y", "2026-01-18", {"a": ["no", 1, None, True]}]
)
def test_what_is_written_is_read_back_as_it_was(value: Any) -> None:
    editing = YamlEditor("a: 1\nb: 2\n")
    editing.set(("a",), value)
    assert load(editing.to_text(), "x") == {"a": value, "b": 2}


def test_a_path_that_is_not_there_is_named() -> None:
    editing = YamlEditor(TEXT)
    assert (editing.has(("list", 1, "y")), editing.has(("list", 2)), editing.has(("a", "b"))) == (True, False, False)
    with pytest.raises(UsageError, match="the file itself has nothing at"):
        editing.remove(("nothing",))
