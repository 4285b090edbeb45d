"""What is said of two values that differ: both of them, and why where the difference is easy to overlook.

Hints lead with a space and stand in brackets, to be appended to a message; "" where there is nothing to say.
"""

from __future__ import annotations

import unicodedata
from typing import Any

from evalkit.operators.equality import ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, STRING, kind
from evalkit.operators.phrases import fold_case
from evalkit.operators.shown import WINDOW, first_difference, shown, type_shown, window

_SCALARS = frozenset({STRING, NUMBER, BOOLEAN})
_PLAIN_NAMES = {ARRAY: "a list", OBJECT: "a mapping", NULL: "null"}


def wrong_value(expected: Any, actual: Any) -> str:
    """``expected …, got …`` for two values that are not JSON-equal; of long texts the part around the difference."""
    if kind(expected) == kind(actual) == STRING:
        return _wrong_text(expected, actual)
    return f"expected {shown(expected)}, got {shown(actual)}{value_hint(expected, actual)}"


def _wrong_text(expected: str, actual: str) -> str:
    hint = text_hint(expected, actual)
    if max(len(expected), len(actual)) <= 2 * WINDOW:
        return f"expected {shown(expected)}, got {shown(actual)}{hint}"
    at = first_difference(expected, actual)
    place = hint or f" (first difference at character {at + 1} of {len(actual)})"
    return f"expected {window(expected, at, at)}, got {window(actual, at, at)}{place}"


def value_hint(expected: Any, actual: Any) -> str:
    """Why two values that read alike are not equal: ``("5" is a string, expected the number 5)``."""
    want, got = kind(expected), kind(actual)
    if want == got == STRING:
        return text_hint(expected, actual)
    alike = {want, got} == {NUMBER, BOOLEAN} or _read(expected, want) == _read(actual, got)
    if want != got and alike and want not in (ARRAY, OBJECT):
        name = {STRING: "the string ", NUMBER: "the number ", BOOLEAN: "the boolean "}.get(want, "")
        return f" ({shown(actual)} is {type_shown(actual)}, expected {name}{shown(expected)})"
    if want == STRING and got in (BOOLEAN, NUMBER):
        return _meant_hint(expected, got)
    return "" if got in _SCALARS and want in _SCALARS else kind_hint(actual, frozenset({want}))


def _meant_hint(expected: str, got: str) -> str:
    """That `no` and `1e3` are texts in a case file: ``("no" is a string; for the boolean write false)``."""
    from evalkit.operators.advice import boolean_advice, number_advice

    advice = boolean_advice(expected) if got == BOOLEAN else number_advice(expected)
    name = "boolean" if got == BOOLEAN else "number"
    return f" ({shown(expected)} is a string; for the {name} {advice})" if advice and "digits" not in advice else ""


def text_hint(expected: str, actual: str) -> str:
    """Why two texts that look alike differ: Unicode form, whitespace, case."""
    if unicodedata.normalize("NFC", expected) == unicodedata.normalize("NFC", actual):
        return " (they differ only in Unicode normalisation)"
    if "".join(expected.split()) == "".join(actual.split()):
        return " (they differ only in whitespace)"
    if fold_case(expected) == fold_case(actual):
        return " (they differ only in case)"
    return ""


def kind_hint(actual: Any, wanted: frozenset[str]) -> str:
    """That a value has another type than the JSON types `wanted`, where the message does not show it clearly."""
    got = kind(actual)
    if not got:
        return f" (it is {type_shown(actual)})"
    if got in wanted or got not in _SCALARS:
        return ""
    if got == STRING and wanted & {OBJECT, ARRAY}:
        opening = actual.lstrip()[:1]
        holds = (opening == "{" and OBJECT in wanted) or (opening == "[" and ARRAY in wanted)
        return " (it is a string that holds JSON)" if holds else ""
    if not wanted & _SCALARS:
        return ""
    names = " or ".join(_PLAIN_NAMES.get(name, f"a {name}") for name in sorted(wanted, reverse=True))
    return f" (it is {type_shown(actual)}, not {names})"


def _read(value: Any, of_kind: str) -> str:
    """What a value reads as when nobody looks at its type: ``5`` for 5, 5.0, "5" and "5.0"."""
    text = value.strip().casefold() if of_kind == STRING else shown(value)
    whole, point, fraction = text.partition(".")
    return whole if point and not fraction.strip("0") else {"none": "null"}.get(text, text)
