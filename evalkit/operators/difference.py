"""How two plain values differ: paths, both values, and a hint where the difference is easy to overlook."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from evalkit.errors import nearest
from evalkit.operators.equality import ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, STRING, canonical, json_equal, kind
from evalkit.operators.matcher import MISSING, UNEXPECTED, WRONG, Mismatch, Path
from evalkit.operators.phrases import fold_case
from evalkit.operators.shown import WINDOW, first_difference, shown, type_shown, window

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
            yield unexpected_key(path, key, value, expected)


def missing_key(path: Path, written: Any, wanted: str, actual: dict[Any, Any], expected: Any) -> Mismatch:
    """A key that should be there. Names a key of `actual` that was probably meant, if nobody expects that one."""
    spare = [key for key in actual if kind(key) == STRING and key not in expected]
    near = nearest(path[-1], spare)
    hint = f" (there is '{near}')" if near is not None else ""
    return Mismatch(path, MISSING, f"missing, expected {wanted}{hint}", written, None)


def unexpected_key(path: Path, key: Any, value: Any, expected: Any) -> Mismatch:
    """A key that should not be there."""
    if kind(key) != STRING:
        return Mismatch((*path, shown(key)), UNEXPECTED, f"not expected: {type_shown(key)} as a key", None, value)
    return Mismatch((*path, key), UNEXPECTED, f"not expected, got {shown(value)}", None, value)


def _list_differences(expected: list[Any], actual: list[Any], path: Path) -> Iterator[Mismatch]:
    """Item by item; where the lengths differ, the items are first aligned, so that one insertion is one difference.

    Paths are indices of the actual list, but those of missing items: they are indices of the expected one.
    """
    if len(expected) == len(actual) or max(len(expected), len(actual)) > _ALIGNED:
        blocks = [(0, len(expected), 0, len(actual))]
    else:
        keys = [[canonical(item) or id(item) for item in items] for items in (expected, actual)]
        opcodes = SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes()
        blocks = [(i, j, k, m) for tag, i, j, k, m in opcodes if tag != "equal"]
    for start, end, actual_start, actual_end in blocks:
        common = min(end - start, actual_end - actual_start)
        for offset in range(common):
            at = (*path, actual_start + offset)
            yield from value_differences(expected[start + offset], actual[actual_start + offset], at)
        for index in range(start + common, end):
            value = expected[index]
            yield Mismatch((*path, index), MISSING, f"missing, expected {shown(value)}", value, None)
        for index in range(actual_start + common, actual_end):
            value = actual[index]
            yield Mismatch((*path, index), UNEXPECTED, f"not expected, got {shown(value)}", None, value)


def wrong_value(expected: Any, actual: Any) -> str:
    """``expected …, got …`` for two values that differ as a whole."""
    if kind(expected) == kind(actual) == STRING:
        return _wrong_text(expected, actual)
    return f"expected {shown(expected)}, got {shown(actual)}{type_hint(expected, actual)}"


def _wrong_text(expected: str, actual: str) -> str:
    hint = text_hint(expected, actual)
    if max(len(expected), len(actual)) <= 2 * WINDOW:
        return f"expected {shown(expected)}, got {shown(actual)}{hint}"
    at = first_difference(expected, actual)
    place = hint or f" (first difference at character {at + 1} of {len(actual)})"
    return f"expected {window(expected, at, at)}, got {window(actual, at, at)}{place}"


def text_hint(expected: str, actual: str) -> str:
    """Why two texts look alike and are not: case, whitespace, Unicode form. Leads with a space; "" if they don't."""
    if unicodedata.normalize("NFC", expected) == unicodedata.normalize("NFC", actual):
        return " (they differ only in Unicode normalisation)"
    if "".join(expected.split()) == "".join(actual.split()):
        return " (they differ only in whitespace)"
    if fold_case(expected) == fold_case(actual):
        return " (they differ only in case)"
    return ""


def type_hint(expected: Any, actual: Any) -> str:
    """Why two values that read alike are not equal: ``"5" is a string, expected the number 5``."""
    want, got = kind(expected), kind(actual)
    if not got:
        return f" ({type_shown(actual)})"
    if want == got or OBJECT in (want, got) or ARRAY in (want, got):
        return _container_hint(want, got, actual)
    if _as_text(expected, want) == _as_text(actual, got) or {want, got} == {NUMBER, BOOLEAN}:
        name = {STRING: "the string ", NUMBER: "the number ", BOOLEAN: "the boolean ", NULL: ""}[want]
        return f" ({shown(actual)} is {type_shown(actual)}, expected {name}{shown(expected)})"
    return ""


def _container_hint(want: str, got: str, actual: Any) -> str:
    if got == STRING and want in (OBJECT, ARRAY) and actual.lstrip()[:1] == ("{" if want == OBJECT else "["):
        return " (it is a string that holds JSON)"
    return ""


def _as_text(value: Any, of_kind: str) -> str:
    """What a value reads as when nobody looks at its type: ``5`` for 5, 5.0, "5" and "5.0"."""
    text = value.strip().casefold() if of_kind == STRING else shown(value)
    whole, point, fraction = text.partition(".")
    return whole if point and not fraction.strip("0") else {"none": "null"}.get(text, text)


def numeric_hint(actual: Any, *, wanted: str = NUMBER) -> str:
    """Why a value that is not of the JSON type `wanted` is none, although it may read like one."""
    got = kind(actual)
    if got == wanted:
        return ""
    return f" ({type_shown(actual)})" if not got else f" ({shown(actual, 40)} is {type_shown(actual)}, not a {wanted})"
