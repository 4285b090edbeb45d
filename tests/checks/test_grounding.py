"""`grounded`: what is traceable, rule by rule, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.checks.compile import compile_expectation
from evalkit.checks.expectation import Judgement
from evalkit.checks.grounding import Grounding, find_dates, find_numbers, find_times
from evalkit.operators.phrases import fold_text
from evalkit.records.case import Declaration
from evalkit.records.transcript import FunctionCall, Transcript

MAIL = (
    "Dear team,\nmy HeatLine  S2 boiler (serial SN-48213, order 0042) broke on December 31, 2025 at 5:30 pm.\n"
    "I paid $1,234.50 for it; 12 months ago. Yours, Zażółć Gęślą <jan.nowak@example.com>, tel. 555 123 456"
)

TRACEABLE: list[Any] = [
    None,
    True,
    "",
    [],
    {},
    "HeatLine S2",
    "HEATLINE\ts2",
    "zaz\u0307o\u0301łc\u0301",
    "jan.nowak@example.com",
    "SN-48213",
    "SN48213",
    "sn 48213",
    "SN 48 213",
    "48213",
    "0042",
    1234.5,
    "1234.50",
    "1.234,50",
    "1 234,50 $",
    12,
    12.0,
    "2025-12-31",
    "31.12.2025",
    "12/31/2025",
    "31 grudnia 2025",
    "2025-12-31T17:30:00Z",
    "2025-12-31T00:00:00+01:00",
    "2025-12-31 17:30",
    "17:30",
    "5:30 PM",
    "boiler, HeatLine S2",
    "SN48213 - 12/31/2025",
    "boiler-SN48213",
    "nowak/boiler",
    ["SN-48213", {"when": "2025-12-31", "n": 12}],
    "boiler!",
    "…",
]
NOT_TRACEABLE: list[Any] = [
    "SN-48214",
    "SN4821",
    "N48213",
    "Heat",
    "42",
    42,
    -12,
    13,
    1234.51,
    "1234",
    float("nan"),
    float("inf"),
    "2025-12-30",
    "12.31.2025 10:00",
    "18:30",
    "2025-12-31T18:30:00Z",
    "boiler, SN-1",
    "Dear customer",
    "jan.nowak@example.co",
    "nowak@example.com.pl",
    "S2-SN",
    "a/b",
    ["SN-48213", "SN-1"],
    {"a": {"b": [1234.5, 7]}},
]


def ungrounded(value: Any, told: Any = None, *, results: tuple[Any, ...] = (), **options: Any) -> list[Any]:
    """The values in an argument that can't be traced to what was told, or to the results of earlier calls."""
    expectation, problems = compile_expectation({"grounded": True}, **options)
    assert problems == []
    earlier = [FunctionCall(name="f", result=result, index=i, turn=i) for i, result in enumerate(results)]
    call = FunctionCall(name="g", arguments={"a": value}, index=len(earlier), turn=len(earlier))
    judgement = expectation.judge(Transcript(calls=(*earlier, call)), input=told)
    return [reason.actual for reason in judgement.reasons]


@pytest.mark.parametrize("value", TRACEABLE, ids=repr)
def test_a_value_that_stands_in_the_input_is_traceable(value: Any) -> None:
    assert ungrounded(value, {"email": {"body": MAIL}}) == []


@pytest.mark.parametrize("value", NOT_TRACEABLE, ids=repr)
def test_a_value_that_stands_nowhere_is_not(value: Any) -> None:
    assert len(ungrounded(value, {"email": {"body": MAIL}})) == 1


def test_results_of_earlier_calls_ground_values() -> None:
    result = {"ticket": {"id": "TKT-7", "count": 3, "due": "2026-02-01"}, "SN99": "found"}
    for value in ("TKT-7", 3, "3", "1 February 2026", "SN99"):
        assert ungrounded(value, None, results=(result,)) == []
    assert ungrounded("TKT-8", None, results=(result,)) == ["TKT-8"]


def test_a_failed_call_tells_the_agent_something_too() -> None:
    error = {"error": {"type": "not_found", "message": "no SN-1; did you mean SN-2?"}}
    assert ungrounded("SN-2", None, results=(error,)) == []


def test_a_call_does_not_ground_itself_or_what_came_before_it(judged: Callable[..., Judgement]) -> None:
    made = [("a", {"id": "X-77"}, {"id": "X-77"}), ("b", {"id": "X-77"})]
    assert [reason.call for reason in judged({"grounded": True}, made).reasons] == [0]


def test_calls_of_one_model_turn_do_not_know_each_other(judged: Callable[..., Judgement]) -> None:
    made = [{"name": "a", "result": "X-77", "turn": 0}, {"name": "b", "arguments": {"id": "X-77"}, "turn": 0}]
    assert judged({"grounded": True}, made).status == "failed"
    assert judged({"grounded": True}, [made[0], {**made[1], "turn": 1}]).status == "passed"


def test_what_the_user_says_later_grounds_nothing_now(judged: Callable[..., Judgement]) -> None:
    told = {"turns": [{"user": "Hello"}, {"user": "It is SN-1"}]}
    for turn, status in ((0, "failed"), (1, "passed")):
        made = [{"name": "a", "arguments": {"id": "SN-1"}, "user_turn": turn}]
        assert judged({"grounded": True}, made, given=told).status == status


def test_turns_of_the_user_may_be_plain_texts(judged: Callable[..., Judgement]) -> None:
    made = [{"name": "a", "arguments": {"id": "SN-1"}, "user_turn": 1}]
    assert judged({"grounded": True}, made, given={"turns": ["Hello", "It is SN-1"]}).status == "passed"
    assert judged({"grounded": True}, made, given={"turns": [{"user": "Hello", "note": "SN-1"}]}).status == "failed"


IDENTIFIERS = [
    ("SN123", "sn 123", True),
    ("SN-123", "SN123", True),
    ("sn12", "SN 12", False),
    ("heatline", "heat line", False),
    ("heat-lines", "heatlines", False),
    ("1-2345", "12345", False),
    ("SN12345", "XSN 12345", False),
    ("SN12345", "SN_12345", False),
    ("SN#123", "SN123", False),
]


@pytest.mark.parametrize(("value", "told", "traceable"), IDENTIFIERS)
def test_identifiers_may_be_written_with_and_without_spaces_and_hyphens(value: str, told: str, traceable: bool) -> None:
    assert (ungrounded(value, told) == []) is traceable


def test_mocks_in_the_input_are_no_knowledge() -> None:
    for key in ("mock_function_responses", "mock_responses"):
        assert ungrounded("TKT-9", {"message": "Hi", key: {"create_ticket": {"id": "TKT-9"}}}) == ["TKT-9"]


def test_what_the_declaration_offers_is_traceable() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {
                "anyOf": [{"enum": ["low", 7]}, {"type": "object", "properties": {"b": {"const": "x", "default": "y"}}}]
            }
        },
    }
    declared = {"g": Declaration(name="g", parameters=schema)}
    assert ungrounded(["low", 7, {"b": "x"}, "y"], None, declarations=declared) == []
    assert ungrounded("high", None, declarations=declared) == ["high"]


def test_a_declaration_offers_its_values_to_one_expected_call_too() -> None:
    """Whatever else the schema says beside them."""
    schema = {
        "type": "object",
        "properties": {"level": {"enum": ["low"]}, "tag": {"anyOf": [{"const": "x"}, {"default": "y"}]}},
        "required": ["level"],
    }
    declared = {"g": Declaration(name="g", parameters=schema)}
    expected = {"expected_function_calls": [{"function_name": "g", "grounded": True}]}
    expectation, _ = compile_expectation(expected, declarations=declared)

    def status(**arguments: Any) -> str:
        return expectation.judge(Transcript(calls=(FunctionCall(name="g", arguments=arguments),)), input="Hi").status

    assert status(level="low", tag="x") == status(level="low", tag="y") == "passed"
    assert status(level="high") == status(level="low", tag="z") == "failed"


def test_grounded_false_demands_nothing_of_a_call(judged: Callable[..., Judgement]) -> None:
    expected = {"expected_function_calls": [{"function_name": "a", "grounded": False}]}
    assert judged(expected, [("a", {"id": "X-1"})]).status == "passed"


def test_other_arguments_of_a_call_need_not_be_traceable(judged: Callable[..., Judgement]) -> None:
    expected = {"expected_function_calls": [{"function_name": "a", "grounded": ["id"]}]}
    made = [("a", {"id": "X-1", "body": "Dear all"})]
    assert judged(expected, made, given={"message": "X-1"}).status == "passed"


def test_only_named_arguments_are_traced(judged: Callable[..., Judgement]) -> None:
    made = [("a", {"id": "X-1", "body": "Dear all"})]
    assert judged({"grounded": "body"}, made).reasons[0].path == ("body",)
    assert judged({"grounded": ["id", "other"]}, made, given={"message": "X-1"}).status == "passed"
    one = {"expected_function_calls": [{"function_name": "a", "grounded": ["id"]}]}
    assert judged(one, made).reasons[0].path == ("id",)


def test_every_ungrounded_value_is_named_with_its_path(told: Callable[..., list[str]]) -> None:
    made = [("a", {"x": {"y": ["SN-1", "SN-2"]}, "z": 5})]
    where = "is neither in the input nor in an earlier result"
    assert told({"grounded": True}, made, given="SN-1") == [
        f'ungrounded_argument: call 1, a: arguments.x.y[1]: "SN-2" {where}',
        f"ungrounded_argument: call 1, a: arguments.z: 5 {where}",
    ]


def test_the_whole_case_has_one_line(judged: Callable[..., Judgement]) -> None:
    assert judged({"grounded": True}, ["a"]).checks[0].message == "every value is traceable"
    made = [("a", {"x": 1}), ("b", {"y": 2, "z": 3})]
    assert judged({"grounded": True}, made).checks[0].message == "2 calls with untraceable values"
    assert judged({"grounded": True}, made[:1]).checks[0].message == "1 call with untraceable values"


def test_arguments_that_are_no_mapping_are_traced_as_a_whole(judged: Callable[..., Judgement]) -> None:
    assert judged({"grounded": True}, [("a", "SN-9")]).reasons[0].message == (
        'call 1, a: arguments: "SN-9" is neither in the input nor in an earlier result'
    )
    assert judged({"grounded": "id"}, [("a", ["SN-9"])]).status == "passed"


PIECES = [
    ("It costs 1,500 EUR", "500", False),
    ("It costs 1,500 EUR", "500 EUR", False),
    ("It costs 1,500 EUR", "1500", True),
    ("It costs 1,500 EUR", "1,500 EUR", True),
    ("It weighs 10.5 kg", "10", False),
    ("It weighs 10.5 kg", "10.5", True),
    ("items 1,2,3", "2", False),
    ("items 1, 2, 3", "2", True),
    ("on 31.12.2025", "31.12", True),
    ("on 31.12.2025", "2025", True),
    ("on 31.12.2025", "1.12", False),
    ("room 12, please", "12", True),
    ("It is 12.", "12", True),
]


@pytest.mark.parametrize(("told", "value", "traceable"), PIECES)
def test_a_piece_of_a_number_is_no_fact(told: str, value: str, traceable: bool) -> None:
    """Who reads 1,500 and says 500 has made it up. A day and month are what a date says."""
    call = FunctionCall(name="f", arguments={"x": value}, index=0)
    assert (Grounding({"message": told}, []).find_untraced(call, {"x": value}) == []) is traceable


DATES = [
    ("2025-12-31", [date(2025, 12, 31)]),
    ("2025/1/5", [date(2025, 1, 5)]),
    ("03/04/2025", [date(2025, 4, 3), date(2025, 3, 4)]),
    ("31.12.2025", [date(2025, 12, 31)]),
    ("13-13-2025", []),
    ("2025-02-30", []),
    ("on Dec. 3rd, 2025", [date(2025, 12, 3)]),
    ("am 3. März 2025", [date(2025, 3, 3)]),
    ("le 14 juillet 2025", [date(2025, 7, 14)]),
    ("3 de mayo de 2025", [date(2025, 5, 3)]),
    ("1st of May 2025", [date(2025, 5, 1)]),
    ("1.2.2025.7", [date(2025, 2, 1), date(2025, 1, 2)]),
    ("x2025-12-31", []),
    ("12025-12-31", []),
    ("2025-12-311", []),
]


@pytest.mark.parametrize(("text", "days"), DATES)
def test_dates_are_read_in_every_common_notation(text: str, days: list[date]) -> None:
    found = [found.readings for found in find_dates(fold_text(text))]
    assert found == ([frozenset(days)] if days else [])


TIMES = [
    ("17:30", (17, 30, 0)),
    ("5:30 pm", (17, 30, 0)),
    ("5 p.m.", (17, 0, 0)),
    ("12 am", (0, 0, 0)),
    ("12:05pm", (12, 5, 0)),
    ("08:15:59.250", (8, 15, 59)),
    ("08:15 utc", (8, 15, 0)),
    ("24:00", None),
    ("13 pm", None),
    ("0 am", None),
    ("9:60", None),
    ("10", None),
]


@pytest.mark.parametrize(("text", "time"), TIMES)
def test_times_are_read_on_both_clocks(text: str, time: Any) -> None:
    found = [found.readings for found in find_times(text)]
    assert found == ([frozenset({time})] if time else [])


NUMBERS: list[tuple[str, list[list[str]]]] = [
    ("5", [["5"]]),
    ("1,234", [["1234", "1.234"]]),
    ("1.234,50", [["1234.5"]]),
    ("1,234.50", [["1234.5"]]),
    ("1 234,50", [["1234.5"]]),
    ("1'234", [["1234"]]),
    ("1,234,567", [["1234567"]]),
    ("12,34", [["12.34"]]),
    ("1.2.3", []),
    ("1,23,456.7", []),
    ("007", []),
    ("0.5", [["0.5"]]),
    ("0", [["0"]]),
    ("-5", [["-5"]]),
    ("3-5", [["3"], ["5"]]),
    ("sn5", []),
    ("5kg", [["5"]]),
    ("$5, or 6.", [["5"], ["6"]]),
    ("10", [["10"]]),
    ("05", []),
    ("1234.567", [["1234.567"]]),
    ("123,456", [["123456", "123.456"]]),
    ("1,234.567", [["1234.567"]]),
    ("1.234.567,89", [["1234567.89"]]),
    ("12.345.67", []),
    ("1,00.5", []),
    ("1,234,56.7", []),
    ("9" * 100, [["9" * 100]]),
    ("9" * 101, []),
]


@pytest.mark.parametrize(("text", "readings"), NUMBERS)
def test_numbers_are_read_with_every_meaning_of_their_separators(text: str, readings: list[list[str]]) -> None:
    assert [set(found.readings) for found in find_numbers(text)] == [set(map(Decimal, found)) for found in readings]


@pytest.mark.parametrize(
    ("text", "whole", "pieces"),
    [("1 234,50", ["1234.5"], ["1", "234.5"]), ("-1'234", ["-1234"], ["-1", "-234"]), ("007 123", [], ["123"])],
)
def test_a_number_in_groups_may_be_several_numbers(text: str, whole: list[str], pieces: list[str]) -> None:
    (found,) = find_numbers(text)
    assert (set(found.readings), set(found.pieces)) == (set(map(Decimal, whole)), set(map(Decimal, pieces)))


@pytest.mark.parametrize(
    "value", ["1 234,51", "1'235.50", "1'999'234.50", "1 234 1,50", "12 345", "1 234,50 and 4 234,50"]
)
def test_an_amount_that_shares_a_group_of_digits_is_another_amount(value: str) -> None:
    assert ungrounded(value, "I paid 1 234,50 and then 1'234.50 again, 4 times.") == [value]


PHONES = "Call +48 601-234-567 or (555) 123-4567, order 4488-221."


@pytest.mark.parametrize(
    "value", ["48601234567", "+48601234567", "601 234 567", "5551234567", "555-123-4567", "(555)1234567", "4488221"]
)
def test_a_long_number_may_be_grouped_in_another_way(value: str) -> None:
    assert ungrounded(value, PHONES) == []


@pytest.mark.parametrize("value", ["48601234568", "4488222", "5551234", "1234567555", "01234567"])
def test_a_long_number_is_traced_as_a_whole(value: str) -> None:
    assert ungrounded(value, PHONES) == [value]


@pytest.mark.parametrize("value", ["30-238", "12/00", "19/12"])
def test_short_numbers_that_are_joined_are_no_numbers_of_their_own(value: str) -> None:
    assert ungrounded(value, "12 Long Street, flat 30, 00-238 Warszawa, 19%") == [value]


def test_numbers_side_by_side_are_traced_one_by_one() -> None:
    assert ungrounded(["12 345", 12, 345, 12345], "rooms 12 345") == []
    assert ungrounded("12 345", "room 345 on floor 12") == []
    assert ungrounded("+48 601 234 567", "call +48 601-234-567") == []


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_a_text_between_words_is_always_traceable(before: str, value: str, after: str) -> None:
    """What stands in the input as it is, with a space on either side, is found whatever it is."""
    assert ungrounded(value, {"message": f"{before} {value} {after}"}) == []


@given(st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_in_a_result_is_always_traceable(number: float) -> None:
    assert ungrounded(number, None, results=({"n": [number]},)) == []
