"""Positions lead from a path in the data to the line and column where it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.yamlfile.parse import load
from evalkit.yamlfile.positions import read_positions
from evalkit.yamlfile.write import dump

TEXT = """\
# a comment
scenario_id: x
input:
  email: {subject: 'Łódź 😀', from: a@b.c}
expected_output:
  expected_function_calls:
    - function_name: check
      arguments: {n: 1}
    -   function_name: send
  empty:
"""


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ((), (2, 1), (2, 1)),
        (("scenario_id",), (2, 14), (2, 1)),
        (("input",), (4, 3), (3, 1)),
        (("input", "email", "from"), (4, 36), (4, 30)),
        (("expected_output", "expected_function_calls", 0), (7, 7), (7, 7)),
        (("expected_output", "expected_function_calls", 0, "arguments", "n"), (8, 22), (8, 19)),
        (("expected_output", "expected_function_calls", 1, "function_name"), (9, 24), (9, 9)),
        (("expected_output", "empty"), (10, 9), (10, 3)),
    ],
)
def test_a_path_leads_to_its_value_and_its_key(
    path: tuple[str | int, ...], value: tuple[int, int], key: tuple[int, int], parser: str
) -> None:
    table = read_positions(TEXT)
    assert table.locate(path) == value
    assert table.locate(path, key=True) == key
    assert table.has(path)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("nothing",), (2, 1)),
        (("input", "message", "x"), (4, 3)),
        (("expected_output", "expected_function_calls", 7), (7, 5)),
        (("expected_output", "expected_function_calls", "name"), (7, 5)),
        (("scenario_id", "x"), (2, 14)),
        (("scenario_id", 0), (2, 14)),
    ],
)
def test_a_path_that_leads_nowhere_gives_its_nearest_ancestor(
    path: tuple[str | int, ...], place: tuple[int, int]
) -> None:
    assert read_positions(TEXT).locate(path) == place
    assert not read_positions(TEXT).has(path)


def test_an_alias_stands_where_it_is_written_and_its_parts_where_the_anchor_is(parser: str) -> None:
    table = read_positions("a: &x\n  p: [1]\nb: *x\nc:\n  <<: *x\n  q: 2\nd:\n  <<: [{r: 3}, *x]\n")
    assert table.locate(("b",)) == (3, 4)
    assert table.locate(("b", "p", 0)) == (2, 7)
    assert table.locate(("c", "p")) == (2, 6)
    assert table.locate(("c", "q")) == (6, 6)
    assert table.locate(("d", "r"), key=True) == (8, 9)
    assert table.locate(("d", "p", 0)) == (2, 7)


def test_an_alias_may_be_a_key() -> None:
    assert read_positions("a: &k x\n*k : 1\n").locate(("x",)) == (2, 6)


def test_of_two_equal_keys_the_first_is_found() -> None:
    assert read_positions("a: 1\na: 2\n").locate(("a",)) == (1, 4)


def test_a_text_that_breaks_off_has_positions_up_to_there(parser: str) -> None:
    table = read_positions("a: 1\nb:\n  c: [1, 2\n")
    assert table.locate(("a",)) == (1, 4)
    assert table.locate(("b", "c", 1)) == (3, 10)


@pytest.mark.parametrize("text", ["", "# x\n", "\x00", "\ud800", b"\xff", "@", "a: &a [*a]", "&a {<<: *a}", "[" * 1000])
def test_a_text_without_values_or_without_end_does_no_harm(text: str | bytes) -> None:
    line, column = read_positions(text).locate(("a", 0, "b"), key=True)
    assert line == 1
    assert column >= 1


def test_bytes_and_a_byte_order_mark_count_as_nothing() -> None:
    assert read_positions(b"\xef\xbb\xbfa: 1").locate(("a",)) == (1, 4)


def test_a_line_separator_within_a_line_does_not_begin_a_line() -> None:
    assert read_positions("a: x\u2028y\nb\u2028: 1\n").locate(("b\u2028",)) == (2, 5)


SCALARS = st.integers() | st.text("abc: #\n'", max_size=6) | st.booleans()
KEYS = st.text("abc -", min_size=1, max_size=4)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(KEYS, inner, min_size=1, max_size=3),
)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in leaves(item, (*path, key))]
    if isinstance(value, list):
        return [found for index, item in enumerate(value) for found in leaves(item, (*path, index))]
    return [(path, value)]


@settings(max_examples=150)
@given(DATA)
def test_what_stands_at_a_leafs_place_is_the_leaf(data: Any) -> None:
    text = dump({"root": data})
    table, lines = read_positions(text), text.split("\n")
    for path, value in leaves(data, ("root",)):
        line, column = table.locate(path)
        rest = lines[line - 1][column - 1 :]
        if rest.startswith("|"):
            assert isinstance(value, str)
        else:
            assert load(f"- {rest.rstrip()}\n", "leaf.yaml") == [value]


@settings(max_examples=80)
@given(DATA)
def test_in_json_text_the_place_of_a_leaf_is_exact(data: Any) -> None:
    text = json.dumps({"root": data}, ensure_ascii=False)
    table = read_positions(text)
    for path, value in leaves(data, ("root",)):
        line, column = table.locate(path)
        assert (line, text[column - 1 :].startswith(json.dumps(value, ensure_ascii=False))) == (1, True)
