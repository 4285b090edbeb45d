"""The modes: `arguments` is exact, `arguments_contain` contains, `result_contains` is partial over keys."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.operators.compile import compile_value

CONTAIN = [
    ("valid", "warranty is valid.", True),
    ("valid", "invalid", False),
    ("SN1", "SN12345", False),
    ("Jan@Example.com", "to: jan@example.com", True),
    ("a  b", "x A\nB y", True),
    ("5", 5, False),
    (5, "5", False),
    (5, 5.0, True),
    (5, 15, False),
    (True, 1, False),
    (None, None, True),
    (None, "", False),
    ({"a": "x"}, {"a": "x y", "b": 1}, True),
    ({"a": {"b": "x"}}, {"a": {"b": "an x", "c": 1}, "d": 2}, True),
    ({"a": 1}, {"b": 1}, False),
    ({"a": None}, {}, False),
    ({}, {"a": 1}, True),
    ({}, [], False),
    (["a"], ["c", "b", "x a"], True),
    (["a", "b"], ["b", "a"], True),
    (["a", "a"], ["a"], False),
    (["a", "a"], ["a", "an a"], True),
    (["red", "red wine"], ["red wine", "red"], True),
    (["red", "red wine"], ["red wine", "white"], False),
    ([{"id": 1}], [{"id": 1, "x": 2}, {"id": 2}], True),
    ([[1]], [[2, 1]], True),
    ([], [1], True),
    (["a"], "a", False),
    (["a"], {"a": 1}, False),
    ({"$eq": "valid"}, "valid", True),
    ({"$eq": "valid"}, "is valid", False),
    ({"$eq": ["a"]}, ["a", "b"], False),
    ({"$one_of": ["high", "urgent"]}, "very high", True),
    ({"$not": "valid"}, "invalid", True),
    ({"$not": "valid"}, "is valid", False),
    ({"$ne": "valid"}, "is valid", True),
    ({"$each": "a"}, ["an a", "a b"], True),
    ({"$each": {"k": "v"}}, [{"k": "V", "l": 1}], True),
    ({"$unordered": ["a", "b"]}, ["x b", "x a"], True),
    ({"$unordered": ["a", "b"]}, ["b", "a", "c"], False),
    ({"$unordered": []}, [], True),
    ({"$unordered": []}, ["a"], False),
    ({"$all_of": ["a", "b"]}, "b and a", True),
    ({"$literal": "valid"}, "is valid", True),
    ({"$literal": {"$any": True}}, {"$any": True, "x": 1}, True),
    ({"$contains": "al"}, "valid", True),
    ({"$literal": ""}, "", True),
    ({"$literal": ""}, "x", False),
]

PARTIAL = [
    ({"status": "valid"}, {"status": "valid", "x": 1}, True),
    ({"status": "valid"}, {"status": "is valid"}, False),
    ({"status": "VALID"}, {"status": "valid"}, False),
    ({"a": {"b": 1}}, {"a": {"b": 1.0, "c": 2}}, True),
    ({"a": [1]}, {"a": [1, 2]}, False),
    ({"a": [{"id": 1}]}, {"a": [{"id": 1, "x": 2}]}, True),
    ({"a": [{"id": 1}]}, {"a": [{"id": 1}, {"id": 2}]}, False),
    ({"error": {"type": "timeout"}}, {"error": {"type": "timeout", "message": "m"}}, True),
    ("", "", True),
    ("a", "a b", False),
    ({"a": {"$gt": 1}}, {"a": 2, "b": 1}, True),
    ({"a": {"$eq": {"b": 1}}}, {"a": {"b": 1, "c": 2}}, False),
]


@pytest.mark.parametrize(("expected", "actual", "matches"), CONTAIN)
def test_arguments_contain_follows_its_table(expected: Any, actual: Any, matches: bool) -> None:
    matcher = compile_value(expected, mode="contain")
    assert matcher.is_match(actual) is matches
    assert (matcher.explain(actual) == []) is matches


@pytest.mark.parametrize(("expected", "actual", "matches"), PARTIAL)
def test_result_contains_is_partial_over_keys_and_equal_on_leaves(expected: Any, actual: Any, matches: bool) -> None:
    matcher = compile_value(expected, mode="partial")
    assert matcher.is_match(actual) is matches
    assert (matcher.explain(actual) == []) is matches


EQUALS = [
    ({"a": "x"}, {"a": "x"}, True),
    ({"a": "x"}, {"a": "an x"}, False),
    ({"a": "x"}, {"a": "X"}, False),
    ({"a": "x"}, {"a": "x", "b": 1}, False),
    ({"a": ["x", "y"]}, {"a": ["x", "y"]}, True),
    ({"a": ["x", "y"]}, {"a": ["y", "x"]}, False),
    ({"a": ["x"]}, {"a": ["x", "y"]}, False),
    ({"a": 5}, {"a": 5.0}, True),
    ({"a": {"$one_of": ["x", "y"]}}, {"a": "y"}, True),
    ({"a": {"$one_of": ["x", "y"]}}, {"a": "a y"}, False),
    ({"a": {"$all_of": ["x", "x y"]}}, {"a": "x y"}, False),
    ({"a": {"$each": "x"}}, {"a": ["an x"]}, False),
    ({"a": {"$each": "x"}}, {"a": ["x"]}, True),
    ({"a": {"$unordered": ["x", "y"]}}, {"a": ["y", "x"]}, True),
    ({"a": {"$unordered": ["x", "y"]}}, {"a": ["a y", "x"]}, False),
    ({"a": {"$regex": "x+"}}, {"a": "xx"}, True),
    ({"a": {"$one_of": ["x", {"$absent": True}]}}, {}, True),
    ({"a": "x"}, {"b": 1}, False),
    ({"a": "x"}, "x", False),
    ({"a": ["x"]}, {"a": "x"}, False),
]


@pytest.mark.parametrize(("expected", "actual", "equal"), EQUALS)
def test_equals_tells_contained_from_equal(expected: Any, actual: Any, equal: bool) -> None:
    assert compile_value(expected, mode="contain").is_equal(actual) is equal


def test_a_partial_mapping_that_has_more_keys_is_not_equal() -> None:
    matcher = compile_value([{"a": {"$gt": 0}}], mode="partial")
    assert matcher.is_equal([{"a": 1}])
    assert not matcher.is_equal([{"a": 1, "b": 2}])
