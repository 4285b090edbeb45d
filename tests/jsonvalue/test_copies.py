"""Snapshots are JSON data of their own."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, UserDict, deque, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.jsonvalue import NotJsonError, copy_json, to_json, to_recordable_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def containers(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [id(value), *(found for item in value.values() for found in containers(item))]
    return [id(value), *(found for item in value for found in containers(item))] if isinstance(value, list) else []


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_a_snapshot_of_json_is_equal_and_shares_no_container(value: Any) -> None:
    for snapshot in (copy_json(value), to_json(value), to_recordable_json(value)):
        assert snapshot == value
        assert json.dumps(snapshot) == json.dumps(value)
        assert not set(containers(value)) & set(containers(snapshot))


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Mode(StrEnum):
    FAST = "fast"


@dataclass
class Point:
    x: int
    tags: tuple[str, ...] = ()


class Model:
    def __init__(self, data: Any) -> None:
        self.data = data

    def model_dump(self, mode: str = "python") -> Any:
        assert mode == "json"
        return self.data


class Array:
    def tolist(self) -> list[Any]:
        return [1, (2, 3)]


Pair = namedtuple("Pair", "a b")

CONVERTED: dict[str, tuple[Any, Any]] = {
    "tuple": ((1, (2,)), [1, [2]]),
    "deque": (deque([1]), [1]),
    "set": ({"b", "a"}, ["a", "b"]),
    "named tuple": (Pair(1, 2), [1, 2]),
    "mapping": (OrderedDict(a=UserDict(b=1)), {"a": {"b": 1}}),
    "keys as json writes them": (
        {2: "i", None: "n", True: "t", Mode.FAST: "e"},
        {"2": "i", "null": "n", "true": "t", "fast": "e"},
    ),
    "enum": ([Colour.RED, Level.HIGH, Mode.FAST], ["red", 3, "fast"]),
    "dataclass": (Point(1, ("a",)), {"x": 1, "tags": ["a"]}),
    "dates": (
        [date(2026, 1, 18), datetime(2026, 1, 18, 9, tzinfo=UTC), time(9, 30)],
        ["2026-01-18", "2026-01-18T09:00:00+00:00", "09:30:00"],
    ),
    "decimal": ([Decimal("12.50"), Decimal(3), Fraction(1, 2)], [12.5, 3, 0.5]),
    "path and uuid": ([PurePosixPath("a/b"), UUID(int=1)], ["a/b", "00000000-0000-0000-0000-000000000001"]),
    "model": (Model({"a": (1,)}), {"a": [1]}),
    "array": (Array(), [1, [2, 3]]),
    "shared but not cyclic": ([shared := Point(1)] * 2, [{"x": 1, "tags": []}] * 2),
}


@pytest.mark.parametrize(("value", "expected"), CONVERTED.values(), ids=CONVERTED)
def test_what_has_one_obvious_json_form_is_converted(value: Any, expected: Any) -> None:
    assert to_json(value) == to_recordable_json(value) == expected
    assert json.dumps(to_json(value)) == json.dumps(expected)


def deep() -> Any:
    value: Any = 1
    for _ in range(500):
        value = [value]
    return value


def circle() -> Any:
    value: dict[str, Any] = {}
    value["a"] = [value, value]
    return value


REFUSED: dict[str, tuple[Any, str, Any]] = {
    "object": (object(), "<object> is not JSON", "<object>"),
    "bytes": ({"a": [b"x"]}, "at a[0]: <bytes> is not JSON", {"a": ["<bytes>"]}),
    "function": (len, "<builtin_function_or_method> is not JSON", "<builtin_function_or_method>"),
    "class": (
        {"a": Model},
        "at a: <type> is not JSON",
        {"a": "<type>"},
    ),
    "infinity": ([math.inf], "at [0]: inf is not JSON", [math.inf]),
    "a decimal that is no number": (Decimal("NaN"), "NaN is not JSON", "<decimal.Decimal>"),
    "circle": (circle(), "at a[0]: the value contains itself", {"a": ["<dict>", "<dict>"]}),
    "a key": ({(1, 2): 3}, "<tuple> is not JSON", {"<tuple>": 3}),
    "a model that fails": (
        Model(property()),
        "<property> is not JSON",
        "<property>",
    ),
}


@pytest.mark.parametrize(("value", "why", "label"), REFUSED.values(), ids=REFUSED)
def test_what_has_none_is_refused_with_its_place_or_recorded_as_a_label(value: Any, why: str, label: Any) -> None:
    with pytest.raises(NotJsonError) as raised:
        to_json(value)
    assert str(raised.value) == why
    assert to_recordable_json(value) == label


def test_depth_is_bounded() -> None:
    with pytest.raises(NotJsonError, match=r"too deep$"):
        to_json(deep())
    assert "<list>" in json.dumps(to_recordable_json(deep()))


def test_nan_stays_on_record() -> None:
    assert math.isnan(to_recordable_json({"a": math.nan})["a"])


def test_an_object_whose_conversion_fails_is_a_label() -> None:
    class Hostile:
        def model_dump(self, mode: str) -> Any:
            raise RuntimeError("no")

    with pytest.raises(NotJsonError, match=r"Hostile> failed in model_dump\(\): no$"):
        to_json([Hostile()])
    assert to_recordable_json([Hostile()])[0].endswith("Hostile>")
