"""What to write where something else stands, by table."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.fields.reader import explain_quoting, suggest_boolean, suggest_number
from evalkit.spec.case_reader import CaseReader


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("yes", "write true"),
        ("On", "write true"),
        ("n", "write false"),
        ("off", "write false"),
        ("true", "write true without quotes"),
        (" False", "write false without quotes"),
        (1, "write true"),
        (0, "write false"),
        (2, ""),
        ("maybe", ""),
        (None, ""),
        ([], ""),
    ],
)
def test_where_a_boolean_is_wanted(value: Any, advice: str) -> None:
    assert suggest_boolean(value) == advice


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("5", "write 5 without quotes"),
        ("-2.50", "write -2.50 without quotes"),
        ("012", "write 12"),
        ("+5", "write 5"),
        ("0x1F", "write 31"),
        ("0o17", "write 15"),
        ("1e5", "write 100000"),
        ("1E-2", "write 0.01"),
        (".5", "write 0.5"),
        ("5.", "write 5"),
        ("60_000", "write 60000 without quotes"),
        ("12:30", "write it as digits"),
        ("five", "write it as digits"),
        ("", "write it as digits"),
        ("1e999", "write it as digits"),
        ("9" * 5000, "write it as digits"),
        (None, ""),
        (True, ""),
    ],
)
def test_where_a_number_is_wanted(value: Any, advice: str) -> None:
    assert suggest_number(value) == advice


@pytest.mark.parametrize(
    ("value", "advice"), [(5, "quote it: '5'"), (1.5, "quote it: '1.5'"), (True, "quote it: 'true'"), ([], "")]
)
def test_where_a_text_is_wanted(value: Any, advice: str) -> None:
    assert explain_quoting(value) == advice


@pytest.mark.parametrize(
    ("value", "read"), [(1, 1), (5.0, 5), (0, None), (1.5, None), (True, None), ("1", None), (None, None)]
)
def test_a_whole_number_from_1(value: Any, read: int | None) -> None:
    reader = CaseReader()
    assert reader.read_count(("repeat",), value) == read
    assert bool(reader.problems) == (read is None)
