"""The final response: phrases, patterns, JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evalkit.checks.expectation import Judgement

SCHEMA = {
    "type": "object",
    "properties": {"status": {"enum": ["ok", "late"]}, "days": {"type": "integer"}, "to": {"$ref": "#/$defs/name"}},
    "required": ["status"],
    "$defs": {"name": {"type": "string", "minLength": 1}},
}

FAILS: list[tuple[dict[str, Any], str, list[str]]] = [
    ({"response_contains": "refund"}, "Sorry.", ['text_missing: response does not contain "refund"']),
    (
        {"response_contains": ["a", "b"]},
        "",
        ['text_missing: the response is empty, expected it to contain "a", "b"'],
    ),
    ({"response_excludes": ["sorry", "REFUND"]}, "A refund.", ['text_forbidden: response contains "REFUND"']),
    (
        {"response_matches": ["^A", "[0-9]{3}"]},
        "A refund.",
        ['text_missing: response: expected a string with a part that matches "[0-9]{3}", got "A refund."'],
    ),
    (
        {"response_json": SCHEMA},
        '{"status": "lost", "days": 1.5, "to": ""}',
        [
            "response_mismatch: response.days: 1.5 is not of type 'integer' (schema: properties.days.type)",
            "response_mismatch: response.status: 'lost' is not one of ['ok', 'late'] (schema: properties.status.enum)",
            "response_mismatch: response.to: '' should be non-empty (schema: properties.to.minLength)",
        ],
    ),
    (
        {"response_json": SCHEMA},
        "{}",
        ["response_mismatch: response: 'status' is a required property (schema: required)"],
    ),
    (
        {"response_json": SCHEMA},
        "It is ok.",
        ['response_mismatch: the response is not JSON (Expecting value: line 1 column 1 (char 0)): "It is ok."'],
    ),
    ({"response_json": SCHEMA}, "", ['response_mismatch: the response is not JSON (it is empty): ""']),
    (
        {"response_json": {"status": "ok"}},
        '```json\n{"status": "ok"}\n```',
        [
            "response_mismatch: the response is not JSON (Expecting value: line 1 column 1 (char 0)); it stands in a "
            'fenced code block: "```json\\n{\\"status\\": \\"ok\\"}\\n```"'
        ],
    ),
    (
        {"response_json": {"days": {"$gt": 0}}},
        '{"days": NaN}',
        ['response_mismatch: the response is not JSON (NaN is not JSON): "{\\"days\\": NaN}"'],
    ),
    (
        {"response_json": {"days": {"$gt": 3}, "status": "ok"}},
        '{"days": 2, "more": 1}',
        [
            "response_mismatch: response.days: expected a number > 3, got 2",
            'response_mismatch: response.status: missing, expected "ok"',
        ],
    ),
    (
        {"response_json": {"$len": 2}},
        "[1]",
        ["response_mismatch: response: expected a length that is 2, got length 1: [1]"],
    ),
    ({"response_json": [1, 2]}, "[1, 3]", ["response_mismatch: response[1]: expected 2, got 3"]),
    (
        {"response_json": {"a": 1}},
        "\n```json\n{}\n```",
        [
            "response_mismatch: the response is not JSON (Expecting value: line 2 column 1 (char 1)); it stands in a "
            'fenced code block: "\\n```json\\n{}\\n```"'
        ],
    ),
]


@pytest.mark.parametrize(("expected", "response", "reasons"), FAILS)
def test_a_response_that_is_not_as_expected_says_why(
    expected: Any, response: str, reasons: list[str], told: Callable[..., list[str]]
) -> None:
    assert told(expected, response=response) == reasons


PASSES: list[tuple[dict[str, Any], str, str]] = [
    ({"response_contains": "łódź  JEST"}, "Ło\u0301dz\u0301\nJest daleko", "response contains 1 phrase"),
    ({"response_contains": ["fund", "straße"]}, "Refunds for STRASSE", "response contains 2 phrases"),
    ({"response_excludes": "refund"}, "", "response contains none of 1 phrase"),
    ({"response_matches": r"(?i)TKT-\d+"}, "Ticket tkt-12.", "found in the response"),
    ({"response_json": SCHEMA}, ' {"status": "ok"}\n', "the response satisfies the schema"),
    ({"response_json": {"status": "ok"}}, '{"status": "ok", "more": 1}', "the response is as expected"),
    ({"response_json": {"$eq": {"type": "object"}}}, '{"type": "object"}', "the response is as expected"),
    ({"response_json": {"$type": "array"}}, "[]", "the response is as expected"),
    ({"response_json": {"$each": {"a": 1}}}, '[{"a": 1, "b": 2}]', "the response is as expected"),
]


@pytest.mark.parametrize(("expected", "response", "message"), PASSES)
def test_a_response_that_is_as_expected_passes(
    expected: Any, response: str, message: str, judged: Callable[..., Judgement]
) -> None:
    judgement = judged(expected, response=response)
    assert (judgement.status, judgement.checks[0].message) == ("passed", message)


def test_a_reason_about_the_response_names_its_place(judged: Callable[..., Judgement]) -> None:
    def places(expected: Any, response: str) -> list[str]:
        return [reason.place.removeprefix("expected_output.") for reason in judged(expected, response=response).reasons]

    assert places({"response_contains": ["a", "b"]}, "a") == ["response_contains[1]"]
    assert places({"response_contains": "b"}, "a") == ["response_contains"]
    assert places({"response_matches": ["a", "b"]}, "a") == ["response_matches[1]"]
    assert places({"response_json": {"a": {"b": 1}}}, '{"a": {"b": 2}}') == ["response_json.a.b"]
    assert places({"response_json": SCHEMA}, '{"status": 1}') == ["response_json.properties.status.enum"]


CARRIED: list[tuple[dict[str, Any], str, Any, Any]] = [
    ({"response_contains": ["ok", "TKT"]}, "ok so far", "TKT", "ok so far"),
    ({"response_excludes": "SORRY"}, "Sorry.", "SORRY", "Sorry."),
    ({"response_matches": "^a+$"}, "b", {"$search": "^a+$"}, None),
    ({"response_json": {"a": {"b": 1}}}, '{"a": {"b": 2}}', 1, 2),
    ({"response_json": SCHEMA}, '{"status": 1}', None, 1),
]


@pytest.mark.parametrize(("expected", "response", "wanted", "found"), CARRIED)
def test_a_reason_about_the_response_carries_both_values(
    expected: Any, response: str, wanted: Any, found: Any, judged: Callable[..., Judgement]
) -> None:
    """As far as there are two; a pattern is searched in all of the response, which the transcript holds."""
    (reason,) = judged(expected, response=response).reasons
    assert (reason.expected, reason.actual, reason.call) == (wanted, found, None)


def test_a_reason_about_json_says_where_in_the_response_it_is(judged: Callable[..., Judgement]) -> None:
    """By its path in the response, not in the schema."""

    def paths(expected: Any, response: str) -> list[tuple[str | int, ...]]:
        return [reason.path for reason in judged({"response_json": expected}, response=response).reasons]

    assert paths({"a": {"b": 1}}, '{"a": {"b": 2}}') == [("a", "b")]
    assert paths([1, 2], "[1, 3]") == [(1,)]
    assert paths(SCHEMA, '{"status": 1}') == [("status",)]


def test_json_nested_too_deep_is_a_reason(told: Callable[..., list[str]]) -> None:
    (reason,) = told({"response_json": {"a": 1}}, response="[" * 200_000)
    assert reason == "response_mismatch: the response is not JSON that can be read: it is nested too deep"


def test_templates_may_stand_in_demands_on_the_response(judged: Callable[..., Judgement]) -> None:
    made: list[Any] = [("create_ticket", {}, {"id": "TKT.1", "n": 5})]
    for expected in (
        {"response_contains": "{{ calls.create_ticket.result.id }}"},
        {"response_contains": "{{ calls.create_ticket.result.n }}"},
        {"response_excludes": "no {{ calls.create_ticket.result.id }}"},
        {"response_matches": "{{ calls.create_ticket.result.id }}$"},
    ):
        assert judged(expected, made, response="n 5, ticket TKT.1").status == "passed", expected
    assert (
        judged({"response_matches": "{{ calls.create_ticket.result.id }}"}, made, response="TKT-1").status == "failed"
    )
    value = {"response_json": {"id": "{{ calls.create_ticket.result.id }}"}}
    assert judged(value, made, response='{"id": "TKT.1"}').status == "passed"


ABSENT = "template {{ calls.a.result.id }} leads nowhere: a was not called"


@pytest.mark.parametrize(
    "key", ["response_contains", "response_excludes", "response_matches", "response_body_excludes"]
)
def test_a_template_that_leads_nowhere_fails_the_check(key: str, told: Callable[..., list[str]]) -> None:
    assert told({key: "{{ calls.a.result.id }}"}, response="x") == [f"unresolved_reference: {ABSENT}"]


def test_a_template_in_response_json_that_leads_nowhere_fails_it(told: Callable[..., list[str]]) -> None:
    found = told({"response_json": {"id": "{{ calls.a.result.id }}"}}, response="{}")
    assert found == [f"unresolved_reference: {ABSENT}"]
