"""`call_order`, `extra_calls`, groups, `times` and `optional`: what passes and what does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from evalkit.checks.compile import compile_expectation
from evalkit.checks.expectation import Expectation, Judgement
from evalkit.records.case import Declaration
from evalkit.records.transcript import FunctionCall, Transcript, Violation

CALLS = "expected_function_calls"


def search(query: str, **keys: Any) -> dict[str, Any]:
    return {"function_name": "s", "arguments": {"q": query}, **keys}


def s(query: str) -> tuple[str, dict[str, str]]:
    return "s", {"q": query}


# Which of the four combinations of call_order and extra_calls pass, in this order.
COMBINATIONS = [("strict", "forbid"), ("strict", "allow"), ("any", "forbid"), ("any", "allow")]
FOUR: list[tuple[list[Any], list[Any], str]] = [
    (["a", "b"], ["a", "b"], "1111"),
    (["a", "b"], ["b", "a"], "0011"),
    (["a", "b"], ["a", "x", "b"], "0101"),
    (["a", "b"], ["b", "x", "a"], "0001"),
    (["a", "b"], ["a"], "0000"),
    (["a", "b"], ["a", "b", "b"], "0101"),
    (["a", "b"], ["b", "a", "b"], "0101"),
    (["a", "a"], ["a"], "0000"),
    (["a", "a"], ["a", "x", "a"], "0101"),
    ([], [], "1111"),
    ([], ["a"], "0000"),
    ([search("1"), search("2")], [s("2"), s("1")], "0011"),
    (["s", search("1")], [s("1"), s("2")], "0011"),
    ([search("1"), "s"], [s("1"), s("2")], "1111"),
    ([{"function_name": "a", "times": 2}, "b"], ["a", "a", "b"], "1111"),
    ([{"function_name": "a", "times": 2}, "b"], ["a", "b", "a"], "0011"),
    ([{"function_name": "a", "times": 2}, "b"], ["a", "x", "a", "b"], "0101"),
    ([{"function_name": "a", "times": 2}], ["a", "a", "a"], "0000"),
    ([{"function_name": "a", "times": {"min": 1, "max": 3}}], ["a", "a"], "1111"),
    ([{"function_name": "a", "times": {"max": 2}}], [], "0000"),
    ([{"function_name": "a", "times": {"min": 2}}], ["a", "a", "a", "a"], "1111"),
    ([{"function_name": "a", "times": {"min": 0, "max": 1}}, "b"], ["b"], "1111"),
    ([{"function_name": "a", "optional": True}, "b"], ["b"], "1111"),
    ([{"function_name": "a", "optional": True}, "b"], ["a", "b"], "1111"),
    ([{"function_name": "a", "optional": True, "times": 2}], ["a", "a"], "1111"),
    ([{"function_name": "a", "optional": True, "times": 2}], [], "1111"),
    ([{"function_name": "a", "optional": True, "times": 2}], ["a"], "0000"),
    ([{"function_name": "a", "optional": True, "times": 2}, "b"], ["b"], "1111"),
    ([search("1", optional=True, times=2)], [s("2")], "0000"),
    ([search("1", optional=True, times=2), "b"], [s("1"), s("1"), s("2"), "b"], "0101"),
    ([search("1", optional=True, times=2), "b"], [s("1"), s("1"), s("1"), "b"], "0000"),
    ([search("1", optional=True, times={"min": 2})], [s("1"), s("1"), s("1")], "1111"),
    ([search("1", optional=True), "b"], [s("2"), "b"], "0000"),
    ([search("1", optional=True), "s"], [s("2"), s("3")], "0101"),
    ([search("1"), search("2", optional=True)], [s("1"), s("1")], "0101"),
    # Where a call may be extra, it must not take the place of one that may not.
    ([search("1", optional=True), {"function_name": "s", "times": 2}], [s("1"), s("2"), s("3")], "1111"),
    ([search("1", optional=True), {"function_name": "s", "times": 2}], [s("1"), "x", s("2"), s("3")], "0101"),
    ([search("1"), {"function_name": "s", "times": {"min": 0, "max": 1}}], [s("1"), s("1"), s("2")], "0101"),
    ([search("1"), {"function_name": "s", "times": {"min": 0, "max": 1}}], [s("1"), s("2"), s("3")], "0000"),
    ([{"any_order": ["a", "b"]}, "c"], ["b", "a", "c"], "1111"),
    ([{"any_order": ["a", "b"]}, "c"], ["b", "c", "a"], "0011"),
    ([{"any_order": ["a", "b"]}, "c"], ["b", "x", "a", "c"], "0101"),
    ([{"any_order": [{"in_order": ["a", "b"]}, {"in_order": ["c", "d"]}]}], ["a", "c", "b", "d"], "1111"),
    ([{"any_order": [{"in_order": ["a", "b"]}, {"in_order": ["c", "d"]}]}], ["b", "c", "a", "d"], "0000"),
    ([{"in_order": ["a", "b"]}, "c"], ["c", "a", "b"], "0011"),
    ([{"in_order": ["a", "b"]}, "c"], ["c", "b", "a"], "0000"),
    ([{"one_of": [["a", "b"], ["c"]]}], ["a", "b"], "1111"),
    ([{"one_of": [["a", "b"], ["c"]]}], ["c"], "1111"),
    ([{"one_of": ["a", "c"]}], ["c"], "1111"),
    ([{"one_of": [["a", "b"], ["c"]]}], ["a", "b", "c"], "0101"),
    ([{"one_of": [["a", "b"], ["c"]]}], ["a"], "0000"),
    ([{"one_of": [["a", {"any_order": ["b", "c"]}], "d"]}, "e"], ["a", "c", "b", "e"], "1111"),
    ([{"one_of": [[], ["a"]]}, "b"], ["b"], "1111"),
]


@pytest.mark.parametrize(("listed", "made", "verdicts"), FOUR)
def test_order_and_extras_combine(
    listed: list[Any], made: list[Any], verdicts: str, judged: Callable[..., Judgement]
) -> None:
    found = ""
    for order, extras in COMBINATIONS:
        expected = {CALLS: listed, "call_order": order, "extra_calls": extras}
        found += "1" if judged(expected, made).status == "passed" else "0"
    assert found == verdicts


def test_strict_and_forbid_are_the_defaults(judged: Callable[..., Judgement]) -> None:
    assert judged({CALLS: ["a", "b"]}, ["b", "a"]).status == "failed"
    assert judged({CALLS: ["a"]}, ["a", "b"]).status == "failed"


def test_without_a_list_calls_are_not_judged(judged: Callable[..., Judgement]) -> None:
    judgement = judged({"max_function_calls": 3}, ["a", "b"])
    assert judgement.status == "passed"
    assert [(line.expectation, line.results) for line in judgement.calls] == [("", ()), ("", ())]


def test_parallel_calls_share_a_model_turn(judged: Callable[..., Judgement]) -> None:
    expected = {CALLS: [{"in_parallel": ["a", "b"]}, "c"]}

    def verdict(*turns: int | None) -> str:
        made = [{"name": name, "turn": turn} for name, turn in zip("bac", turns, strict=True)]
        return judged(expected, made).status

    assert verdict(0, 0, 1) == "passed"
    assert verdict(0, 0, 0) == "passed"
    assert verdict(0, 1, 2) == "failed"
    assert verdict(None, None, None) == "error"
    assert verdict(0, None, 1) == "error"


def test_parallel_calls_may_be_out_of_order_and_apart_at_once(judged: Callable[..., Judgement]) -> None:
    expected = {CALLS: [{"in_parallel": ["a", "b"]}, "c", "d", "e"]}
    made = [{"name": name, "turn": turn} for name, turn in (("c", 0), ("a", 1), ("d", 2), ("e", 2), ("b", 3))]
    judgement = judged(expected, made)
    assert judgement.status == "failed"
    assert [reason.message for reason in judgement.reasons] == [
        "call 2, a: out of order: expected before call 1, c",
        "call 5, b: out of order: expected before call 1, c",
        "call 5, b: made in model turn 4, expected in turn 2, together with call 2, a (in_parallel)",
    ]


def test_an_alternative_may_be_a_group(judged: Callable[..., Judgement]) -> None:
    expected = {CALLS: [{"one_of": [{"in_parallel": ["a", "b"]}, "c"]}]}
    assert judged(expected, ["c"]).status == "passed"
    (reason,) = judged(expected, [{"name": "a", "turn": 0}, {"name": "b", "turn": 1}]).reasons
    assert (reason.code, reason.place) == ("not_parallel", f"expected_output.{CALLS}[0].one_of[0].in_parallel")


def test_calls_that_do_not_match_anyway_need_no_turns(judged: Callable[..., Judgement]) -> None:
    assert judged({CALLS: [{"in_parallel": ["a", "b"]}]}, ["a", "c"]).status == "failed"


def test_many_parallel_calls_may_stand_in_one_group(judged: Callable[..., Judgement]) -> None:
    """Only chains that interleave are bounded."""
    names = list("abcdefgh")
    made = [{"name": name, "turn": 0} for name in reversed(names)]
    assert judged({CALLS: [{"in_parallel": names}]}, made).status == "passed"
    assert judged({CALLS: [{"in_order": names}]}, names).status == "passed"
    assert judged({CALLS: names, "call_order": "any"}, names[::-1]).status == "passed"


def test_too_many_repetitions_are_told_where_extra_calls_are_allowed(told: Callable[..., list[str]]) -> None:
    expected = {CALLS: [{"function_name": "a", "times": {"min": 1, "max": 2}}], "extra_calls": "allow"}
    assert told(expected, ["a", "x", "a", "a"]) == [
        "unexpected_call: call 4, a: not expected: a is expected 1 to 2 times; extra_calls allows other calls only"
    ]
    assert told(expected, ["a", "x", "a"]) == []


def test_repetitions_are_counted_where_they_belong(judged: Callable[..., Judgement]) -> None:
    """An extra call that another expectation without `times` describes may be repeated."""
    counted = {"function_name": "s", "times": {"max": 1}}
    made = [s("1"), s("1"), s("1")]
    for order in ("strict", "any"):
        allow = {"extra_calls": "allow", "call_order": order}
        assert judged({CALLS: [search("1"), counted], **allow}, made).status == "passed"
        assert judged({CALLS: [search("1", times=1), counted], **allow}, made[:2]).status == "passed"
        assert judged({CALLS: [search("1", times=1), counted], **allow}, made).status == "failed"
        assert judged({CALLS: [search("1", times={"min": 0, "max": 2}), counted], **allow}, made).status == "passed"


def test_a_wrong_optional_call_is_told_where_extra_calls_are_allowed(judged: Callable[..., Judgement]) -> None:
    """ "If it is made, it must match": it is held against the expectation that comes nearest."""
    expected = {
        CALLS: [search("x", optional=True), {"function_name": "s", "arguments": {"q": "y", "n": 1}, "optional": True}],
        "extra_calls": "allow",
    }
    judgement = judged(expected, ["other", ("s", {"q": "z", "n": 1})])
    assert [reason.message for reason in judgement.reasons] == ['call 2, s: arguments.q: expected "y", got "z"']
    assert judgement.calls[1].expectation == f"expected_output.{CALLS}[1]"
    assert judgement.calls[0].status == "passed"


def test_twice_or_not_at_all_is_held_against_calls_that_differ(told: Callable[..., list[str]]) -> None:
    near = {"function_name": "s", "arguments": {"q": "y", "n": 1}, "optional": True, "times": 2}
    expected = {CALLS: [search("x", optional=True, times=2), near], "extra_calls": "allow"}
    assert told(expected, ["other", ("s", {"q": "z", "n": 1})]) == [
        'wrong_argument: call 2, s: arguments.q: expected "y", got "z"'
    ]
    assert told(expected, [s("x"), "other"]) == [
        "unexpected_call: call 1, s: not expected: s is expected 2 times or not at all; extra_calls allows other calls "
        "only"
    ]
    assert told(expected, [s("x"), "other", s("x")]) == []
    twice_and_once = [s("x"), s("x"), ("s", {"q": "y", "n": 1})]
    assert told(expected, twice_and_once) == [
        "unexpected_call: call 3, s: not expected: s is expected 2 times or not at all; extra_calls allows other calls "
        "only"
    ]


def test_an_extra_call_may_be_told_apart_by_its_text(told: Callable[..., list[str]]) -> None:
    refund = {"function_name": "mail", "body_contains": "refund", "optional": True, "times": 2}
    expected = {CALLS: [refund], "extra_calls": "allow"}
    assert told(expected, [("mail", {"body": "Refund 1"}), ("mail", {"body": "Refund 2"})]) == []
    assert told(expected, [("mail", {"body": "Hello"}), "other"]) == [
        'text_missing: call 1, mail: body does not contain "refund"'
    ]


def test_calls_of_alternatives_that_were_not_chosen_are_extra(judged: Callable[..., Judgement]) -> None:
    expected = {CALLS: [{"one_of": [search("x", optional=True), "b"]}], "extra_calls": "allow"}
    assert judged(expected, ["b", s("y")]).status == "passed"


INVALID = (Violation(path=("q",), schema_path=("type",), message="bad"),)


def test_arguments_are_valid_unless_the_case_says_otherwise(judged: Callable[..., Judgement]) -> None:
    bad = {"name": "a", "violations": INVALID}

    def status(expected: Mapping[str, Any], made: list[Any]) -> str:
        return judged(expected, made).status

    assert status({"max_function_calls": 9}, [bad]) == "failed"
    assert status({"max_function_calls": 9, "valid_arguments": False}, [bad]) == "passed"
    assert status({CALLS: ["a"]}, [bad]) == "failed"
    assert status({CALLS: ["a"], "valid_arguments": False}, [bad]) == "passed"
    assert status({CALLS: ["a"], "valid_arguments": False}, ["a"]) == "passed"
    assert status({CALLS: [{"function_name": "a", "valid": False}]}, [bad]) == "passed"
    assert status({CALLS: [{"function_name": "a", "valid": False}]}, ["a"]) == "failed"
    assert status({CALLS: [{"function_name": "a", "valid": True}], "valid_arguments": False}, [bad]) == "failed"
    assert status({CALLS: ["b"], "extra_calls": "allow"}, ["b", bad]) == "failed"


def test_a_valid_and_an_invalid_call_are_told_apart(judged: Callable[..., Judgement]) -> None:
    """The retry after a mistake: the pairing knows which call is which."""
    bad = {"name": "a", "violations": INVALID}
    expected = {CALLS: ["a", {"function_name": "a", "valid": False}], "call_order": "any"}
    assert judged(expected, [bad, "a"]).status == "passed"
    assert judged(expected, ["a", "a"]).status == "failed"


def test_a_failed_attempt_and_its_retry_are_told_apart(judged: Callable[..., Judgement]) -> None:
    failed = {"name": "a", "outcome": "error"}
    retried = {CALLS: [{"function_name": "a", "outcome": "error"}, "a"]}
    assert judged(retried, [failed, "a"]).status == "passed"
    assert judged({CALLS: ["a"]}, [failed, "a"]).reasons[0].code == "unexpected_call"
    assert judged({CALLS: ["a"], "extra_calls": "allow"}, [failed, "a"]).status == "passed"
    assert judged({CALLS: [{"function_name": "a", "outcome": "any"}]}, [failed]).status == "passed"


def test_a_call_recovered_from_text_is_not_native(judged: Callable[..., Judgement]) -> None:
    expected = {CALLS: [{"function_name": "a", "channel": "native"}]}
    assert judged(expected, [{"name": "a", "channel": "text"}]).status == "failed"
    assert judged(expected, [{"name": "a", "channel": "native"}]).status == "passed"
    assert judged({CALLS: ["a"]}, [{"name": "a", "channel": "text"}]).status == "passed"


@pytest.mark.parametrize("problem", ["unmocked_call", "unknown_function", "malformed_call"])
def test_a_refused_call_fails_every_case(problem: str, judged: Callable[..., Judgement]) -> None:
    refused = [{"name": "a", "problem": problem}]
    for expected in ({CALLS: ["a"]}, {"max_function_calls": 5}, {CALLS: [], "extra_calls": "allow"}):
        judgement = judged(expected, refused)
        assert (judgement.status, judgement.reasons[0].code) == ("failed", problem)


def test_an_alias_is_known_by_its_canonical_name(declared: Mapping[str, Declaration]) -> None:
    """Calls are recorded under the canonical name, and cases may use either."""
    for name in ("check_warranty", "warranty_check"):
        expectation, problems = compile_expectation({CALLS: [name], "final_function_call": name}, declarations=declared)
        assert problems == []
        made = (FunctionCall(name="check_warranty", requested_name="warranty_check"),)
        assert expectation.judge(Transcript(calls=made)).status == "passed"


def test_null_and_no_arguments_are_one(judged: Callable[..., Judgement]) -> None:
    nothing: list[Any] = [None, {}]
    for written in nothing:
        expected = {CALLS: [{"function_name": "a", "arguments": written}]}
        for sent in nothing:
            assert judged(expected, [("a", sent)]).status == "passed"
        assert judged(expected, [("a", {"x": None})]).status == "failed"


def test_nested_text_is_searched_piece_by_piece(compiled: Callable[..., Expectation]) -> None:
    """A list of recipients, a mapping of fields, where the function declares one: each key and leaf is a text."""
    declared = Declaration(name="a", parameters={"properties": {"x": {"type": ["array", "object", "number"]}}})

    def status(value: Any, **keys: Any) -> str:
        expectation = compiled({CALLS: [{"function_name": "a", **keys}]}, declarations={"a": declared})
        return expectation.judge(Transcript(calls=(FunctionCall(name="a", arguments={"x": value}, index=0),))).status

    assert status(["jan@example.com", "eva@example.com"], x_contains="EVA@") == "passed"
    assert status(["one", "two"], x_contains="one two") == "failed"
    assert status({"to": {"name": "Eva"}}, x_contains=["to", "eva"]) == "passed"
    assert status({"to": {"name": "Eva"}}, x_excludes="name") == "failed"
    assert status({"n": [5, True, None]}, x_contains=["5", "true"]) == "passed"
    assert status([None], x_contains="null") == "failed"
    assert status(12.5, x_contains="12.5") == "passed"


def test_the_earliest_of_equal_calls_is_the_one_that_counts(judged: Callable[..., Judgement]) -> None:
    judgement = judged({CALLS: ["a"]}, ["a", "a"])
    assert [line.status for line in judgement.calls] == ["passed", "failed"]


def test_each_call_is_explained_by_the_expectation_it_comes_nearest_to(judged: Callable[..., Judgement]) -> None:
    one = {"function_name": "s", "arguments": {"q": "1", "lang": "en", "n": 5}}
    other = {"function_name": "s", "arguments": {"q": "2", "lang": "de", "n": 9}}
    expected = {CALLS: [one, other], "call_order": "any"}
    made = [("s", {"q": "2", "lang": "de", "n": 8}), ("s", {"q": "1", "lang": "fr", "n": 5})]
    assert [reason.message for reason in judged(expected, made).reasons] == [
        "call 1, s: arguments.n: expected 9, got 8",
        'call 2, s: arguments.lang: expected "en", got "fr"',
    ]


IGNORING = {CALLS: [{"function_name": "f", "arguments": {"a": 1}}], "ignored_arguments": ["trace_id", "b"]}


@pytest.mark.parametrize(
    ("sent", "reasons"),
    [
        ({"a": 1}, []),
        ({"a": 1, "trace_id": None, "b": {"any": "thing"}}, []),
        ({"a": 2, "b": 1}, ["wrong_argument: call 1, f: arguments.a: expected 1, got 2"]),
        ({"a": 1, "c": 1}, ["unexpected_argument: call 1, f: arguments.c: not expected, got 1"]),
    ],
)
def test_ignored_arguments_may_be_sent_or_not(
    told: Callable[..., list[str]], sent: dict[str, Any], reasons: list[str]
) -> None:
    assert told(IGNORING, [("f", sent)]) == reasons


@pytest.mark.parametrize("arguments", [{}, None])
def test_a_call_without_arguments_may_be_sent_ignored_ones(judged: Callable[..., Judgement], arguments: Any) -> None:
    expected = {CALLS: [{"function_name": "f", "arguments": arguments}], "ignored_arguments": "b"}
    assert judged(expected, [("f", {"b": 1})]).status == "passed"
    assert judged(expected, [("f", {"c": 1})]).status == "failed"


def test_what_a_call_says_of_an_ignored_argument_holds(judged: Callable[..., Judgement]) -> None:
    expected = {CALLS: [{"function_name": "f", "arguments": {"b": 1}}], "ignored_arguments": ["b"]}
    assert judged(expected, [("f", {"b": 2})]).status == "failed"
    assert judged(expected, ["f"]).status == "failed"


def test_a_call_is_forbidden_with_ignored_arguments_too(judged: Callable[..., Judgement]) -> None:
    forbidden = {
        "forbidden_function_calls": [{"function_name": "f", "arguments": {"a": 1}}],
        "ignored_arguments": ["b"],
    }
    assert judged(forbidden, [("f", {"a": 1, "b": 2})]).status == "failed"
    assert judged(forbidden, [("f", {"a": 1, "c": 2})]).status == "passed"


def test_a_call_that_is_missing_is_told_without_ignored_arguments(told: Callable[..., list[str]]) -> None:
    calls = [{"function_name": "f", "arguments": {"a": 1}}, {"function_name": "f", "arguments": {"a": 2}}]
    (reason,) = told({CALLS: calls, "ignored_arguments": ["b"]}, [("f", {"a": 1})])
    assert reason.startswith("missing_call: f(a=2) is missing: ")
