"""Calls that need the approval of a person, whom the case plays: `needs_approval` and `input.approvals`."""

from __future__ import annotations

from typing import Any

import pytest

import evalkit
from evalkit.errors import FunctionError
from evalkit.features.approvals.desk import parse_approvals
from evalkit.features.approvals.records import Approval, get_approval
from evalkit.hosts.reports.trace import TraceOptions, render_trace
from evalkit.records.case import Declaration
from evalkit.records.transcript import Transcript

REFUND = {
    "parameters": {"type": "object", "properties": {"amount": {"type": "number"}, "order": {"type": "string"}}},
    "needs_approval": True,
    "alias": "pay_back",
}
MISSING = (
    '{} needs the approval of a person (with {{"amount": 500}}), and the case has no answer; write '
    "input.approvals: {{issue_refund: approve}}, or deny"
)


def make_case(approvals: Any = None, expected: Any = None, **more: Any) -> evalkit.Case:
    case_input: dict[str, Any] = {"message": "hi", "mock_function_responses": {"issue_refund": {"ok": True}}}
    if approvals is not None:
        case_input["approvals"] = approvals
    demands = {"extra_calls": "allow", "call_order": "any", **(expected or {"max_function_calls": 9})}
    return evalkit.case_from_dict(
        {"input": case_input, "functions": {"issue_refund": REFUND}, "expected_output": demands, **more}
    )


async def refund(task: evalkit.Task) -> str:
    assert "approvals" not in task.input
    try:
        answer = await task.acall("issue_refund", amount=500)
    except FunctionError as error:
        return f"{error.type}: {error.message}"
    return f"paid: {answer['ok']}"


@pytest.mark.parametrize(
    ("answer", "response", "arguments", "approval"),
    [
        ("approve", "paid: True", {"amount": 500}, Approval(answer="approved")),
        ("deny", "denied: a person denied this call", {"amount": 500}, Approval(answer="denied")),
        ({"deny": "too much"}, "denied: too much", {"amount": 500}, Approval(answer="denied", reason="too much")),
        (
            {"arguments": {"amount": 50}},
            "paid: True",
            {"amount": 50},
            Approval(answer="changed", asked={"amount": 500}),
        ),
    ],
)
def test_a_person_answers_as_the_case_says(answer: Any, response: str, arguments: Any, approval: Approval) -> None:
    expected = {
        "expected_function_calls": [
            {"function_name": "issue_refund", "arguments": arguments, "approval": approval.answer}
        ],
        "expected_approvals": [{"function_name": "issue_refund", "arguments": {"amount": 500}}],
    }
    verdict = evalkit.run_case(make_case({"issue_refund": answer}, expected), refund)
    assert verdict.passed, verdict.reasons
    assert verdict.transcript.response == response
    assert verdict.transcript.unused_mocks == ()
    (call,) = verdict.transcript.calls
    assert get_approval(call) == approval
    assert call.outcome == ("error" if approval.answer == "denied" else "ok")
    assert Transcript.from_json(verdict.transcript.to_json()) == verdict.transcript


@pytest.mark.parametrize("approvals", [None, {}, {"issue_refund": {"resume": True}}])
def test_without_an_answer_nothing_is_approved_and_nothing_is_measured(approvals: Any) -> None:
    async def swallows(task: evalkit.Task) -> str:
        try:
            await task.acall("issue_refund", amount=500)
        except Exception:
            return "paid"
        raise AssertionError("it was approved")

    verdict = evalkit.run_case(make_case(approvals), swallows)
    assert verdict.status == "error"
    assert [(reason.code, reason.message) for reason in verdict.reasons] == [
        ("missing_approval", MISSING.format("issue_refund"))
    ]
    (call,) = verdict.transcript.calls
    assert (call.outcome, call.answered_by) == ("error", "nobody")
    assert not any("was never called" in note for note in verdict.transcript.unused_mocks)


def test_a_list_answers_one_request_each_and_then_nothing() -> None:
    async def asks(task: evalkit.Task) -> str:
        said = []
        for _ in range(task.state.get("times", 2)):
            try:
                said.append(str(await task.acall("pay_back", amount=500)))
            except FunctionError as error:
                said.append(error.type)
        return " ".join(said)

    answers = ["deny", "approve"]
    verdict = evalkit.run_case(make_case({"pay_back": answers}, {"response_contains": "denied {'ok': True}"}), asks)
    assert verdict.passed, verdict.reasons
    assert [call.name for call in verdict.transcript.calls] == ["issue_refund", "issue_refund"]
    short = evalkit.run_case(make_case({"issue_refund": ["approve"]}), asks)
    assert [reason.message for reason in short.reasons] == [MISSING.format("request 2 of issue_refund")]
    long = evalkit.run_case(make_case({"issue_refund": [*answers, "deny"]}, settings={"strict_mocks": True}), asks)
    assert [reason.message for reason in long.reasons] == [
        "approvals.issue_refund[2] was never reached (strict_mocks is on)"
    ]


def test_an_answer_that_nobody_asks_for_is_told() -> None:
    async def idle(task: evalkit.Task) -> str:
        return "done"

    verdict = evalkit.run_case(make_case({"issue_refund": "approve"}), idle)
    assert verdict.transcript.unused_mocks[-1] == (
        "approvals.issue_refund answers no request: no call of issue_refund asked for approval"
    )


def test_a_denied_call_needs_no_mock_and_a_refused_one_asks_nobody() -> None:
    case = evalkit.case_from_dict(
        {
            "input": {"message": "hi", "approvals": {"issue_refund": ["deny"]}},
            "functions": {"issue_refund": REFUND},
            "expected_output": {"expected_function_calls": [{"function_name": "issue_refund", "approval": "denied"}]},
        }
    )
    verdict = evalkit.run_case(case, refund)
    assert verdict.passed, verdict.reasons

    async def unknown(task: evalkit.Task) -> str:
        with pytest.raises(FunctionError, match="there is no function 'refund'"):
            await task.acall("refund", amount=1)
        return "done"

    assert [reason.code for reason in evalkit.run_case(make_case({}), unknown).reasons] == ["unknown_function"]


def test_in_the_loop_the_denial_is_the_functions_reply() -> None:
    script = evalkit.ScriptedProvider(
        [{"calls": [{"issue_refund": {"amount": 500}}, {"issue_refund": {"amount": 20}}]}, "Sorry."]
    )
    settings = evalkit.Settings(extra={"provider": lambda case_id, run: script})
    replies: list[Any] = []

    async def under_test(task: evalkit.Task) -> evalkit.Reply:
        turn = await task.turn(evalkit.ModelRequest(messages=({"role": "user", "text": "hi"},)))
        replies.extend(value for _, value in await task.execute_calls(turn))
        return evalkit.Reply("Sorry.")

    expected = {
        "expected_function_calls": [
            {"function_name": "issue_refund", "approval": "denied", "arguments": {"amount": 500}},
            {"function_name": "issue_refund", "approval": "approved"},
        ],
        "call_order": "strict",
    }
    case = make_case({"issue_refund": [{"deny": "too much"}, "approve"]}, expected)
    verdict = evalkit.run_case(case, under_test, settings)
    assert verdict.passed, verdict.reasons
    assert replies == [{"error": {"type": "denied", "message": "too much"}}, {"ok": True}]


@pytest.mark.parametrize(
    ("expected", "code", "message"),
    [
        (
            {"expected_function_calls": [{"function_name": "issue_refund", "approval": "denied"}]},
            "wrong_approval",
            "call 1, issue_refund: approval is 'approved', expected 'denied'",
        ),
        (
            {"expected_function_calls": [{"function_name": "issue_refund", "approval": ["none", "denied"]}]},
            "wrong_approval",
            "call 1, issue_refund: approval is 'approved', expected 'none' or 'denied'",
        ),
        (
            {"expected_approvals": []},
            "wrong_approval",
            "call 1, issue_refund: asked for approval, which is not expected",
        ),
        (
            {"expected_approvals": ["issue_refund", {"function_name": "issue_refund", "arguments": {"amount": 5}}]},
            "wrong_approval",
            "nobody was asked to approve issue_refund(amount=5)",
        ),
        (
            {"expected_approvals": [{"function_name": "issue_refund", "arguments": {"amount": 5}}]},
            "wrong_argument",
            "call 1, issue_refund: arguments.amount: expected 5, got 500",
        ),
    ],
)
def test_what_was_asked_for_otherwise_is_named(expected: Any, code: str, message: str) -> None:
    verdict = evalkit.run_case(make_case({"issue_refund": "approve"}, expected), refund)
    assert [(reason.code, reason.message) for reason in verdict.reasons] == [(code, message)]


def test_a_call_that_asked_nobody_is_named() -> None:
    async def under_test(task: evalkit.Task) -> str:
        await task.acall("find_order")
        return "done"

    case = evalkit.case_from_dict(
        {
            "input": {"message": "hi", "mock_function_responses": {"find_order": 1}},
            "expected_output": {"expected_function_calls": [{"function_name": "find_order", "approval": "approved"}]},
        }
    )
    verdict = evalkit.run_case(case, under_test)
    assert [reason.message for reason in verdict.reasons] == [
        "call 1, find_order: nobody was asked for approval, expected 'approved'"
    ]


FORMS = "approve, deny, {deny: why}, {arguments: {...}} or a list of these, one for each request"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"issue_refund": "aprove"}, f"issue_refund must be {FORMS}, got \"aprove\"; did you mean 'approve'?"),
        ({"issue_refund": True}, f"issue_refund must be {FORMS}, got true"),
        ({"issue_refund": {"approve": 1, "deny": 2}}, f"issue_refund must be {FORMS}, got a mapping"),
        ({"issue_refund": []}, f"issue_refund must be {FORMS}, got an empty list"),
        ({"issue_refund": ["approve", 5]}, f"issue_refund[1] must be {FORMS}, got 5"),
        ({"issue_refund": {"deny": ""}}, 'issue_refund.deny must be why, as text, got ""'),
        ({"issue_refnd": "deny"}, "issue_refnd: no function 'issue_refnd' is declared; did you mean 'issue_refund'?"),
        (
            {"issue_refund": {"arguments": {"amont": 5}}},
            "issue_refund has no argument 'amont'; did you mean 'amount'?",
        ),
        (
            {"issue_refund": {"arguments": {"amount": "five"}}},
            'issue_refund: arguments.amount: "five" is not of type number',
        ),
        (5, "input.approvals must be a mapping of functions to answers, got 5"),
    ],
)
def test_a_mistake_in_the_answers_is_a_problem_of_the_case(value: Any, message: str) -> None:
    declaration = Declaration(name="issue_refund", parameters=REFUND["parameters"])  # type: ignore[arg-type]
    _, problems = parse_approvals(value, {"issue_refund": declaration})
    assert [problem.message for problem in problems] == [message]


def test_needs_approval_is_true_or_false() -> None:
    with pytest.raises(evalkit.SpecError, match="needs_approval must be true or false"):
        make_case(functions={"issue_refund": {"needs_approval": "sometimes"}})


def test_a_function_that_only_needs_approval_leaves_others_as_they_are() -> None:
    async def under_test(task: evalkit.Task) -> str:
        await task.acall("issue_refund")
        await task.acall("find_order")
        return "done"

    case = evalkit.case_from_dict(
        {
            "input": {
                "message": "hi",
                "mock_function_responses": {"issue_refund": 1, "find_order": 2},
                "approvals": {"issue_refund": "approve"},
            },
            "functions": {"issue_refund": {"needs_approval": True}},
            "expected_output": {"expected_function_calls": ["issue_refund", "find_order"]},
        }
    )
    verdict = evalkit.run_case(case, under_test)
    assert verdict.passed, verdict.reasons


def test_the_trace_says_what_a_person_answered() -> None:
    verdict = evalkit.run_case(make_case({"issue_refund": [{"arguments": {"amount": 50}}]}), refund)
    assert render_trace(verdict, TraceOptions()).split("\n")[1] == (
        '  1. ✓ issue_refund(amount=50) [approval: changed, asked amount=500] → {"ok": true}'
    )
    verdict = evalkit.run_case(make_case({"issue_refund": "deny"}, {"max_function_calls": 1}), refund)
    assert "[approval: denied] → error denied: a person denied this call" in render_trace(verdict, TraceOptions())
