"""Every operator, by what it accepts and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.operators.builtin import list_operators
from evalkit.operators.compile import compile_value
from evalkit.records.registry import OPERATORS

NAN = float("nan")
DATE = "2025-12-31"

# operator: (expected, accepted values, refused values)
TABLE: list[tuple[Any, list[Any], list[Any]]] = [
    ({"$eq": 5}, [5, 5.0], ["5", 6, True, None, [5]]),
    ({"$eq": True}, [True], [1, "true", False]),
    ({"$eq": None}, [None], [0, "", False, "null"]),
    ({"$eq": {"a": [1]}}, [{"a": [1.0]}], [{"a": [1], "b": 2}, {"a": [True]}, {}]),
    ({"$eq": {"a": {"$gt": 1}}}, [{"a": 2}], [{"a": 1}, {}]),
    ({"$ne": 5}, ["5", 6, True, None], [5, 5.0]),
    ({"$ne": "x"}, ["X", "xx", 5], ["x"]),
    ({"$any": True}, [None, 0, "", [], {}, False], []),
    ({"$type": "string"}, ["", "5"], [5, None, ["a"]]),
    ({"$type": "number"}, [5, 5.5], [True, "5", None]),
    ({"$type": "integer"}, [5, 5.0, -3, 10**30], [5.5, True, "5", NAN, float("inf")]),
    ({"$type": "boolean"}, [True, False], [0, 1, "true"]),
    ({"$default": "en"}, ["en"], ["de", None, "", ["en"]]),
    ({"$default": {"a": 1}}, [{"a": 1}], [{}, {"a": 1, "b": 2}]),
    ({"$type": "array"}, [[], [1]], [(), {}, "[]"]),
    ({"$type": "object"}, [{}, {"a": 1}], [[], "{}"]),
    ({"$type": "null"}, [None], [0, "null", False]),
    ({"$type": ["string", "null"]}, ["", None], [0, []]),
    ({"$type": ["integer", "number"]}, [5, 5.5], ["5"]),
    ({"$regex": "SN[0-9]+"}, ["SN1", "SN12345"], ["sn1", "xSN1", "SN1 ", "SN", 5, None]),
    ({"$regex": "(?i)sn[0-9]+"}, ["SN1", "sn1"], ["SN"]),
    ({"$regex": "a|ab"}, ["a", "ab"], ["abc"]),
    ({"$regex": ""}, [""], ["a"]),
    ({"$search": "SN[0-9]+"}, ["SN1", "your SN12, please"], ["sn1", "SN"]),
    ({"$search": "^a"}, ["a", "ab"], ["ba", "\na"]),
    ({"$contains": "val"}, ["invalid", ["val", 1]], ["VAL", ["value"], {"val": 1}, 5, None]),
    ({"$contains": 5}, [[4, 5], [5.0]], ["5", [True], ["5"], 5, {"a": 5}]),
    ({"$contains": None}, [[None]], [[], [0], None]),
    ({"$contains": {"$gt": 5}}, [[1, 6]], [[1], 6, "6"]),
    ({"$contains": {"id": 1}}, [[{"id": 1}]], [[{"id": 1, "x": 2}], {"id": 1}]),
    ({"$icontains": "VaL"}, ["invalid", ["VAL"]], ["vol", ["values"]]),
    ({"$icontains": "ŁÓDŹ"}, ["w łodzi, łódź"], ["lodz"]),
    ({"$icontains": "a b"}, ["A B"], ["a  b"]),
    ({"$starts_with": "SN"}, ["SN", "SN1"], ["sn1", " SN", "", 5, ["SN"]]),
    ({"$ends_with": ".com"}, [".com", "a.com"], ["a.COM", "a.com ", None]),
    ({"$one_of": ["a", 5, None]}, ["a", 5.0, None], ["A", "5", False]),
    ({"$one_of": [{"$gt": 5}, {"$regex": "n/a"}]}, [6, "n/a"], [5, "N/A"]),
    ({"$one_of": [{"a": 1}, [1]]}, [{"a": 1}, [1]], [{"a": 1, "b": 2}, 1]),
    ({"$all_of": [{"$gt": 5}, {"$lt": 7}]}, [6, 5.5], [5, 7, "6"]),
    ({"$all_of": [{"$search": "a"}, {"$search": "b"}]}, ["ab", "b a"], ["a", "b"]),
    ({"$not": "x"}, ["y", None, 5], ["x"]),
    ({"$not": {"$regex": "x+"}}, ["y", "", 5], ["x", "xx"]),
    ({"$not": {"$not": {"$gt": 5}}}, [6], [5, "6"]),
    ({"$not": {"$any": True}}, [], [None, 0]),
    ({"$approx": 3.14, "$abs": 0.01}, [3.14, 3.13, 3.15], [3, 3.129, 3.151, "3.14", True, NAN, float("inf")]),
    ({"$approx": 100, "$rel": 0.05}, [95, 105, 100.0], [94.99, 105.01]),
    ({"$approx": -100, "$rel": 0.05}, [-95, -105], [-94.99, -105.01, 100]),
    ({"$approx": 100, "$rel": 0.01, "$abs": 5}, [95, 105], [94, 106]),
    ({"$approx": 0.3}, [0.1 + 0.2, 0.3], [0.300001, 0.31]),
    ({"$approx": 0}, [0, 1e-13], [1e-11]),
    ({"$approx": 5, "$abs": 0}, [5, 5.0], [5.0000001]),
    ({"$approx": 10**400, "$abs": 1}, [10**400 + 1], [10**400 + 2, 5.0]),
    ({"$gt": 5}, [5.1, 6, float("inf")], [5, 4, "6", True, None, NAN]),
    ({"$ge": 5}, [5, 5.0], [4.9, "5"]),
    ({"$lt": 5}, [4, -1], [5, True, NAN]),
    ({"$le": 5}, [5, 5.0], [5.1, None]),
    ({"$gt": 0}, [1], [True]),
    ({"$gt": 1, "$lt": 3}, [2], [1, 3]),
    ({"$between": [1, 3]}, [1, 2, 3.0], [0.9, 3.1, "2", True, NAN]),
    ({"$between": [2, 2]}, [2], [2.1]),
    ({"$len": 2}, ["ab", [1, 2], {"a": 1, "b": 2}, "Łó"], ["a", [1], {}, 2, None]),
    ({"$len": 2.0}, ["ab"], ["a"]),
    ({"$len": {"$gt": 1}}, ["ab", [1, 2]], ["a", [], 5]),
    ({"$len": {"$all_of": [{"$gt": 1}, {"$lt": 3}]}}, ["ab"], ["a", "abc"]),
    ({"$len": {"$one_of": [0, 2]}}, ["", "ab", []], ["a"]),
    ({"$each": {"$gt": 0}}, [[1], [1, 2]], [[], [1, 0], [1, "2"], 1, {"a": 1}]),
    ({"$each": "x"}, [["x", "x"]], [["x", "y"], "x"]),
    ({"$each": {"$gt": 0}, "$len": {"$ge": 0}}, [[], [1]], [[0]]),
    ({"$each": {"$gt": 0}, "$len": 2}, [[1, 2]], [[], [1], [1, 0]]),
    ({"$partial": {"a": 1}}, [{"a": 1}, {"a": 1.0, "b": 2}], [{"b": 1}, {"a": 2}, {"a": True}, [1], "a", {}]),
    ({"$partial": {"a": {"b": {"$gt": 1}}}}, [{"a": {"b": 2, "c": 3}, "d": 4}], [{"a": {"b": 1}}, {"a": 2}]),
    ({"$contains": {"$partial": {"a": 1}}}, [[{"a": 1, "b": 2}], [3, {"a": 1}]], [[{"b": 2}], [], {"a": 1}]),
    ({"$partial": {"a": 1, "b": {"$absent": True}}}, [{"a": 1, "c": 3}], [{"a": 1, "b": 2}]),
    ({"$unordered": [1, 2, 2]}, [[2, 1, 2], [2.0, 2, 1]], [[1, 2], [1, 1, 2], [1, 2, 2, 2], {1, 2}, "122"]),
    ({"$unordered": [{"$gt": 1}, 5]}, [[5, 6], [6, 5], [5, 5]], [[5, 1], [6, 6], [5]]),
    ({"$unordered": [{"$one_of": [1, 2]}, {"$one_of": [1, 3]}, 1]}, [[1, 2, 3], [3, 2, 1]], [[1, 1, 2, 3], [2, 3, 2]]),
    ({"$unordered": [{"a": 1}, {"a": 2}]}, [[{"a": 2}, {"a": 1}]], [[{"a": 1}, {"a": 1}]]),
    ({"$unordered": [[2, 1]]}, [[[2, 1]]], [[[1, 2]]]),
    ({"$unordered": [True, 1]}, [[1, True]], [[1, 1], [True, True]]),
    ({"$date": DATE}, [DATE, "2025-12-31T10:00:00Z", "20251231"], ["2026-01-01", "31.12.2025", 20251231, None, ""]),
    ({"$ip_address": ["10.0.0.0/8", "fd00::/8"]}, ["10.1.2.3", "fd00::1"], ["11.0.0.1", "::1", "10.0.0.0/8", 5, None]),
    ({"$literal": {"$gt": 5}}, [{"$gt": 5}, {"$gt": 5.0}], [6, {"$gt": 6}]),
    ({"$literal": "{{ input.x }}"}, ["{{ input.x }}"], ["x"]),
    ({"$literal": {"$literal": 1}}, [{"$literal": 1}], [1]),
    ({"a": {"$literal": [{"$any": True}]}}, [{"a": [{"$any": True}]}], [{"a": [1]}]),
    ({"$eq": {"$literal": {"$eq": 1}}}, [{"$eq": 1}], [1]),
    ({"$regex": {"$literal": "{{ input.x }}|a"}}, ["a"], ["x"]),
    ({"$ref": "#/a", "type": "x"}, [{"$ref": "#/a", "type": "x"}], [{"type": "x"}]),
    ({}, [{}], [{"a": 1}, None, []]),
    ([], [[]], [[1], None, {}]),
    ([1, {"$gt": 1}], [[1, 2]], [[1, 1], [1], [1, 2, 3], [2, 1]]),
]


@pytest.mark.parametrize(("expected", "accepted", "refused"), TABLE, ids=[str(row[0])[:60] for row in TABLE])
def test_an_operator_accepts_and_refuses_what_the_table_says(
    expected: Any, accepted: list[Any], refused: list[Any]
) -> None:
    matcher = compile_value(expected, mode="equal")
    for actual in accepted:
        assert matcher.is_match(actual), actual
        assert matcher.explain(actual) == []
        assert matcher.is_equal(actual)
    for actual in refused:
        assert not matcher.is_match(actual), actual
        assert matcher.explain(actual) != []


@pytest.mark.parametrize("expected", [row[0] for row in TABLE], ids=[str(row[0])[:60] for row in TABLE])
def test_not_accepts_exactly_what_the_operator_refuses(expected: Any) -> None:
    plain, opposite = compile_value(expected, mode="equal"), compile_value({"$not": expected}, mode="equal")
    values = [value for row in TABLE for value in row[1] + row[2]]
    assert [plain.is_match(value) for value in values] == [not opposite.is_match(value) for value in values]


def test_the_table_has_a_row_for_every_operator() -> None:
    used = {key for expected, _, _ in TABLE if isinstance(expected, dict) for key in expected}
    builtin = {name for name in list_operators() if name[1:] not in OPERATORS}
    assert builtin <= used | {"$absent", "$judge", "$similar"}  # which models decide: test_judged.py, test_similar.py


ABSENCE = [
    ({"$absent": True}, True),
    ({"$any": True}, False),
    ({"$one_of": ["x", {"$absent": True}]}, True),
    ({"$one_of": [{"$one_of": [{"$absent": True}]}, 1]}, True),
    ({"$one_of": ["x", "y"]}, False),
    ({"$one_of": [{"$any": True}, {"$absent": True}]}, True),
    ({"$not": {"$absent": True}}, False),
    ({"$not": {"$any": True}}, True),
    ({"$not": "x"}, False),
    ({"$ne": "x"}, False),
    ({"$not": {"$one_of": ["x", {"$absent": True}]}}, False),
    ({"$not": {"$not": {"$absent": True}}}, True),
    ({"$all_of": [{"$one_of": ["x", {"$absent": True}]}, {"$one_of": [{"$absent": True}, "x"]}]}, True),
    ({"$all_of": [{"$one_of": ["x", {"$absent": True}]}, {"$eq": "x"}]}, False),
    ({"$all_of": [{"$any": True}, {"$one_of": ["x", {"$absent": True}]}]}, False),
    ({"$type": "null"}, False),
    ({"$len": 0}, False),
    (None, False),
]


@pytest.mark.parametrize("mode", ["equal", "contain", "partial"])
@pytest.mark.parametrize(("expected", "accepted"), ABSENCE)
def test_an_argument_may_be_missing_only_where_absence_is_spoken_of(mode: Any, expected: Any, accepted: bool) -> None:
    matcher = compile_value({"a": expected, "b": 1}, mode=mode)
    assert compile_value(expected, mode=mode).accepts_absence is accepted
    assert matcher.is_match({"b": 1}) is accepted
    found = matcher.explain({"b": 1})
    assert [mismatch.code for mismatch in found] == ([] if accepted else ["missing"])


def test_null_is_not_missing() -> None:
    assert not compile_value({"a": None}, mode="equal").is_match({})
    assert not compile_value({}, mode="equal").is_match({"a": None})
    assert not compile_value({"a": {"$absent": True}}, mode="equal").is_match({"a": None})


def test_what_must_not_be_sent_is_named_with_its_value() -> None:
    found = compile_value({"a": {"$absent": True}}, mode="equal").explain({"a": 5}, ("arguments",))
    assert [str(mismatch) for mismatch in found] == ["arguments.a: expected not to be sent, got 5"]
