"""``{{ calls... }}``, ``{{ input... }}`` and ``{{ arguments... }}`` in expected values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evalkit.checks.compile import compile_expectation
from evalkit.checks.expectation import Judgement
from evalkit.records.case import Declaration
from evalkit.records.transcript import FunctionCall, Transcript

CALLS = "expected_function_calls"
TICKETS = [
    {"name": "create_ticket", "outcome": "error", "result": {"error": {"type": "timeout"}}},
    ("create_ticket", {"priority": "low"}, {"id": "TKT-1", "items": [{"n": 5}]}),
    ("create_ticket", {"priority": "high"}, {"id": "TKT-2"}),
]


def mail(value: Any) -> dict[str, Any]:
    return {CALLS: [{"function_name": "send_email", "arguments": {"x": value}}], "extra_calls": "allow"}


RESOLVED = [
    ("{{ calls.create_ticket.result.id }}", "TKT-1"),
    ("{{ calls.create_ticket[1].result.id }}", "TKT-1"),
    ("{{calls.create_ticket[2].result.id}}", "TKT-2"),
    ("{{ calls.create_ticket.result.items[0].n }}", 5),
    ("n={{ calls.create_ticket.result.items[0].n }}", "n=5"),
    ("{{ calls.create_ticket[2].arguments.priority }}", "high"),
    ("{{ calls.create_ticket.result.items }}", [{"n": 5}]),
    ("{{ input.email.from }}", "jan@example.com"),
    ("{{ calls['create_ticket'].result['id'] }} for {{ input.email.from }}", "TKT-1 for jan@example.com"),
    ("{{ '{{ other.root }}' }}", "{{ other.root }}"),
    ("{{ '{{' }}{{ calls.create_ticket.result.id }}}}", "{{TKT-1}}"),
    ({"$literal": "{{ calls.nothing.result }}"}, "{{ calls.nothing.result }}"),
    ({"$one_of": ["{{ calls.create_ticket.result.id }}", 1]}, "TKT-1"),
]


@pytest.mark.parametrize(("template", "value"), RESOLVED)
def test_a_reference_is_what_a_successful_call_returned(
    template: Any, value: Any, judged: Callable[..., Judgement]
) -> None:
    """Failed attempts are not counted; a string that is one template keeps the value's type."""
    given = {"email": {"from": "jan@example.com"}}
    assert judged(mail(template), [*TICKETS, ("send_email", {"x": value})], given=given).status == "passed"
    assert judged(mail(template), [*TICKETS, ("send_email", {"x": [value]})], given=given).status == "failed"


def test_a_value_from_a_call_is_never_scanned_again(judged: Callable[..., Judgement]) -> None:
    """A result that looks like an operator or a template is data."""
    for hostile in ({"$any": True}, "{{ input.secret }}"):
        made = [("a", {}, hostile), ("send_email", {"x": hostile})]
        assert judged(mail("{{ calls.a.result }}"), made).status == "passed"
        assert judged(mail("{{ calls.a.result }}"), [made[0], ("send_email", {"x": 1})]).status == "failed"


NOWHERE = [
    ("{{ calls.f.result }}", [], "f was not called"),
    ("{{ calls.f.result }}", [{"name": "f", "outcome": "error"}], "f was called, but never successfully"),
    ("{{ calls.f[3].result }}", [("f", {}, 1), ("f", {}, 2)], "f succeeded 2 times"),
    ("{{ calls.f[2].result }}", [("f", {}, 1)], "f succeeded 1 time"),
    (
        "{{ calls.f.result.ticket_id }}",
        [("f", {}, {"ticketId": 1})],
        "there is no 'ticket_id' in {ticketId}; did you mean 'ticketId'? (step 1 of the path)",
    ),
]


@pytest.mark.parametrize(("template", "made", "why"), NOWHERE)
def test_a_target_that_is_absent_fails_the_check(
    template: str, made: list[Any], why: str, judged: Callable[..., Judgement]
) -> None:
    judgement = judged(mail(template), [*made, ("send_email", {"x": 1})])
    (reason,) = judgement.reasons
    assert reason.code == "unresolved_reference"
    assert reason.message == f"call {len(made) + 1}, send_email: template {template} leads nowhere: {why}"
    assert reason.place == f"expected_output.{CALLS}[0].arguments"


def test_an_absent_target_never_passes_by_default(judged: Callable[..., Judgement]) -> None:
    """Neither as an excluded phrase nor in a forbidden call."""
    excludes = {CALLS: [{"function_name": "a", "body_excludes": "{{ calls.f.result }}"}]}
    assert judged(excludes, [("a", {"body": "x"})]).reasons[0].code == "unresolved_reference"
    forbidden = {"forbidden_function_calls": [{"function_name": "a", "arguments": {"x": "{{ calls.f.result }}"}}]}
    judgement = judged(forbidden, ["a"])
    assert [(reason.code, reason.place) for reason in judgement.reasons] == [
        ("unresolved_reference", "expected_output.forbidden_function_calls[0]")
    ]


def test_a_forbidden_value_may_come_from_a_call(judged: Callable[..., Judgement]) -> None:
    forbidden = {"forbidden_function_calls": [{"function_name": "a", "arguments": {"x": "{{ calls.f.result }}"}}]}
    assert judged(forbidden, [("f", {}, 5), ("a", {"x": 5})]).status == "failed"
    assert judged(forbidden, [("f", {}, 5), ("a", {"x": 6})]).status == "passed"


EMPTY = [
    ("", "template {{ calls.f.result }} gave an empty text, which every text contains"),
    (" \n", "template {{ calls.f.result }} gave an empty text, which every text contains"),
    (None, "template {{ calls.f.result }} gave null, which is no text to look for"),
    ([1], "template {{ calls.f.result }} gave [1], which is no text to look for"),
    (True, "template {{ calls.f.result }} gave true, which is no text to look for"),
]


@pytest.mark.parametrize(("result", "why"), EMPTY)
def test_a_phrase_must_come_out_as_text(result: Any, why: str, told: Callable[..., list[str]]) -> None:
    """An empty phrase would be contained in every text."""
    expected = {CALLS: ["f", {"function_name": "a", "body_contains": "{{ calls.f.result }}"}]}
    found = told(expected, [("f", {}, result), ("a", {"body": "text"})])
    assert found == [f"unresolved_reference: call 2, a: {why}"]


def test_arguments_are_those_of_the_call_that_is_judged(judged: Callable[..., Judgement]) -> None:
    """Each call answers for its own serial number, in any order."""
    call = {"function_name": "check", "result_contains": {"serial": "{{ arguments.serial }}"}}
    expected = {CALLS: [call, call], "call_order": "any"}
    good = [("check", {"serial": name}, {"serial": name}) for name in ("SN1", "SN2")]
    assert judged(expected, good).status == "passed"
    bad = [good[0], ("check", {"serial": "SN2"}, {"serial": "SN1"})]
    assert judged(expected, bad).reasons[0].message == 'call 2, check: result.serial: expected "SN2", got "SN1"'
    missing = judged(expected, [good[0], "check"])
    assert missing.reasons[0].message == (
        "call 2, check: template {{ arguments.serial }} leads nowhere: there is no 'serial' in {} (step 1 of the path)"
    )
    assert judged({CALLS: [call], "extra_calls": "allow"}, ["x", *good]).calls[1].results[0].status == "passed"


def test_a_call_that_meets_its_own_arguments_says_how(judged: Callable[..., Judgement]) -> None:
    call = {"function_name": "f", "arguments_contain": {"copy": "{{ arguments.name }}"}}
    made = ["other", ("f", {"name": "Jan", "copy": "for Jan"})]
    judgement = judged({CALLS: [call], "extra_calls": "allow"}, made)
    assert judgement.status == "passed"
    assert judgement.calls[1].results[0].note == "contained, not equal"


def test_an_alias_is_as_good_as_the_name(judged: Callable[..., Judgement]) -> None:
    made = [{"name": "create_ticket", "requested_name": "open_ticket", "result": 5}, ("send_email", {"x": 5})]
    assert judged(mail("{{ calls.open_ticket.result }}"), made).status == "passed"


@pytest.mark.parametrize("requested", [None, "open_ticket"])
@pytest.mark.parametrize("named", ["open_ticket", "create_ticket", "open_ticket[1]"])
def test_a_declared_alias_leads_to_the_calls_of_its_function(requested: str | None, named: str) -> None:
    """Whichever of the two names the agent used."""
    declared = {"send_email": Declaration(name="send_email")}
    declared["create_ticket"] = Declaration(name="create_ticket", aliases=("open_ticket",))
    wanted = mail(f"{{{{ calls.{named}.result }}}}")
    expectation, problems = compile_expectation(wanted, declarations=declared)
    calls = (
        FunctionCall(name="create_ticket", requested_name=requested, result=5),
        FunctionCall(name="send_email", arguments={"x": 5}, index=1),
    )
    assert problems == []
    assert expectation.judge(Transcript(calls=calls)).status == "passed"


def test_a_call_may_be_compared_with_itself_and_with_others(judged: Callable[..., Judgement]) -> None:
    """All roots in one call: its own arguments, the input and what an earlier call returned."""
    wanted = {"copy": "{{ arguments.serial }}", "sender": "{{ input.from }}", "id": "{{ calls.find.result }}"}
    expected = {CALLS: ["find", {"function_name": "log", "arguments_contain": wanted}]}
    sent = {"serial": "SN1", "copy": "SN1", "sender": "Jan", "id": 7}
    given = {"from": "Jan"}
    assert judged(expected, [("find", {}, 7), ("log", sent)], given=given).status == "passed"
    for name in wanted:
        (reason,) = judged(expected, [("find", {}, 7), ("log", {**sent, name: "other"})], given=given).reasons
        assert (reason.code, reason.path) == ("wrong_argument", (name,))


def test_an_input_that_is_known_at_load_is_looked_into_then(problems: Callable[..., list[str]]) -> None:
    expected = mail("{{ input.email.from }}")
    assert problems(expected, input={"email": {"from": "Jan"}}) == []
    assert problems(expected, input={"email": {}}) != []
    assert problems(expected) == []


def test_a_part_of_the_input_that_is_not_there_fails_the_check(told: Callable[..., list[str]]) -> None:
    why = "leads nowhere: there is no 'sender' in {from} (step 1 of the path)"
    assert told(mail("{{ input.sender }}"), [("send_email", {"x": 1})], given={"from": "Jan"}) == [
        f"unresolved_reference: call 1, send_email: template {{{{ input.sender }}}} {why}"
    ]
