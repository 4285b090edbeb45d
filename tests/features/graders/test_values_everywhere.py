"""Wherever `$judge` may stand, the value that it decides about is graded: nothing passes ungraded."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.errors import EvalkitError
from evalkit.features.graders.values import GradeBook
from evalkit.operators.builtin import list_operators
from evalkit.operators.compile import Mode, compile_value
from evalkit.operators.late import Judging, note_late_values

JUDGE = {"$judge": "is polite"}
VALUES: tuple[Any, ...] = ("x", ["x"], {"a": "x"}, [{"a": "x"}], {"a": ["x"]}, {"a": {"b": "x"}})


@pytest.mark.parametrize("mode", ["equal", "contain", "partial"])
@pytest.mark.parametrize("operand", [JUDGE, [JUDGE], {"a": JUDGE}, [{"a": JUDGE}], {"a": [JUDGE]}, {"a": {"b": JUDGE}}])
@pytest.mark.parametrize("name", [*list_operators(), None])
def test_a_value_that_an_ungraded_criterion_lets_pass_is_a_question(name: str | None, operand: Any, mode: Mode) -> None:
    try:
        matcher = compile_value(operand if name is None else {name: operand}, mode=mode)
    except EvalkitError:
        return  # it can't stand there, and the message says so
    for value in VALUES:
        with Judging({}):
            if matcher.is_match(value):
                note_late_values(matcher, value, (), "")
                book = GradeBook.get_current()
                assert book is not None
                assert book.list_open() != [], (matcher, value)
