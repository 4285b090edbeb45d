"""What is said of calls that are not as expected, in its exact words, with its code and its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evalkit.checks.expectation import Judgement
from evalkit.records.transcript import Violation

CALLS = "expected_function_calls"
SENT = {"to": "jan@example.com", "body": "Dear customer, your warranty has expired."}
_TO_MOCK = "(to mock it, write `send_email: {...}` under input.mock_function_responses)"


def mail(**keys: Any) -> dict[str, Any]:
    return {CALLS: [{"function_name": "send_email", **keys}]}


ARGUMENTS: list[tuple[dict[str, Any], Any, list[str]]] = [
    (
        {"arguments": {"to": "a"}},
        {"to": "b"},
        ['wrong_argument: call 1, send_email: arguments.to: expected "a", got "b"'],
    ),
    (
        {"arguments": {"a": {"city": "Łódź"}}},
        {"a": {"city": "Lodz"}},
        ['wrong_argument: call 1, send_email: arguments.a.city: expected "Łódź", got "Lodz"'],
    ),
    ({"arguments": {"to": "a"}}, {}, ['missing_argument: call 1, send_email: arguments.to: missing, expected "a"']),
    (
        {"arguments": {}},
        {"cc": "x"},
        ['unexpected_argument: call 1, send_email: arguments.cc: not expected, got "x"'],
    ),
    (
        {"arguments": {"to": "a", "n": 1}},
        {"too": "a", "n": True},
        [
            "missing_argument: call 1, send_email: arguments.to: missing, expected \"a\" (there is a 'too')",
            "wrong_argument: call 1, send_email: arguments.n: expected 1, got true (true is a boolean, expected the "
            "number 1)",
            'unexpected_argument: call 1, send_email: arguments.too: not expected, got "a"',
        ],
    ),
    (
        {"arguments_contain": {"to": "jan"}},
        {"to": "janet"},
        [
            'wrong_argument: call 1, send_email: arguments.to: expected a text that contains "jan", got "janet" (it is '
            "there only inside a longer word)"
        ],
    ),
    (
        {"arguments": {"to": "a"}},
        '{"to": "a"}',
        [
            'wrong_argument: call 1, send_email: arguments: expected {"to": "a"}, got "{\\"to\\": \\"a\\"}" (it is a '
            "string that holds JSON)"
        ],
    ),
    ({"arguments": {"to": "a"}}, None, ['missing_argument: call 1, send_email: arguments.to: missing, expected "a"']),
    (
        {"arguments_contain": {"n": {"$gt": 3}}},
        {"n": 2},
        ["wrong_argument: call 1, send_email: arguments.n: expected a number > 3, got 2"],
    ),
    ({"body_contains": "2024-06-15"}, SENT, ['text_missing: call 1, send_email: body does not contain "2024-06-15"']),
    (
        {"body_contains": ["DEAR  customer", "refund", "ticket"]},
        SENT,
        [
            'text_missing: call 1, send_email: body does not contain "refund"',
            'text_missing: call 1, send_email: body does not contain "ticket"',
        ],
    ),
    ({"body_excludes": ["refund", "Expired"]}, SENT, ['text_forbidden: call 1, send_email: body contains "Expired"']),
    (
        {"subject_contains": "warranty"},
        SENT,
        [
            "missing_argument: call 1, send_email: subject is missing (sent: to, body), expected a text that contains "
            '"warranty"'
        ],
    ),
    (
        {"subject_excludes": ["a", "b"]},
        {},
        [
            "missing_argument: call 1, send_email: subject is missing (no arguments were sent), expected a text "
            'without "a", "b"'
        ],
    ),
    (
        {"body_excludes": "a"},
        ["x"],
        [
            "missing_argument: call 1, send_email: body is missing (the arguments are a list), expected a text "
            'without "a"'
        ],
    ),
    (
        {"body_contains": "a"},
        {"body": None},
        ['text_missing: call 1, send_email: body is null, expected a text that contains "a"'],
    ),
    (
        {"arguments_absent": ["cc", "bcc"]},
        {"to": "a", "bcc": ["x"]},
        ['unexpected_argument: call 1, send_email: arguments.bcc: must not be sent, got ["x"]'],
    ),
]


@pytest.mark.parametrize(("keys", "arguments", "reasons"), ARGUMENTS)
def test_a_difference_in_arguments_names_path_and_values(
    keys: dict[str, Any], arguments: Any, reasons: list[str], judged: Callable[..., Judgement]
) -> None:
    """And the result that holds them is that of the key, with the words that stand under the call in the trace."""
    judgement = judged(mail(**keys), [("send_email", arguments)])
    assert [f"{reason.code}: {reason.message}" for reason in judgement.reasons] == reasons
    (result,) = judgement.calls[0].results
    assert [result.check] == list(keys)
    assert result.message.splitlines() == [reason.partition("send_email: ")[2] for reason in reasons]


OTHERS: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    (
        {"result_contains": {"status": "sent"}},
        {"result": {"status": "queued"}},
        ['result_mismatch: call 1, send_email: result.status: expected "sent", got "queued"'],
    ),
    (
        {"result_contains": {"status": "sent"}},
        {"result": "ok"},
        ['result_mismatch: call 1, send_email: result: expected a mapping with {"status": "sent"}, got "ok"'],
    ),
    (
        {},
        {"outcome": "error", "result": {"error": {"type": "timeout", "message": "no answer"}}},
        ["wrong_outcome: call 1, send_email: failed, expected outcome 'ok': timeout: \"no answer\""],
    ),
    (
        {},
        {"outcome": "error", "result": {"error": {"type": "timeout"}}},
        ["wrong_outcome: call 1, send_email: failed, expected outcome 'ok': timeout"],
    ),
    (
        {},
        {"outcome": "error", "result": "boom"},
        ["wrong_outcome: call 1, send_email: failed, expected outcome 'ok': \"boom\""],
    ),
    ({"outcome": "error"}, {}, ["wrong_outcome: call 1, send_email: succeeded, expected outcome 'error'"]),
    (
        {"channel": "native"},
        {"channel": "text", "repairs": ("closed a quote", "renamed 'params'")},
        [
            "wrong_channel: call 1, send_email: arrived by channel 'text', expected 'native' (repaired: closed a "
            "quote; renamed 'params')"
        ],
    ),
    (
        {"channel": ["native", "text"]},
        {},
        ["wrong_channel: call 1, send_email: arrived by channel 'direct', expected 'native' or 'text'"],
    ),
    (
        {"answered_by": "mock"},
        {"answered_by": "application"},
        ["wrong_answerer: call 1, send_email: answered by 'application', expected 'mock'"],
    ),
    (
        {"answered_by": ["application", "nobody"]},
        {},
        ["wrong_answerer: call 1, send_email: answered by 'mock', expected 'application' or 'nobody'"],
    ),
    (
        {},
        {
            "violations": (
                Violation(path=("to",), schema_path=("properties", "to", "type"), message="5 is not of type 'string'"),
            )
        },
        ["invalid_arguments: call 1, send_email: arguments.to: 5 is not of type 'string' (schema: properties.to.type)"],
    ),
    (
        {"valid": True},
        {"violations": (Violation(path=(), schema_path=(), message="'to' is a required property"),)},
        ["invalid_arguments: call 1, send_email: arguments: 'to' is a required property"],
    ),
    (
        {"valid": False},
        {},
        [
            "valid_arguments: call 1, send_email: arguments satisfy the declared schema, expected them to violate it "
            "(valid: false)"
        ],
    ),
    (
        {"grounded": True},
        {"arguments": {"to": "eve@example.com"}},
        [
            'ungrounded_argument: call 1, send_email: arguments.to: "eve@example.com" is neither in the input nor in '
            "an earlier result"
        ],
    ),
    (
        {},
        {
            "problem": "unmocked_call",
            "outcome": "error",
            "result": {"error": {"message": "no mock for send_email; mocked are: a"}},
        },
        ["unmocked_call: call 1, send_email: no mock for send_email; mocked are: a " + _TO_MOCK],
    ),
    ({}, {"problem": "unmocked_call"}, ["unmocked_call: call 1, send_email: no mock answers this call " + _TO_MOCK]),
    (
        {},
        {"problem": "unknown_function"},
        ["unknown_function: call 1, send_email: no function of this name is declared"],
    ),
    ({}, {"problem": "malformed_call"}, ["malformed_call: call 1, send_email: the arguments could not be read"]),
    (
        {},
        {"problem": "malformed_call", "arguments": '{"to": '},
        ['malformed_call: call 1, send_email: the arguments could not be read: "{\\"to\\": "'],
    ),
]


@pytest.mark.parametrize(("keys", "call", "reasons"), OTHERS)
def test_everything_else_about_a_call_is_told(
    keys: dict[str, Any], call: dict[str, Any], reasons: list[str], judged: Callable[..., Judgement]
) -> None:
    judgement = judged(mail(**keys), [{"name": "send_email", **call}])
    assert [f"{reason.code}: {reason.message}" for reason in judgement.reasons] == reasons
    failed = [result for result in judgement.calls[0].results if result.status == "failed"]
    assert failed[0].message.splitlines() == [reason.partition("send_email: ")[2] for reason in reasons]
    assert failed[0].check in ([*keys] or ["outcome", "valid_arguments", judgement.reasons[0].code]) or call.get(
        "problem"
    )


LISTS: list[tuple[dict[str, Any], list[Any], list[str]]] = [
    ({CALLS: ["a", "b"]}, ["a"], ["missing_call: b was not called"]),
    (
        {CALLS: ["send_email"]},
        ["sendEmail"],
        [
            "missing_call: send_email was not called ('sendEmail' was)",
            "unexpected_call: call 1, sendEmail: not expected: extra_calls is 'forbid'",
        ],
    ),
    ({CALLS: [{"function_name": "a", "times": 2}]}, ["a"], ["missing_call: a was called once, expected 2 times"]),
    (
        {CALLS: [{"function_name": "a", "times": {"min": 3, "max": 5}}]},
        ["a", "a"],
        ["missing_call: a was called 2 times, expected 3 to 5 times"],
    ),
    (
        {CALLS: [{"function_name": "a", "times": {"min": 2}}]},
        [],
        ["missing_call: a was not called; expected at least 2 times"],
    ),
    (
        {CALLS: [{"function_name": "a", "arguments": {"q": 1}}, {"function_name": "a", "arguments": {"q": 2}}]},
        [("a", {"q": 2})],
        ["missing_call: a(q=1) is missing: a was called once, each held against another expectation"],
    ),
    (
        {
            CALLS: [
                "a",
                {
                    "function_name": "a",
                    "arguments_contain": {"q": "x"},
                    "body_contains": "y",
                    "to_excludes": ["z"],
                    "times": 2,
                },
            ]
        },
        ["a"],
        [
            'missing_call: a(q="x", body with "y", to without "z", …) is missing 2 times: a was called once, each held '
            "against another expectation"
        ],
    ),
    (
        {
            CALLS: [
                "a",
                {"function_name": "a", "body_contains": "y", "arguments_contain": {"q": "x" * 300, "n": 1}},
            ]
        },
        ["a"],
        [
            f'missing_call: a(body with "y", q="{"x" * 97}…", n=1, …) is missing: a was called once, each '
            "held against another expectation"
        ],
    ),
    (
        {
            CALLS: [
                "f",
                {"function_name": "a", "arguments_contain": {"q": 1}},
                {"function_name": "a", "arguments_contain": {"q": "{{ calls.f.result }}"}},
            ]
        },
        [("f", {}, 7), ("a", {"q": 1})],
        ["missing_call: a(q=7, …) is missing: a was called once, each held against another expectation"],
    ),
    ({CALLS: ["a"]}, ["a", "b"], ["unexpected_call: call 2, b: not expected: extra_calls is 'forbid'"]),
    (
        {CALLS: ["a"]},
        ["a", "a"],
        ["unexpected_call: call 2, a: not expected: extra_calls is 'forbid', and a is expected once"],
    ),
    (
        {CALLS: [{"function_name": "a", "times": {"max": 2}}]},
        ["a", "a", "a"],
        ["unexpected_call: call 3, a: not expected: extra_calls is 'forbid', and a is expected 1 to 2 times"],
    ),
    (
        {CALLS: [{"function_name": "a", "optional": True, "times": {"min": 1, "max": 2}}]},
        ["a", "a", "a"],
        ["unexpected_call: call 3, a: not expected: extra_calls is 'forbid', and a is expected at most 2 times"],
    ),
    (
        {CALLS: ["a", "b", "a"]},
        ["a", "b", "a", "a"],
        [
            "unexpected_call: call 4, a: not expected: extra_calls is 'forbid', and the 2 expected calls of a are held "
            "against others"
        ],
    ),
    (
        {CALLS: []},
        ["a"],
        ["unexpected_call: call 1, a: not expected: expected_function_calls is [], which means no call at all"],
    ),
    (
        {CALLS: [], "extra_calls": "allow", "call_order": "any"},
        ["a"],
        ["unexpected_call: call 1, a: not expected: expected_function_calls is [], which means no call at all"],
    ),
    ({CALLS: ["a", "b"]}, ["b", "a"], ["wrong_order: call 2, a: out of order: expected before call 1, b"]),
    (
        {CALLS: ["a", "b", "c", "d"]},
        ["b", "c", "d", "a"],
        ["wrong_order: call 4, a: out of order: expected before call 1, b"],
    ),
    (
        {CALLS: ["a", "b", "c", "d"]},
        ["d", "a", "b", "c"],
        ["wrong_order: call 1, d: out of order: expected after call 2, a"],
    ),
    (
        {CALLS: ["a", "b", "c"]},
        ["c", "b", "a"],
        [
            "wrong_order: call 2, b: out of order: expected before call 1, c",
            "wrong_order: call 3, a: out of order: expected before call 1, c",
        ],
    ),
    (
        {CALLS: ["a", "b", "c", "d"]},
        ["a", "d", "b", "c"],
        ["wrong_order: call 2, d: out of order: expected after call 3, b"],
    ),
    (
        {CALLS: [{"in_order": ["a", "b"]}, "c"]},
        ["b", "a", "c"],
        ["wrong_order: call 2, a: out of order: expected before call 1, b"],
    ),
    (
        {CALLS: ["c", {"any_order": [{"in_order": ["a", "b"]}, "d"]}]},
        ["c", "b", "d", "a"],
        ["wrong_order: call 4, a: out of order: expected before call 2, b"],
    ),
    (
        {CALLS: [{"function_name": "a", "times": 2}, "b"]},
        ["a", "b", "a"],
        ["wrong_order: call 3, a: out of order: expected before call 2, b"],
    ),
    (
        {CALLS: [{"in_parallel": ["a", "b"]}]},
        [{"name": "a", "turn": 0}, {"name": "b", "turn": 1}],
        ["not_parallel: call 2, b: made in model turn 2, expected in turn 1, together with call 1, a (in_parallel)"],
    ),
    (
        {CALLS: [{"in_parallel": ["a", "b", "c"]}]},
        [{"name": "a", "turn": 0}, {"name": "b", "turn": 1}, {"name": "c", "turn": None}],
        [
            "not_parallel: call 2, b: made in model turn 2, expected in turn 1, together with call 1, a (in_parallel)",
            "not_parallel: call 3, c: made in model turn unknown, expected in turn 1, together with call 1, a "
            "(in_parallel)",
        ],
    ),
    (
        {CALLS: [{"one_of": [["a", {"function_name": "b", "arguments": {"x": 1}}], "c"]}]},
        ["a", ("b", {"x": 2})],
        ["wrong_argument: call 2, b: arguments.x: expected 1, got 2 (closest alternative: one_of[0])"],
    ),
    (
        {CALLS: [{"one_of": [["a", "b", "d"], ["c"]]}]},
        ["a", "b"],
        ["missing_call: d was not called (closest alternative: one_of[0])"],
    ),
    (
        {CALLS: [{"one_of": ["a", ["b", "c"]]}]},
        ["a", "b"],
        [
            "unexpected_call: call 2, b: not expected: extra_calls is 'forbid', and b stands in another alternative of "
            "one_of",
        ],
    ),
    (
        {CALLS: [{"one_of": ["a", ["b", "c"]]}, "b"]},
        ["a", "b", "b"],
        ["unexpected_call: call 3, b: not expected: extra_calls is 'forbid', and b is expected once"],
    ),
    (
        {CALLS: ["a"], "forbidden_function_calls": ["b"]},
        ["a", "b"],
        [
            "forbidden_call: call 2, b: forbidden: b must not be called",
            "unexpected_call: call 2, b: not expected: extra_calls is 'forbid'",
        ],
    ),
    (
        {"forbidden_function_calls": {"function_name": "b", "arguments_contain": {"id": 5}}},
        [("b", {"id": 4}), {"name": "b", "arguments": {"id": 5}, "outcome": "error"}],
        ["forbidden_call: call 2, b: forbidden: b(id=5, …) must not be called"],
    ),
    (
        {"forbidden_function_calls": {"function_name": "b", "body_contains": "refund"}},
        [("b", {"body": "A Refund."}), ("b", {"body": "no"}), ("b", {})],
        ['forbidden_call: call 1, b: forbidden: b(body with "refund", …) must not be called'],
    ),
    (
        {"forbidden_function_calls": {"function_name": "b", "arguments": {}}},
        ["b"],
        ["forbidden_call: call 1, b: forbidden: b() must not be called"],
    ),
]


@pytest.mark.parametrize(("expected", "made", "reasons"), LISTS)
def test_missing_unexpected_and_misplaced_calls_are_told(
    expected: dict[str, Any], made: list[Any], reasons: list[str], told: Callable[..., list[str]]
) -> None:
    assert told(expected, made) == reasons


PLACES = [
    (
        {CALLS: [{"function_name": "f", "arguments": {"a": {"b": [1]}}}]},
        ("f", {"a": {"b": [2]}}),
        f"{CALLS}[0].arguments.a.b[0]",
    ),
    ({CALLS: [{"function_name": "f", "arguments": {}}]}, ("f", {"x": 1}), f"{CALLS}[0].arguments"),
    (
        {CALLS: [{"function_name": "f", "body_contains": ["a", "b"]}]},
        ("f", {"body": "a"}),
        f"{CALLS}[0].body_contains[1]",
    ),
    ({CALLS: [{"function_name": "f", "body_contains": "b"}]}, ("f", {}), f"{CALLS}[0].body_contains"),
    (
        {CALLS: [{"function_name": "f", "result_contains": {"a": 1}}]},
        ("f", {}, {"a": 2}),
        f"{CALLS}[0].result_contains.a",
    ),
    (  # below an operator, what differs in the call stands nowhere in the case
        {CALLS: [{"function_name": "f", "arguments": {"a": [{"$each": {"b": 1}}]}}]},
        ("f", {"a": [[{"b": 1}, {"b": 2}]]}),
        f"{CALLS}[0].arguments.a[0]",
    ),
    ({CALLS: [{"any_order": ["g", {"in_order": ["f"]}]}]}, ("g", {}), f"{CALLS}[0].any_order[1].in_order[0]"),
    ({CALLS: ["g"]}, ("f", {}), f"{CALLS}[0]"),
    ({"forbidden_function_calls": "f"}, ("f", {}), "forbidden_function_calls"),
    ({"forbidden_function_calls": ["g", "f"]}, ("f", {}), "forbidden_function_calls[1]"),
]


@pytest.mark.parametrize(("expected", "call", "place"), PLACES)
def test_a_reason_names_its_place_in_the_case(
    expected: Any, call: Any, place: str, judged: Callable[..., Judgement]
) -> None:
    assert judged(expected, [call]).reasons[0].place == f"expected_output.{place}"


DETAILS: list[tuple[dict[str, Any], dict[str, Any], tuple[Any, ...], Any, Any]] = [
    ({"arguments": {"a": {"b": 1}}}, {"arguments": {"a": {"b": [2]}}}, ("a", "b"), 1, [2]),
    ({"arguments": {"a": 1}}, {}, ("a",), 1, None),
    ({"arguments": {}}, {"arguments": {"c": 5}}, ("c",), None, 5),
    ({"result_contains": {"a": 1}}, {"result": {"a": 2}}, ("a",), 1, 2),
    ({"body_contains": "x"}, {"arguments": {"body": "y"}}, ("body",), "x", "y"),
    ({"body_excludes": "y"}, {"arguments": {"body": "yes"}}, ("body",), "y", "yes"),
    ({"body_excludes": "y"}, {}, ("body",), None, None),
    ({"arguments_absent": "cc"}, {"arguments": {"cc": [1]}}, ("cc",), None, [1]),
    ({"outcome": "error"}, {}, (), "error", "ok"),
    ({"channel": "native"}, {"channel": "text"}, (), ["native"], "text"),
    ({"answered_by": "application"}, {}, (), ["application"], "mock"),
    ({"grounded": True}, {"arguments": {"a": [5]}}, ("a", 0), None, 5),
    (
        {},
        {"violations": (Violation(path=("a", 0), schema_path=("type",), message="bad"),)},
        ("a", 0),
        None,
        None,
    ),
]


@pytest.mark.parametrize(("keys", "call", "path", "expected", "actual"), DETAILS)
def test_a_reason_carries_what_its_words_say(
    keys: Any, call: Any, path: Any, expected: Any, actual: Any, judged: Callable[..., Judgement]
) -> None:
    (reason,) = judged(mail(**keys), [{"name": "send_email", **call}]).reasons
    assert (reason.call, reason.path, reason.expected, reason.actual) == (0, path, expected, actual)


def test_a_reason_carries_its_path_and_both_values(judged: Callable[..., Judgement]) -> None:
    expected = {CALLS: [{"function_name": "f", "arguments": {"a": {"b": 1}}}]}
    (reason,) = judged(expected, ["g", ("f", {"a": {"b": [2]}})]).reasons[:1]
    assert (reason.call, reason.path, reason.expected, reason.actual) == (1, ("a", "b"), 1, [2])


def test_the_trace_of_the_design_is_reproduced(judged: Callable[..., Judgement]) -> None:
    """The example of a failing case: what stands under each call, word for word."""
    expected = {
        CALLS: [
            {"function_name": "check_warranty", "arguments": {"serial_number": "SN98765"}},
            {"function_name": "send_email", "body_contains": ["2024-06-15"]},
        ]
    }
    made = [
        ("check_warranty", {"serial_number": "SN98765"}, {"status": "expired"}),
        ("create_ticket", {"serial_number": "SN98765", "priority": "high"}, {"ticket_id": "TKT-1"}),
        ("send_email", SENT),
    ]
    judgement = judged(expected, made)
    lines = [
        (line.status, [result.message for result in line.results if result.status == "failed"])
        for line in judgement.calls
    ]
    assert lines == [
        ("passed", []),
        ("failed", ["not expected: extra_calls is 'forbid'"]),
        ("failed", ['body does not contain "2024-06-15"']),
    ]
    assert judgement.summary == 'call 3, send_email: body does not contain "2024-06-15" (+1 more)'


PASSES: list[tuple[dict[str, Any], dict[str, Any], list[tuple[str, str, str]]]] = [
    ({"arguments": {"to": "a"}}, {"arguments": {"to": "a"}}, [("arguments", "arguments equal", "")]),
    (
        {"arguments_contain": {"to": "a"}},
        {"arguments": {"to": "a"}},
        [("arguments_contain", "arguments contained", "")],
    ),
    (
        {"arguments_contain": {"to": "JAN"}},
        {"arguments": {"to": "Jan Nowak"}},
        [("arguments_contain", "arguments contained", "contained, not equal")],
    ),
    ({"body_contains": "a"}, {"arguments": {"body": "a"}}, [("body_contains", "body contains 1 phrase", "")]),
    (
        {"body_excludes": ["x", "y"]},
        {"arguments": {"body": "a"}},
        [("body_excludes", "body contains none of 2 phrases", "")],
    ),
    ({"result_contains": {"a": 1}}, {"result": {"a": 1, "b": 2}}, [("result_contains", "found in the result", "")]),
    ({"arguments_absent": "cc"}, {}, [("arguments_absent", "not sent", "")]),
    ({"outcome": "error"}, {"outcome": "error"}, [("outcome", "failed, as expected", "")]),
    ({"outcome": "ok"}, {}, [("outcome", "succeeded", "")]),
    ({"channel": "native"}, {"channel": "native"}, [("channel", "arrived by channel 'native'", "")]),
    ({"answered_by": "nobody"}, {"answered_by": "nobody"}, [("answered_by", "answered by 'nobody'", "")]),
    (
        {"answered_by": "nobody"},
        {"answered_by": "nobody", "outcome": "error"},
        [("answered_by", "answered by 'nobody'", "")],
    ),
    ({"valid": True}, {}, [("valid", "arguments valid", "")]),
    (
        {"valid": False},
        {"violations": (Violation(path=(), schema_path=(), message="x"),)},
        [("valid", "arguments invalid, as expected", "")],
    ),
    ({"grounded": True}, {}, [("grounded", "traceable", "")]),
    ({}, {}, []),
]


@pytest.mark.parametrize(("keys", "call", "results"), PASSES)
def test_passes_have_words_too(keys: Any, call: Any, results: Any, judged: Callable[..., Judgement]) -> None:
    judgement = judged(mail(**keys), [{"name": "send_email", **call}])
    assert judgement.status == "passed"
    assert [(found.check, found.message, found.note) for found in judgement.calls[0].results] == results


def test_the_list_as_a_whole_has_a_line(judged: Callable[..., Judgement]) -> None:
    def line(expected: Any, made: list[Any]) -> tuple[str, str]:
        result = judged(expected, made).checks[0]
        return result.status, result.message

    assert line({CALLS: ["a", "b"]}, ["a", "b"]) == ("passed", "2 calls as expected")
    assert line({CALLS: ["a"]}, ["a"]) == ("passed", "1 call as expected")
    assert line({CALLS: []}, []) == ("passed", "no call was made")
    assert line({CALLS: ["a"], "extra_calls": "allow"}, ["a", "b"]) == ("passed", "1 call as expected")
    assert line({CALLS: ["a", "b"]}, ["a", "c", "d"]) == ("failed", "1 of 2 expected calls met, 2 unexpected")


def test_among_allowed_extra_calls_only_those_too_many_are_unexpected(judged: Callable[..., Judgement]) -> None:
    once = {CALLS: [{"function_name": "a", "times": 1}], "extra_calls": "allow"}
    found = judged(once, ["a", "x", "a"]).checks[0]
    assert (found.status, found.message) == ("failed", "1 of 1 expected calls met, 1 unexpected")
    found = judged({**once, CALLS: [*once[CALLS], "b"]}, ["a", "x"]).checks[0]
    assert (found.status, found.message) == ("failed", "1 of 2 expected calls met")


def test_an_allowed_extra_call_says_so(judged: Callable[..., Judgement]) -> None:
    b = judged({"max_function_calls": 1}, ["b"]).calls[0].call
    for made in (["b", "a"], ["b", "c"]):
        (line,) = [line for line in judged({CALLS: ["a"], "extra_calls": "allow"}, made).calls if line.call == b]
        (result,) = line.results
        assert (result.check, result.status, result.message) == (
            "extra_calls",
            "passed",
            "not in the list, which extra_calls allows",
        )


def test_a_missing_call_stands_where_it_was_expected(judged: Callable[..., Judgement]) -> None:
    judgement = judged({CALLS: ["a", "b", "c", "d"]}, ["b", "d"])
    lines = [(line.call.name if line.call else "-", line.expected_name, line.status) for line in judgement.calls]
    assert lines == [
        ("-", "a", "failed"),
        ("b", "b", "passed"),
        ("-", "c", "failed"),
        ("d", "d", "passed"),
    ]
    assert judgement.calls[0].expectation == "expected_output.expected_function_calls[0]"


def test_the_most_specific_reason_comes_first(told: Callable[..., list[str]]) -> None:
    """Whatever the order of the calls: refused, forbidden, wrong in its arguments, misplaced, missing, extra."""
    expected = {
        CALLS: ["a", "b", {"function_name": "c", "arguments": {"x": 1}}, "d"],
        "forbidden_function_calls": ["z"],
        "max_function_calls": 2,
        "response_contains": "bye",
        "max_tokens": 5,
    }
    made = ["extra", "b", "a", ("c", {"x": 2}), "z", {"name": "q", "problem": "unmocked_call"}]
    codes = [reason.partition(":")[0] for reason in told(expected, made, stop_reason="max_iterations")]
    assert codes == [
        "stop_reason",
        "unmocked_call",
        "forbidden_call",
        "wrong_argument",
        "text_missing",
        "wrong_order",
        "missing_call",
        "unexpected_call",
        "unexpected_call",
        "unexpected_call",
        "budget_exceeded",
        "not_measured",
    ]


REFUSALS = [
    ("unmocked_call", "input.mock_function_responses"),
    ("unknown_function", ""),
    ("malformed_call", ""),
]


@pytest.mark.parametrize(("problem", "place"), REFUSALS)
def test_a_refused_call_points_to_what_can_mend_it(problem: str, place: str, judged: Callable[..., Judgement]) -> None:
    judgement = judged({"max_function_calls": 5}, [{"name": "a", "problem": problem}])
    assert [(reason.code, reason.place) for reason in judgement.reasons] == [(problem, place)]


def test_a_refused_call_without_words_gets_some(told: Callable[..., list[str]]) -> None:
    def words(**fields: Any) -> str:
        (reason,) = told({"max_function_calls": 5}, [{"name": "a", "problem": "malformed_call", **fields}])
        return reason

    unreadable = "malformed_call: call 1, a: the arguments could not be read"
    for result in ({"error": {"message": ""}}, {"error": {"message": 5}}, {"error": "x"}, "x"):
        assert words(result=result) == unreadable
    assert words(arguments=None) == words(arguments={}) == unreadable
    for odd, shown in (([], "[]"), ("", '""'), ({"x": 1}, '{"x": 1}')):
        assert words(arguments=odd) == f"{unreadable}: {shown}"


def test_forbidden_calls_are_counted_in_one_line(judged: Callable[..., Judgement]) -> None:
    def line(*made: str) -> str:
        return judged({"forbidden_function_calls": ["a", "b"]}, made).checks[0].message

    assert line("c") == "none was made"
    assert line("a") == "1 forbidden call made"
    assert line("a", "b", "a") == "3 forbidden calls made"


def test_violations_are_reasons_at_their_call(judged: Callable[..., Judgement]) -> None:
    violations = (
        Violation(path=(), schema_path=(), message="bad"),
        Violation(path=("x",), schema_path=(), message="odd"),
    )
    call = {"name": "f", "violations": violations}
    for expected, place in (
        ({CALLS: [{"function_name": "f", "valid": True}]}, f"expected_output.{CALLS}[0].valid"),
        ({CALLS: ["f"]}, f"expected_output.{CALLS}[0]"),
        ({"max_function_calls": 5}, ""),
    ):
        judgement = judged(expected, [call])
        assert [(reason.code, reason.place, reason.path) for reason in judgement.reasons] == [
            ("invalid_arguments", place, ()),
            ("invalid_arguments", place, ("x",)),
        ]


def test_alternatives_are_named_only_where_they_fail(judged: Callable[..., Judgement]) -> None:
    expected = {CALLS: [{"one_of": [{"function_name": "f", "arguments_contain": {"x": 1}, "body_contains": "a"}, "g"]}]}
    (passed, failed) = judged(expected, [("f", {"x": 1, "body": "b"})]).calls[0].results
    assert (passed.message, failed.message) == (
        "arguments contained",
        'body does not contain "a" (closest alternative: one_of[0])',
    )


def test_what_holds_of_a_call_is_told_beside_what_does_not(judged: Callable[..., Judgement]) -> None:
    """A call out of order has its arguments judged all the same, and a refused call what it was held against."""
    listed = {CALLS: [{"function_name": "a", "arguments": {"x": 1}}, {"in_parallel": ["b", "c"]}]}
    made = [{"name": "b", "turn": 0}, {"name": "c", "turn": 1}, {"name": "a", "arguments": {"x": 1}, "turn": 2}]
    lines = judged(listed, made).calls
    assert [[(result.check, result.status) for result in line.results] for line in lines] == [
        [],
        [("in_parallel", "failed")],
        [("arguments", "passed"), ("call_order", "failed")],
    ]


def test_arguments_that_are_no_mapping_are_no_obstacle_to_words(told: Callable[..., list[str]]) -> None:
    """No call can meet them, and that is told."""
    (message,) = told({CALLS: ["a", {"function_name": "a", "arguments": {"$literal": 5}}]}, ["a"])
    assert message.startswith("missing_call: a() is missing")


def test_a_reason_carries_values_up_to_a_size(judged: Callable[..., Judgement]) -> None:
    """Whole up to 2,000 parts and 4,000 characters; the transcript holds what is larger."""

    def carried(value: Any) -> Any:
        expected = {CALLS: [{"function_name": "a", "arguments": {"x": 0}}]}
        (reason,) = judged(expected, [("a", {"x": value})]).reasons
        return reason.actual

    assert carried([1] * 1999) == [1] * 1999
    assert carried([[1] * 998, [1] * 999]) == [[1] * 998, [1] * 999]
    assert isinstance(carried([1] * 2000), str)
    assert carried("x" * 4000) == "x" * 4000
    assert carried("x" * 4001) == "x" * 4000 + "…"
