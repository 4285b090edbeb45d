"""What is said of two values that differ: both of them, and why where the difference is easy to overlook.

Hints lead with a space and stand in brackets, to be appended to a message; "" where there is nothing to say.
"""

from __future__ import annotations

import unicodedata
from typing import Any

from evalkit.operators.equality import ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, STRING, get_kind
from evalkit.operators.phrases import fold_case
from evalkit.operators.shown import WINDOW_SIZE, describe_type, find_first_difference, format_value, format_window

_SCALARS = frozenset({STRING, NUMBER, BOOLEAN})
_PLAIN_NAMES = {ARRAY: "a list", OBJECT: "a mapping", NULL: "null"}


def describe_difference(expected: Any, actual: Any) -> str:
    """``expected …, got …`` for two values that are not JSON-equal; of long texts the part around the difference."""
    if get_kind(expected) == get_kind(actual) == STRING:
        return _describe_text_difference(expected, actual)
    return f"expected {format_value(expected)}, got {format_value(actual)}{build_value_hint(expected, actual)}"


def _describe_text_difference(expected: str, actual: str) -> str:
    hint = build_text_hint(expected, actual)
    if max(len(expected), len(actual)) <= 2 * WINDOW_SIZE:
        return f"expected {format_value(expected)}, got {format_value(actual)}{hint}"
    at = find_first_difference(expected, actual)
    place = hint or f" (first difference at character {at + 1} of {len(actual)})"
    return f"expected {format_window(expected, at, at)}, got {format_window(actual, at, at)}{place}"


def build_value_hint(expected: Any, actual: Any) -> str:
    """Why two values that read alike are not equal: ``("5" is a string, expected the number 5)``."""
    expected_kind, actual_kind = get_kind(expected), get_kind(actual)
    if expected_kind == actual_kind == STRING:
        return build_text_hint(expected, actual)
    alike = {expected_kind, actual_kind} == {NUMBER, BOOLEAN} or _normalize_scalar(
        expected, expected_kind
    ) == _normalize_scalar(actual, actual_kind)
    if expected_kind != actual_kind and alike and expected_kind not in (ARRAY, OBJECT):
        name = {STRING: "the string ", NUMBER: "the number ", BOOLEAN: "the boolean "}.get(expected_kind, "")
        return f" ({format_value(actual)} is {describe_type(actual)}, expected {name}{format_value(expected)})"
    if expected_kind == STRING and actual_kind in (BOOLEAN, NUMBER):
        return _build_scalar_hint(expected, actual_kind)
    return (
        ""
        if actual_kind in _SCALARS and expected_kind in _SCALARS
        else build_kind_hint(actual, frozenset({expected_kind}))
    )


def _build_scalar_hint(expected: str, actual_kind: str) -> str:
    """That `no` and `1e3` are texts in a case file: ``("no" is a string; for the boolean write false)``."""
    from evalkit.operators.advice import suggest_boolean, suggest_number

    advice = suggest_boolean(expected) if actual_kind == BOOLEAN else suggest_number(expected)
    name = "boolean" if actual_kind == BOOLEAN else "number"
    return (
        f" ({format_value(expected)} is a string; for the {name} {advice})" if advice and "digits" not in advice else ""
    )


def build_text_hint(expected: str, actual: str) -> str:
    """Why two texts that look alike differ: Unicode form, whitespace, case."""
    if unicodedata.normalize("NFC", expected) == unicodedata.normalize("NFC", actual):
        return " (they differ only in Unicode normalisation)"
    if "".join(expected.split()) == "".join(actual.split()):
        return " (they differ only in whitespace)"
    if fold_case(expected) == fold_case(actual):
        return " (they differ only in case)"
    return ""


def build_kind_hint(actual: Any, kinds: frozenset[str]) -> str:
    """That a value has another type than the JSON types `wanted`, where the message does not show it clearly."""
    actual_kind = get_kind(actual)
    if not actual_kind:
        return f" (it is {describe_type(actual)})"
    if actual_kind in kinds or actual_kind not in _SCALARS:
        return ""
    if actual_kind == STRING and kinds & {OBJECT, ARRAY}:
        opening = actual.lstrip()[:1]
        holds = (opening == "{" and OBJECT in kinds) or (opening == "[" and ARRAY in kinds)
        return " (it is a string that holds JSON)" if holds else ""
    if not kinds & _SCALARS:
        return ""
    names = " or ".join(_PLAIN_NAMES.get(name, f"a {name}") for name in sorted(kinds, reverse=True))
    return f" (it is {describe_type(actual)}, not {names})"


def _normalize_scalar(value: Any, of_kind: str) -> str:
    """What a value reads as when nobody looks at its type: ``5`` for 5, 5.0, "5" and "5.0"."""
    text = value.strip().casefold() if of_kind == STRING else format_value(value)
    integer, point, fraction = text.partition(".")
    return integer if point and not fraction.strip("0") else {"none": "null"}.get(text, text)
