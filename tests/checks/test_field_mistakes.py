"""Mistakes that other systems made in judging function calls (their numbers are in the comments), and not here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evalkit.checks.expectation import Judgement
from evalkit.operators.compile import OperatorProblems, compile_value

CALLS = "expected_function_calls"
Judged = Callable[..., Judgement]


def f(**arguments: Any) -> dict[str, Any]:
    return {"function_name": "f", "arguments": arguments}


def test_two_equal_calls_meet_two_equal_expectations(judged: Judged) -> None:  # G1
    judgement = judged({CALLS: ["a", "a"]}, ["a", "a"])
    assert (judgement.status, judgement.score and judgement.score.f1) == ("passed", 1.0)


def test_an_unexpected_call_fails_and_so_does_a_missing_one(judged: Judged) -> None:  # G2
    assert judged({CALLS: ["a"]}, ["a", "delete_db"]).status == "failed"
    assert judged({CALLS: ["a", "b"], "extra_calls": "allow"}, ["a"]).status == "failed"


def test_null_arguments_are_no_arguments_and_crash_nothing(judged: Judged) -> None:  # G3, G20
    made = [("f", None)]
    assert judged({CALLS: [{"function_name": "f", "arguments": None}]}, made).status == "passed"
    assert judged({CALLS: [f(x=1)]}, made).reasons[0].code == "missing_argument"
    assert judged({CALLS: [{"function_name": "f", "arguments_contain": {"x": 1}}]}, made).status == "failed"
    assert judged({CALLS: [{"function_name": "f", "x_contains": "1"}]}, made).status == "failed"


def test_the_best_assignment_is_scored_and_explained_not_the_first(judged: Judged) -> None:  # G4
    expected = {CALLS: [{"function_name": "f", "arguments_contain": {"x": 1}}, f(x=1, y=2)], "call_order": "any"}
    judgement = judged(expected, [("f", {"x": 1, "y": 2}), ("f", {"q": 9})])
    assert judgement.score is not None
    assert judgement.score.f1 == 0.5


@pytest.mark.parametrize("swapped", [False, True])
def test_a_superset_does_not_depend_on_the_order_of_calls(swapped: bool, judged: Judged) -> None:  # G5, G11
    expected = {CALLS: ["s", {"function_name": "s", "arguments": {"q": "x"}}], "call_order": "any"}
    made = [("s", {"q": "x"}), ("s", {"q": "y"})]
    for extras in ("forbid", "allow"):
        assert judged({**expected, "extra_calls": extras}, made[::-1] if swapped else made).status == "passed"


def test_alternatives_per_call_are_matched_whatever_their_order(judged: Judged) -> None:  # G11
    expected = {CALLS: [f(x={"$one_of": ["a", "b"]}), f(x="a")], "call_order": "any"}
    for made in ([("f", {"x": "a"}), ("f", {"x": "b"})], [("f", {"x": "b"}), ("f", {"x": "a"})]):
        assert judged(expected, made).status == "passed"


def test_partial_arguments_allow_more_arguments_at_every_depth(judged: Judged) -> None:  # G6
    expected = {CALLS: [{"function_name": "f", "arguments_contain": {"a": {"b": 1}}}], "call_order": "any"}
    for extras in ("forbid", "allow"):
        made = [("f", {"a": {"b": 1, "c": 2}, "d": 3})]
        assert judged({**expected, "extra_calls": extras}, made).status == "passed"


@pytest.mark.parametrize("order", ["strict", "any"])
@pytest.mark.parametrize("extras", ["forbid", "allow"])
def test_no_call_expected_means_no_call_in_every_mode(order: str, extras: str, judged: Judged) -> None:  # G7, G19, G27
    expected = {CALLS: [], "call_order": order, "extra_calls": extras}
    assert judged(expected, ["delete_db"]).reasons[0].code == "unexpected_call"
    assert judged(expected, []).status == "passed"


def test_strict_order_holds_inside_one_model_turn(judged: Judged) -> None:  # G8
    made = [{"name": "b", "turn": 0}, {"name": "a", "turn": 0}]
    assert judged({CALLS: ["a", "b"]}, made).reasons[0].code == "wrong_order"


def test_arguments_that_can_not_be_read_fail_the_case_and_crash_nothing(judged: Judged) -> None:  # G8
    made = [{"name": "f", "arguments": '{"x": ', "problem": "malformed_call"}]
    judgement = judged({CALLS: [f(x=1)]}, made)
    assert (judgement.status, judgement.reasons[0].code) == ("failed", "malformed_call")


@pytest.mark.parametrize("key", ["arguments", "arguments_contain"])
def test_null_is_not_missing(key: str, judged: Judged) -> None:  # G9
    expected = {CALLS: [{"function_name": "f", key: {"x": None}}]}
    assert judged(expected, [("f", {})]).reasons[0].code == "missing_argument"
    assert judged(expected, [("f", {"x": None})]).status == "passed"


@pytest.mark.parametrize(("one", "other"), [("1.5", "15"), ("-5", "5"), ("2024-1-12", "2024-11-2"), ("A", "a")])
def test_punctuation_and_case_of_exact_arguments_count(one: str, other: str, judged: Judged) -> None:  # G10
    assert judged({CALLS: [f(x=one)]}, [("f", {"x": other})]).status == "failed"


@pytest.mark.parametrize(
    ("contained", "actual"), [("1.5", "15"), ("2024-1-12", "2024-11-2"), ("5", "15"), ("1.5", "125")]
)
def test_contained_text_is_no_pattern_and_no_part_of_a_number(
    contained: str, actual: str, judged: Judged
) -> None:  # G10, G25
    expected = {CALLS: [{"function_name": "f", "arguments_contain": {"x": contained}}]}
    assert judged(expected, [("f", {"x": actual})]).status == "failed"


def test_numbers_are_compared_as_numbers_and_tolerance_is_asked_for(judged: Judged) -> None:  # G12
    assert judged({CALLS: [f(x=5)]}, [("f", {"x": 5.0})]).status == "passed"
    assert judged({CALLS: [f(x=0.3)]}, [("f", {"x": 0.1 + 0.2})]).status == "failed"
    assert judged({CALLS: [f(x={"$approx": 0.3, "$abs": 1e-9})]}, [("f", {"x": 0.1 + 0.2})]).status == "passed"
    optional = f(x={"$one_of": [1, None, {"$absent": True}]})
    for sent in ({}, {"x": None}, {"x": 1}):
        assert judged({CALLS: [optional]}, [("f", sent)]).status == "passed"


def test_an_expected_argument_that_was_not_sent_fails(judged: Judged) -> None:  # G13
    expected = {CALLS: [{"function_name": "f", "arguments_contain": {"order_id": 1, "reason": "x"}}]}
    assert [reason.code for reason in judged(expected, [("f", {})]).reasons] == ["missing_argument"] * 2


@pytest.mark.parametrize("order", ["strict", "any"])
def test_one_call_meets_one_expectation(order: str, judged: Judged) -> None:  # G14, G16, G24
    expected = {CALLS: ["a", "a"], "call_order": order, "extra_calls": "allow"}
    assert judged(expected, ["a"]).reasons[0].code == "missing_call"


def test_a_failed_call_check_fails_the_case(judged: Judged) -> None:  # G14, G23
    expected = {CALLS: [f(x=1)], "response_contains": "done", "max_function_calls": 5}
    assert judged(expected, [("f", {"x": 2})], response="done").status == "failed"


def test_a_number_is_not_found_inside_a_longer_one(judged: Judged) -> None:  # G15
    expected = {CALLS: [{"function_name": "f", "arguments_contain": {"x": "10"}}]}
    assert judged(expected, [("f", {"x": "100 USD"})]).status == "failed"
    assert judged(expected, [("f", {"x": "10 USD"})]).status == "passed"
    assert judged({"grounded": True}, [("f", {"x": "10"})], given="I paid 100").status == "failed"


def test_counts_are_not_collapsed_in_the_score(judged: Judged) -> None:  # G16
    judgement = judged({CALLS: ["a", "a", "a"], "call_order": "any"}, ["a"])
    assert judgement.score is not None
    assert judgement.score.recall == pytest.approx(1 / 3)


def test_templates_are_rendered_at_every_depth(judged: Judged) -> None:  # G17
    expected = {CALLS: ["find", f(x={"y": ["{{ calls.find.result.id }}"]})]}
    assert judged(expected, [("find", {}, {"id": 7}), ("f", {"x": {"y": [7]}})]).status == "passed"


def test_names_are_literal(judged: Judged) -> None:  # G18
    for name in ("SEARCH_DOCS", "search_*", "search.docs", "Search_docs"):
        assert judged({CALLS: [name]}, ["search_docs"]).status == "failed"


def test_what_was_not_captured_does_not_pass_a_negative_check(judged: Judged) -> None:  # G18
    expected = {CALLS: [{"function_name": "f", "body_excludes": "refund"}]}
    assert judged(expected, [("f", None)]).reasons[0].code == "missing_argument"
    assert judged(expected, [("f", {"body": None})]).status == "failed"


def test_a_broken_turn_is_not_averaged_away(judged: Judged) -> None:  # G20
    from evalkit.checks.compile import compile_expectation
    from evalkit.checks.expectation import judge_conversation
    from evalkit.records.transcript import FunctionCall, Transcript

    turns = [compile_expectation({CALLS: [name]})[0] for name in ("a", "b", "c", "d")]
    made = tuple(FunctionCall(name=name, index=i, user_turn=i) for i, name in enumerate("abcx"))
    record = Transcript(calls=made, responses=("", "", "", ""))
    assert judge_conversation(record, None, turns).status == "failed"
    assert judge_conversation(Transcript(calls=made[:2], responses=("", "")), None, turns).status == "failed"


@pytest.mark.parametrize(
    ("expected", "sent"),
    [(1, True), (True, 1), (0, False), ("5", 5), (5, "5"), (None, ""), ([1], [True]), ({"a": 1}, {"a": True})],
)
def test_json_types_are_kept_apart(expected: Any, sent: Any, judged: Judged) -> None:  # G21
    for key in ("arguments", "arguments_contain"):
        assert judged({CALLS: [{"function_name": "f", key: {"x": expected}}]}, [("f", {"x": sent})]).status == "failed"


def test_a_forbidden_call_that_failed_was_still_attempted(judged: Judged) -> None:  # G22
    attempt = [{"name": "delete_db", "outcome": "error"}]
    assert judged({"forbidden_function_calls": "delete_db"}, attempt).reasons[0].code == "forbidden_call"
    assert judged({CALLS: []}, attempt).status == "failed"


def test_every_occurrence_of_a_function_is_judged(judged: Judged) -> None:  # G23, G28
    assert judged({CALLS: [f(x=1), f(x=2)]}, [("f", {"x": 1}), ("f", {"x": 3})]).status == "failed"
    forbidden = {"forbidden_function_calls": [{"function_name": "f", "arguments_contain": {"x": 2}}]}
    assert judged(forbidden, [("f", {"x": 1}), ("f", {"x": 2})]).status == "failed"


def test_strings_are_no_patterns_unless_they_are_asked_to_be(judged: Judged) -> None:  # G25
    assert judged({CALLS: [f(x="1.5")]}, [("f", {"x": "125"})]).status == "failed"
    assert judged({CALLS: [f(x=".*")]}, [("f", {"x": "anything"})]).status == "failed"
    assert judged({CALLS: [f(x={"$regex": "1.5"})]}, [("f", {"x": "1125"})]).status == "failed"
    assert judged({CALLS: [f(x={"$regex": "1.5"})]}, [("f", {"x": "125"})]).status == "passed"


def test_an_unknown_operator_is_refused() -> None:  # G26
    with pytest.raises(OperatorProblems, match=r"unknown operator '\$gtee'; did you mean '\$gt'\?"):
        compile_value({"$gtee": 5}, mode="equal")


def test_a_call_with_other_arguments_does_not_use_up_the_expectation(judged: Judged) -> None:  # G27
    expected = {CALLS: [f(q="b")], "extra_calls": "allow"}
    judgement = judged(expected, [("f", {"q": "a"}), ("f", {"q": "b"})])
    assert judgement.status == "passed"
    assert judgement.calls[1].expectation == f"expected_output.{CALLS}[0]"


@pytest.mark.parametrize("result", ["plain text", "", None, [], 0, "error: none"])
def test_a_result_that_is_no_json_object_is_no_failure(result: Any, judged: Judged) -> None:  # G29
    """Whether a call failed is its outcome, never read out of its text."""
    assert judged({CALLS: ["f"]}, [("f", {}, result)]).status == "passed"
    assert judged({CALLS: [{"function_name": "f", "outcome": "error"}]}, [("f", {}, result)]).status == "failed"
