"""The older keys of the warranty project mean what they meant there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evalkit.checks.expectation import Judgement

MAIL = ("send_email", {"to": "jan@example.com", "body": "Your ticket is TKT-1."})
FAILED_MAIL = {
    "name": "send_email",
    "arguments": {"body": "lost"},
    "outcome": "error",
    "result": {"error": {"type": "timeout"}},
}
TICKET = ("create_ticket", {"priority": "High", "serial": "SN1"})

ROWS: list[tuple[dict[str, Any], list[Any], str, str]] = [
    ({"email_sent": True}, [MAIL], "passed", "send_email succeeded"),
    ({"email_sent": True}, [], "failed", "missing_call: send_email was not called"),
    (
        {"email_sent": True},
        [FAILED_MAIL],
        "failed",
        "wrong_outcome: send_email did not succeed: call 1, send_email failed with timeout",
    ),
    ({"email_sent": True}, [FAILED_MAIL, MAIL], "passed", "send_email succeeded"),
    ({"email_sent": False}, [], "passed", "send_email did not succeed"),
    ({"email_sent": False}, [FAILED_MAIL], "passed", "send_email did not succeed"),
    (
        {"email_sent": False},
        [TICKET, MAIL],
        "failed",
        "unexpected_call: send_email succeeded (call 2, send_email), expected no successful call",
    ),
    ({"ticket_created": True}, [TICKET], "passed", "create_ticket succeeded"),
    ({"ticket_created": True}, [MAIL], "failed", "missing_call: create_ticket was not called"),
    ({"ticket_fields": {"priority": "high"}}, [TICKET], "passed", "found in the arguments of call 1, create_ticket"),
    (
        {"ticket_fields": {"priority": "low", "serial": "SN1"}},
        [MAIL, TICKET],
        "failed",
        'wrong_argument: call 2, create_ticket: arguments.priority: expected a text that contains "low", got "High"',
    ),
    (
        {"ticket_fields": {"priority": "low"}},
        [{"name": "create_ticket", "arguments": {"priority": "low"}, "outcome": "error"}],
        "failed",
        "missing_call: no successful call of create_ticket whose arguments could be compared",
    ),
    ({"response_body_contains": ["tkt-1"]}, [MAIL], "passed", "body of call 1, send_email, contains 1 phrase"),
    (
        {"response_body_contains": "TKT-2"},
        [MAIL],
        "failed",
        'text_missing: body of call 1, send_email, does not contain "TKT-2"',
    ),
    (
        {"response_body_excludes": "TKT-1"},
        [("send_email", {"body": "old"}), MAIL, FAILED_MAIL],
        "failed",
        'text_forbidden: body of call 2, send_email, contains "TKT-1"',
    ),
    ({"response_body_contains": "the response"}, [FAILED_MAIL], "passed", "response contains 1 phrase"),
    ({"response_body_contains": "x"}, [], "failed", 'text_missing: response does not contain "x"'),
    (
        {"response_body_excludes": "x"},
        [("send_email", {"to": "a"})],
        "failed",
        'missing_argument: call 1, send_email: body is missing, so it can\'t be searched for "x"',
    ),
    (
        {"response_body_contains": "x"},
        [("send_email", "x")],
        "failed",
        'missing_argument: call 1, send_email: body is missing, so it can\'t be searched for "x"',
    ),
    ({"response_body_excludes": "ticket"}, [FAILED_MAIL], "passed", "response contains none of 1 phrase"),
    (
        {"response_body_excludes": "the RESPONSE"},
        [FAILED_MAIL],
        "failed",
        'text_forbidden: response contains "the RESPONSE"',
    ),
]


@pytest.mark.parametrize(("expected", "made", "status", "message"), ROWS)
def test_an_older_key_keeps_its_meaning(
    expected: Any, made: Any, status: str, message: str, judged: Callable[..., Judgement]
) -> None:
    judgement = judged(expected, made, response="This is the response.")
    told = [f"{reason.code}: {reason.message}" for reason in judgement.reasons] or [judgement.checks[0].message]
    assert (judgement.status, told) == (status, [message])


def test_the_first_successful_ticket_counts(judged: Callable[..., Judgement]) -> None:
    failed = {"name": "create_ticket", "arguments": {"priority": "low"}, "outcome": "error"}
    made = [failed, TICKET, ("create_ticket", {"priority": "low"})]
    assert judged({"ticket_fields": {"priority": "high"}}, made).status == "passed"
    assert judged({"ticket_fields": {"priority": "low"}}, made).status == "failed"


def test_ticket_fields_may_refer_to_other_calls(judged: Callable[..., Judgement]) -> None:
    expected = {"ticket_fields": {"serial": "{{ calls.find.result.serial }}"}}
    assert judged(expected, [("find", {}, {"serial": "SN1"}), TICKET]).status == "passed"
    assert judged(expected, [("find", {}, {"serial": "SN2"}), TICKET]).reasons[0].code == "wrong_argument"
    assert judged(expected, [TICKET]).reasons[0].code == "unresolved_reference"


@pytest.mark.parametrize(
    ("made", "searched", "call"), [([TICKET, MAIL], "Your ticket is TKT-1.", 1), ([], "Hello.", None)]
)
def test_a_reason_about_the_body_carries_the_text_that_was_searched(
    made: Any, searched: str, call: int | None, judged: Callable[..., Judgement]
) -> None:
    """Of the email, which it points to, or of the response."""
    (reason,) = judged({"response_body_contains": "TKT-2"}, made, response="Hello.").reasons
    assert (reason.expected, reason.actual, reason.call) == ("TKT-2", searched, call)
