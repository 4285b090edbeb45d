"""Where two plain values differ: one mismatch per place, each with its path."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from evalkit.errors import find_nearest
from evalkit.operators.equality import ARRAY, OBJECT, STRING, get_kind, is_json_equal, to_hashable
from evalkit.operators.hints import describe_difference
from evalkit.operators.matcher import MISSING, UNEXPECTED, WRONG, KeyPath, Mismatch
from evalkit.operators.shown import describe_type, format_value

_ALIGNED = 2000  # lists longer than this are compared item by item, not aligned


def find_value_differences(expected: Any, actual: Any, path: KeyPath) -> Iterator[Mismatch]:
    """Every place at which `actual` is not JSON-equal to `expected`, depth first in the order of `expected`."""
    if is_json_equal(expected, actual):
        return
    of_kind = get_kind(expected)
    if of_kind == get_kind(actual) == OBJECT:
        yield from _find_mapping_differences(expected, actual, path)
    elif of_kind == get_kind(actual) == ARRAY:
        yield from _find_list_differences(expected, actual, path)
    else:
        yield Mismatch(path, WRONG, describe_difference(expected, actual), expected, actual)


def _find_mapping_differences(expected: dict[str, Any], actual: dict[Any, Any], path: KeyPath) -> Iterator[Mismatch]:
    for key, value in expected.items():
        if key in actual:
            yield from find_value_differences(value, actual[key], (*path, key))
        else:
            yield build_missing_key((*path, key), value, format_value(value), actual, expected)
    for key, value in actual.items():
        if key not in expected:
            yield build_unexpected_key(path, key, value)


def build_missing_key(
    path: KeyPath, expected_data: Any, description: str, actual: dict[Any, Any], expected: Any
) -> Mismatch:
    """A key that should be there. Names the key of `actual` that was probably meant, if nobody expects that one."""
    spare = [key for key in actual if get_kind(key) == STRING and key not in expected]
    similar_key = find_nearest(path[-1], spare)
    hint = f" (there is a '{similar_key}')" if similar_key is not None else ""
    return Mismatch(path, MISSING, f"missing, expected {description}{hint}", expected_data, None)


def build_unexpected_key(path: KeyPath, key: Any, value: Any) -> Mismatch:
    """A key that should not be there."""
    if get_kind(key) != STRING:
        return Mismatch(
            (*path, format_value(key)), UNEXPECTED, f"not expected: the key is {describe_type(key)}", None, value
        )
    return Mismatch((*path, key), UNEXPECTED, f"not expected, got {format_value(value)}", None, value)


def build_missing_item(path: KeyPath, expected_data: Any, description: str) -> Mismatch:
    """An item that the list should have and has not; its index is that of the expected list."""
    return Mismatch(path, MISSING, f"missing, expected {description}", expected_data, None)


def build_unexpected_item(path: KeyPath, value: Any) -> Mismatch:
    """An item that the list should not have."""
    return Mismatch(path, UNEXPECTED, f"not expected, got {format_value(value)}", None, value)


def _find_list_differences(expected: list[Any], actual: list[Any], path: KeyPath) -> Iterator[Mismatch]:
    """Item by item; where the lengths differ, the items are first aligned, so that one insertion is one difference."""
    for start, end, actual_start, actual_end in _find_blocks(expected, actual):
        common = min(end - start, actual_end - actual_start)
        for offset in range(common):
            at = (*path, actual_start + offset)
            yield from find_value_differences(expected[start + offset], actual[actual_start + offset], at)
        for index in range(start + common, end):
            yield build_missing_item((*path, index), expected[index], format_value(expected[index]))
        for index in range(actual_start + common, actual_end):
            yield build_unexpected_item((*path, index), actual[index])


def _find_blocks(expected: list[Any], actual: list[Any]) -> list[tuple[int, int, int, int]]:
    """The stretches of both lists (from, to, from, to) that stand opposite each other and differ."""
    if len(expected) == len(actual) or max(len(expected), len(actual)) > _ALIGNED:
        return [(0, len(expected), 0, len(actual))]
    keys = [[to_hashable(item) or id(item) for item in items] for items in (expected, actual)]
    opcodes = SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes()
    return [(i, j, k, m) for tag, i, j, k, m in opcodes if tag != "equal"]
