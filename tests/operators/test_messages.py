"""What a person reads where a value is not as expected: both values, the path, and why where it is easy to overlook."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.operators.compile import compile_value
from evalkit.text.format import describe_type, format_value

LONG = (
    "The warranty of your device SN12345 " + "has been checked by our team and " * 8 + "it ends on 2025-12-31. Regards"
)

WRONG: list[tuple[Any, str, Any, str]] = [
    ("Łódź", "equal", "Lodz", 'expected "Łódź", got "Lodz"'),
    ("a", "equal", "A", 'expected "a", got "A" (they differ only in case)'),
    (
        r"SN\d+",
        "equal",
        "SN1",
        r'expected "SN\\d+", got "SN1" (a text is no pattern; for one write {$regex: "SN\\d+"})',
    ),
    ("Dr. Ng", "equal", "Dr. No", 'expected "Dr. Ng", got "Dr. No"'),
    ("a b", "equal", "a  b ", 'expected "a b", got "a  b " (they differ only in whitespace)'),
    ("\u00e9", "equal", "e\u0301", 'expected "\u00e9", got "e\u0301" (they differ only in Unicode normalisation)'),
    (5, "equal", "5", 'expected 5, got "5" ("5" is a string, expected the number 5)'),
    (5, "equal", "5.0", 'expected 5, got "5.0" ("5.0" is a string, expected the number 5)'),
    ("5", "equal", 5, 'expected "5", got 5 (5 is a number, expected the string "5")'),
    (True, "equal", 1, "expected true, got 1 (1 is a number, expected the boolean true)"),
    (1, "equal", True, "expected 1, got true (true is a boolean, expected the number 1)"),
    (True, "equal", "True", 'expected true, got "True" ("True" is a string, expected the boolean true)'),
    ("no", "equal", False, 'expected "no", got false ("no" is a string; for the boolean write false)'),
    ("1e3", "equal", 1000, 'expected "1e3", got 1000 ("1e3" is a string; for the number write 1000)'),
    ("x", "equal", False, 'expected "x", got false'),
    ("x", "equal", 5, 'expected "x", got 5'),
    (None, "equal", "null", 'expected null, got "null" ("null" is a string, expected null)'),
    (None, "equal", "None", 'expected null, got "None" ("None" is a string, expected null)'),
    (5, "equal", None, "expected 5, got null"),
    (5, "equal", "five", 'expected 5, got "five"'),
    (5, "equal", [5], "expected 5, got [5]"),
    ([1], "equal", (1,), "expected [1], got <tuple (1,)> (it is a tuple, which is not JSON)"),
    ({"a": 1}, "equal", '{"a": 1}', 'expected {"a": 1}, got "{\\"a\\": 1}" (it is a string that holds JSON)'),
    ([1], "equal", "[1]", 'expected [1], got "[1]" (it is a string that holds JSON)'),
    ([1], "equal", "[1, so", 'expected [1], got "[1, so"'),
    ({"a": 1}, "equal", "{it} is 1", 'expected {"a": 1}, got "{it} is 1"'),
    ({"a": 1}, "equal", [1], 'expected {"a": 1}, got [1]'),
    ("valid", "contain", "expired", 'expected a text that contains "valid", got "expired"'),
    (
        "valid",
        "contain",
        "invalid",
        'expected a text that contains "valid", got "invalid" (it is there only inside a longer word)',
    ),
    (
        "5",
        "contain",
        5,
        'expected a text that contains "5", got 5 (5 is a number, expected the string "5")',
    ),
    (
        "ends on 2026",
        "contain",
        LONG,
        'expected a text that contains "ends on 2026", got '
        '"…checked by our team and has been checked by our team and it ends on 2025-12-31. Regards"',
    ),
    ({"a": "x"}, "contain", "x", 'expected a mapping with {"a": a text that contains "x"}, got "x"'),
    (["x"], "contain", "x", 'expected a list with [a text that contains "x"], got "x"'),
    ({"$gt": 5}, "equal", 4, "expected a number > 5, got 4"),
    ({"$ge": 5}, "equal", "7", 'expected a number ≥ 5, got "7" (it is a string, not a number)'),
    ({"$lt": 5}, "equal", True, "expected a number < 5, got true (it is a boolean, not a number)"),
    ({"$le": 5.5}, "equal", None, "expected a number ≤ 5.5, got null"),
    ({"$between": [1, 2]}, "equal", 3, "expected a number from 1 to 2, got 3"),
    ({"$approx": 3.14, "$abs": 0.01}, "equal", 3.2, "expected 3.14 ± 0.01, got 3.2 (0.06 away)"),
    ({"$approx": 3, "$rel": 0.1}, "equal", 4, "expected 3 ± 0.1 of it, got 4 (1 away)"),
    ({"$approx": 3, "$rel": 0.1, "$abs": 1}, "equal", 5, "expected 3 ± 1 or 0.1 of it, got 5 (2 away)"),
    ({"$approx": 3}, "equal", "3", 'expected approximately 3, got "3" (it is a string, not a number)'),
    ({"$type": "integer"}, "equal", "5", 'expected an integer, got "5" (it is a string, not a number)'),
    ({"$type": "integer"}, "equal", 5.5, "expected an integer, got 5.5"),
    (
        {"$type": ["string", "null"]},
        "equal",
        5,
        "expected a string or null, got 5 (it is a number, not a string or null)",
    ),
    ({"$regex": "a+"}, "equal", "b", 'expected a string that matches "a+", got "b"'),
    (
        {"$regex": "a+"},
        "equal",
        "aab",
        'expected a string that matches "a+", got "aab" (a part of it matches; that is $search, '
        "$regex wants the whole string)",
    ),
    ({"$regex": r"SN\d+"}, "equal", "x", r'expected a string that matches "SN\d+", got "x"'),
    ({"$regex": "a\n"}, "equal", "x", 'expected a string that matches "a\\n", got "x"'),
    (
        {"$search": "a+"},
        "equal",
        5,
        'expected a string with a part that matches "a+", got 5 (it is a number, not a string)',
    ),
    ({"$contains": "a"}, "equal", "b", 'expected a string or list with "a" in it, got "b"'),
    (
        {"$contains": "a"},
        "equal",
        "A",
        'expected a string or list with "a" in it, got "A" (it is there in another case)',
    ),
    ({"$icontains": "a"}, "equal", "b", 'expected a string or list with "a" in it, in any case, got "b"'),
    ({"$contains": 5}, "equal", [4], "expected a list with an item that is 5, got [4]"),
    ({"$starts_with": "SN"}, "equal", "X1", 'expected a string that starts with "SN", got "X1"'),
    (
        {"$ends_with": ".com"},
        "equal",
        "x.COM",
        'expected a string that ends with ".com", got "x.COM" (it does in another case)',
    ),
    ({"$starts_with": "Dear"}, "equal", LONG, f'expected a string that starts with "Dear", got "{LONG[:64]}…"'),
    ({"$one_of": ["a", "b"]}, "equal", "B", 'expected "a" or "b", got "B" (they differ only in case)'),
    ({"$one_of": [1, 2]}, "equal", "2", 'expected 1 or 2, got "2" ("2" is a string, expected the number 2)'),
    (
        {"$one_of": [{"k": "a", "n": 1}, {"k": "b", "n": 2}]},
        "equal",
        {"k": "b", "n": 3},
        'expected {"k": "a", "n": 1} or {"k": "b", "n": 2}, got {"k": "b", "n": 3} '
        "(nearest is alternative 2: n: expected 2, got 3)",
    ),
    ({"$not": "a"}, "equal", "a", 'expected anything but "a", got "a"'),
    ({"$ne": 5}, "equal", 5.0, "expected anything but 5, got 5.0"),
    ({"$len": 2}, "equal", "abc", 'expected a length that is 2, got length 3: "abc"'),
    ({"$len": {"$gt": 2}}, "equal", 5, "expected a string, list or mapping with a length that is a number > 2, got 5"),
    (
        {"$each": 1},
        "equal",
        [],
        "expected a list of which each item is 1, got [] ($each accepts an empty list only with $len beside it)",
    ),
    ({"$unordered": [1]}, "equal", "1", 'expected in any order [1], got "1"'),
    ({"$date": "2025-12-31"}, "equal", "2026-01-01", 'expected the date 2025-12-31, got "2026-01-01"'),
    (
        {"$date": "2025-12-31"},
        "equal",
        "soon",
        'expected the date 2025-12-31, got "soon" (it is no ISO 8601 date or date-time)',
    ),
    ({"$date": "2025-12-31"}, "equal", 5, "expected the date 2025-12-31, got 5 (it is a number, not a string)"),
    (
        {"$date": "2025-12-31T10:00:00Z"},
        "equal",
        "2025-12-31",
        'expected the instant 2025-12-31T10:00:00Z, got "2025-12-31" (it is a day, without a time)',
    ),
    (
        {"$date": "2025-12-31T10:00:00Z"},
        "equal",
        "2025-12-31T10:00:00",
        'expected the instant 2025-12-31T10:00:00Z, got "2025-12-31T10:00:00" '
        "(it has no offset, so it names no instant)",
    ),
    (
        {"$date": "2025-12-31T10:00"},
        "equal",
        "2025-12-31T11:00",
        'expected the time 2025-12-31T10:00, got "2025-12-31T11:00"',
    ),
]


@pytest.mark.parametrize(("expected", "mode", "actual", "message"), WRONG, ids=[row[3][:70] for row in WRONG])
def test_a_wrong_value_is_shown_beside_what_was_wanted(expected: Any, mode: Any, actual: Any, message: str) -> None:
    (found,) = compile_value(expected, mode=mode).explain(actual)
    assert (found.code, found.message) == ("wrong", message)
    assert found.path == ()
    assert str(found) == message


NESTED: list[tuple[Any, str, Any, list[str]]] = [
    (
        {"a": {"b": [1, {"c": "x"}]}},
        "equal",
        {"a": {"b": [1, {"c": "y"}]}},
        ['arguments.a.b[1].c: expected "x", got "y"'],
    ),
    (
        {"serial_number": "SN1", "b": 1},
        "equal",
        {"serialNumber": "SN1", "b": 1},
        [
            "arguments.serial_number: missing, expected \"SN1\" (there is a 'serialNumber')",
            'arguments.serialNumber: not expected, got "SN1"',
        ],
    ),
    (
        {"to": {"$regex": ".+@.+"}, "cc": 1},
        "contain",
        {"To": "x"},
        [
            "arguments.to: missing, expected a string that matches \".+@.+\" (there is a 'To')",
            "arguments.cc: missing, expected 1",
        ],
    ),
    ({"a": 1}, "equal", {"a": 1, 2: 3}, ["arguments['2']: not expected: the key is a number"]),
    ([1, 2, 3], "equal", [1, 3], ["arguments[1]: missing, expected 2"]),
    ([1, 3], "equal", [1, 2, 3], ["arguments[1]: not expected, got 2"]),
    ([1, 2], "equal", [2, 1], ["arguments[0]: expected 1, got 2", "arguments[1]: expected 2, got 1"]),
    ([{"$gt": 0}, 5, 6], "equal", [1, 6], ["arguments[1]: missing, expected 5"]),
    ([{"$gt": 0}, 6], "equal", [1, "x", 6], ['arguments[1]: not expected, got "x"']),
    ([{"$gt": 0}, 5, 6], "equal", [1, 7], ["arguments[1]: expected 5, got 7", "arguments[2]: missing, expected 6"]),
    (
        {"$each": {"$gt": 0}},
        "equal",
        [1, -1, "x"],
        [
            "arguments[1]: expected a number > 0, got -1",
            'arguments[2]: expected a number > 0, got "x" (it is a string, not a number)',
        ],
    ),
    ({"$unordered": [1, 2]}, "equal", [2, 3], ["arguments: no item is 1", "arguments[1]: not expected, got 3"]),
    (
        {"$unordered": [{"id": 1, "n": "a"}, {"id": 2, "n": "b"}]},
        "equal",
        [{"id": 2, "n": "b"}, {"id": 1, "n": "c"}],
        ['arguments[1].n: expected "a", got "c"'],
    ),
    (["x", "y"], "contain", ["an x", "a z"], ['arguments: no item is a text that contains "y"']),
    ([{"id": 1}], "contain", [{"id": 2}], ["arguments[0].id: expected 1, got 2"]),
    (
        {"$all_of": [{"$gt": 5}, {"$lt": 9}]},
        "equal",
        "7",
        [
            'arguments: expected a number > 5, got "7" (it is a string, not a number)',
            'arguments: expected a number < 9, got "7" (it is a string, not a number)',
        ],
    ),
]


@pytest.mark.parametrize(("expected", "mode", "actual", "lines"), NESTED)
def test_nested_differences_are_shown_as_paths(expected: Any, mode: Any, actual: Any, lines: list[str]) -> None:
    found = compile_value(expected, mode=mode).explain(actual, ("arguments",))
    assert [str(mismatch) for mismatch in found] == lines


def test_of_long_texts_the_part_around_the_first_difference_is_shown() -> None:
    (found,) = compile_value(LONG, mode="equal").explain(LONG.replace("2025-12-31", "2024-06-15"))
    assert found.message == (
        'expected "…our team and has been checked by our team and it ends on 2025-12-31. Regards", '
        'got "…our team and has been checked by our team and it ends on 2024-06-15. Regards" '
        "(first difference at character 315 of 330)"
    )


def test_a_mismatch_carries_both_values_as_data() -> None:
    wrong, missing, unexpected = compile_value({"a": {"$gt": 1}, "b": 2}, mode="equal").explain({"a": 0, "c": 3})
    assert (wrong.code, wrong.path, wrong.expected, wrong.actual) == ("wrong", ("a",), {"$gt": 1}, 0)
    assert (missing.code, missing.path, missing.expected, missing.actual) == ("missing", ("b",), 2, None)
    assert (unexpected.code, unexpected.path, unexpected.expected, unexpected.actual) == ("unexpected", ("c",), None, 3)


def test_a_list_without_an_item_is_wrong_and_not_missing() -> None:
    (found,) = compile_value({"tags": ["x"]}, mode="contain").explain({"tags": ["y"]}, ("arguments",))
    assert (found.code, found.path, found.actual) == ("wrong", ("arguments", "tags"), ["y"])


def test_a_list_of_very_many_differences_ends() -> None:
    found = compile_value(list(range(5000)), mode="equal").explain(list(range(1, 5001)), ("a",))
    assert len(found) == 101
    assert str(found[-1]) == "a: differs in more than 100 places"


SHOWN = [
    ({"a": [1, 2.0, True, None, "ł"]}, '{"a": [1, 2.0, true, null, "ł"]}'),
    (float("nan"), "NaN"),
    ("a\n\x00\x1b", '"a\\n\\u0000\\u001b"'),
    ("\ud800", '"\\ud800"'),
    ("x" * 300, '"' + "x" * 237 + '…"'),
    ([0] * 1000, "[" + "0, " * 79 + "0, …"),
    (10**5000, "<integer of 16610 bits>"),
    (b"ab", "<bytes b'ab'>"),
    ({1: (2,)}, "{1: <tuple (2,)>}"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN, ids=[text[:20] for _, text in SHOWN])
def test_values_are_shown_as_json_on_one_line_and_bounded(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_a_cycle_is_shown_as_one() -> None:
    value: list[Any] = [1]
    value.append({"again": value})
    assert format_value(value) == '[1, {"again": <cycle>}]'


def test_types_are_named_as_people_name_them() -> None:
    values: list[Any] = ["", 1, True, None, [], {}, (), {1}.__iter__(), 1j, Exception()]
    assert [describe_type(value) for value in values] == [
        *("a string", "a number", "a boolean", "null", "a list", "a mapping"),
        *("a tuple, which is not JSON", "a set_iterator, which is not JSON"),
        *("a complex, which is not JSON", "an Exception, which is not JSON"),
    ]
