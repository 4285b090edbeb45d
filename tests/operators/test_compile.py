"""Expected values are compiled once; what can't be meant is refused with its place and the next step."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from evalkit.operators import OperatorProblems, compile_value


def problems_of(value: Any, mode: Any = "equal") -> list[str]:
    with pytest.raises(OperatorProblems) as caught:
        compile_value(value, mode=mode, path=("x",))
    return str(caught.value).splitlines()


def test_a_compiled_value_survives_pickling() -> None:
    matcher = compile_value({"a": {"$gt": 1}, "b": ["{{ input.x }}"], "c": {"$regex": "a+"}}, mode="equal")
    assert pickle.loads(pickle.dumps(matcher)) == matcher


def test_every_mismatch_names_its_path_and_both_values() -> None:
    expected = {"serial": 5, "address": {"city": "Łódź"}, "note": {"$one_of": ["x", {"$absent": True}]}}
    matcher = compile_value(expected, mode="equal")
    found = matcher.explain({"serial": "5", "address": {"city": "Lodz"}, "extra": None}, ("arguments",))
    assert [str(mismatch) for mismatch in found] == [
        'arguments.serial: expected 5, got "5" ("5" is a string, expected the number 5)',
        'arguments.address.city: expected "Łódź", got "Lodz"',
        "arguments.extra: not expected, got null",
    ]
