"""Where two plain values differ: one mismatch per place, each with its path."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from evalkit.errors import nearest
from evalkit.operators.equality import ARRAY, OBJECT, STRING, canonical, json_equal, kind
from evalkit.operators.hints import wrong_value
from evalkit.operators.matcher import MISSING, UNEXPECTED, WRONG, Mismatch, Path
from evalkit.operators.shown import shown, type_shown

_ALIGNED = 2000  # lists longer than this are compared item by item, not aligned


def value_differences(expected: Any, actual: Any, path: Path) -> Iterator[Mismatch]:
    """Every place at which `actual` is not JSON-equal to `expected`, depth first in the order of `expected`."""
    if json_equal(expected, actual):
        return
    of_kind = kind(expected)
    if of_kind == kind(actual) == OBJECT:
        yield from _mapping_differences(expected, actual, path)
    elif of_kind == kind(actual) == ARRAY:
        yield from _list_differences(expected, actual, path)
    else:
        yield Mismatch(path, WRONG, wrong_value(expected, actual), expected, actual)


def _mapping_differences(expected: dict[str, Any], actual: dict[Any, Any], path: Path) -> Iterator[Mismatch]:
    for key, value in expected.items():
        if key in actual:
            yield from value_differences(value, actual[key], (*path, key))
        else:
            yield missing_key((*path, key), value, shown(value), actual, expected)
    for key, value in actual.items():
        if key not in expected:
            yield unexpected_key(path, key, value)


def missing_key(path: Path, written: Any, wanted: str, actual: dict[Any, Any], expected: Any) -> Mismatch:
    """A key that should be there. Names the key of `actual` that was probably meant, if nobody expects that one."""
    spare = [key for key in actual if kind(key) == STRING and key not in expected]
    near = nearest(path[-1], spare)
    hint = f" (there is a '{near}')" if near is not None else ""
    return Mismatch(path, MISSING, f"missing, expected {wanted}{hint}", written, None)


def unexpected_key(path: Path, key: Any, value: Any) -> Mismatch:
    """A key that should not be there."""
    if kind(key) != STRING:
        return Mismatch((*path, shown(key)), UNEXPECTED, f"not expected: the key is {type_shown(key)}", None, value)
    return Mismatch((*path, key), UNEXPECTED, f"not expected, got {shown(value)}", None, value)


def missing_item(path: Path, written: Any, wanted: str) -> Mismatch:
    """An item that the list should have and has not; its index is that of the expected list."""
    return Mismatch(path, MISSING, f"missing, expected {wanted}", written, None)


def unexpected_item(path: Path, value: Any) -> Mismatch:
    """An item that the list should not have."""
    return Mismatch(path, UNEXPECTED, f"not expected, got {shown(value)}", None, value)


def _list_differences(expected: list[Any], actual: list[Any], path: Path) -> Iterator[Mismatch]:
    """Item by item; where the lengths differ, the items are first aligned, so that one insertion is one difference."""
    for start, end, actual_start, actual_end in _blocks(expected, actual):
        common = min(end - start, actual_end - actual_start)
        for offset in range(common):
            at = (*path, actual_start + offset)
            yield from value_differences(expected[start + offset], actual[actual_start + offset], at)
        for index in range(start + common, end):
            yield missing_item((*path, index), expected[index], shown(expected[index]))
        for index in range(actual_start + common, actual_end):
            yield unexpected_item((*path, index), actual[index])


def _blocks(expected: list[Any], actual: list[Any]) -> list[tuple[int, int, int, int]]:
    """The stretches of both lists (from, to, from, to) that stand opposite each other and differ."""
    if len(expected) == len(actual) or max(len(expected), len(actual)) > _ALIGNED:
        return [(0, len(expected), 0, len(actual))]
    keys = [[canonical(item) or id(item) for item in items] for items in (expected, actual)]
    opcodes = SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes()
    return [(i, j, k, m) for tag, i, j, k, m in opcodes if tag != "equal"]
