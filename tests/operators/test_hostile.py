"""Whatever an agent sends, judging it never raises and always says something."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from evalkit import operator
from evalkit.jsonvalue import get_kind
from evalkit.operators.base import Matcher
from evalkit.operators.compile import OperatorProblems, compile_value
from evalkit.text.format import format_value

EXPECTED: list[Any] = [
    *("text", 5, True, None, {}, [], {"a": 1}, [1], {"a": [1, {"b": "x"}]}, {"self": 1, "a": 1}, {"$any": True}),
    *({"$eq": 1}, {"$ne": 1}, {"$type": "integer"}, {"$type": "string"}, {"$regex": "x*"}, {"$search": "x"}),
    *({"$contains": "x"}, {"$contains": 1}, {"$icontains": "x"}, {"$starts_with": "x"}, {"$ends_with": "x"}),
    *({"$one_of": ["x", 1, {"a": 1}, [1]]}, {"$all_of": [{"$len": {"$gt": 0}}, {"$not": 1}]}, {"$not": {"a": 1}}),
    *({"$approx": 1}, {"$gt": 1}, {"$le": 1}, {"$between": [0, 1]}, {"$len": 2}, {"$each": 1}, {"$each": {"a": 1}}),
    *({"$unordered": [1, "x"]}, {"$unordered": [{"$gt": 1}, {"$any": True}]}, {"$date": "2025-12-31"}),
    {"a": {"$one_of": [1, {"$absent": True}]}},
]


@pytest.fixture(scope="module")
def matchers() -> list[Matcher]:
    modes: list[Any] = ["equal", "contain", "partial"]
    return [compile_value(value, mode=mode) for value in EXPECTED for mode in modes]


def test_judging_a_hostile_value_never_raises_and_says_something(hostile: list[Any], matchers: list[Matcher]) -> None:
    for actual in [*hostile, *([value] for value in hostile), *({"a": value} for value in hostile)]:
        for matcher in matchers:
            found = matcher.explain(actual)
            assert matcher.is_match(actual) is (found == [])
            assert matcher.is_equal(actual) in (True, False)
            for mismatch in found:
                assert mismatch.message
                assert len(mismatch.message) < 3000
                str(mismatch).encode()


def test_what_is_not_json_matches_no_plain_expectation(hostile: list[Any], matchers: list[Matcher]) -> None:
    not_json = [value for value in hostile if not get_kind(value)]
    plain = [matcher for matcher in matchers if not set(str(matcher.to_data())) & {"$"}]
    assert len(plain) >= 20
    assert not [value for value in not_json for matcher in plain if matcher.is_match(value)]


def test_a_users_operator_may_be_given_anything(hostile: list[Any]) -> None:
    operator("sum")(lambda expected, actual: sum(actual) == expected)
    matcher = compile_value({"$sum": 1}, mode="equal")
    for actual in hostile:
        assert matcher.is_match(actual) is (matcher.explain(actual) == [])


def test_any_value_can_be_shown(hostile: list[Any]) -> None:
    for value in hostile:
        text = format_value(value)
        assert "\n" not in text
        assert len(text) < 2000
        text.encode()


def test_an_expected_value_that_is_hostile_is_refused_or_judged(hostile: list[Any]) -> None:
    judged = 0
    for value in hostile:
        with suppress(OperatorProblems):
            assert compile_value({"a": value}, mode="equal").is_match({"a": value})
            judged += 1
    assert 10 < judged < len(hostile)
