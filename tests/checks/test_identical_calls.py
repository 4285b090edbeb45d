"""`max_identical_calls`: loops of one call."""

from __future__ import annotations

from typing import Any

import pytest

import evalkit
from evalkit.errors import SpecError


def judged(limit: Any, *calls: tuple[str, Any]) -> evalkit.Verdict:
    listed = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return evalkit.judge({"max_identical_calls": limit, "valid_arguments": False}, listed)


def test_calls_are_the_same_if_name_and_arguments_are() -> None:
    calls: tuple[tuple[str, Any], ...] = (
        ("f", {"a": 1, "b": 2}),
        ("f", {"b": 2, "a": 1.0}),
        ("f", {"a": 1}),
        ("g", {"a": 1, "b": 2}),
        ("f", {}),
    )
    assert judged(2, *calls).status == "passed"
    verdict = judged(1, *calls)
    assert [(reason.code, reason.call, reason.message) for reason in verdict.reasons] == [
        ("budget_exceeded", 1, "call 2, f: the same call was made once before, which is all that may be")
    ]


def test_each_loop_is_reported_once_at_the_call_that_is_one_too_many() -> None:
    verdict = judged(2, *[("f", {"a": 1}), ("g", {"l": [1, {"x": None}]})] * 5)
    assert [reason.call for reason in verdict.reasons] == [4, 5]


def test_true_is_not_one() -> None:
    assert judged(1, ("f", {"a": True}), ("f", {"a": 1}), ("f", {"a": "1"})).status == "passed"


def test_no_call_is_no_loop() -> None:
    assert judged(1).status == "passed"


@pytest.mark.parametrize("limit", [0, -1, 1.5, "2", True])
def test_the_limit_is_a_whole_number_from_one(limit: Any) -> None:
    with pytest.raises(SpecError, match="max_identical_calls must be a whole number from 1"):
        judged(limit)
