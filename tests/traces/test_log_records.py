"""Messages in log records beside the spans: OpenTelemetry's events, and what AWS's exporter takes out of spans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import UsageError
from evalkit.hosts.traces.log_formats import Conversation, FunctionAnswer, LoggedMessage, ModelReply
from evalkit.hosts.traces.read_log import read_log

CALL = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": {"amount": 5}}}
USED = {"toolUse": {"toolUseId": "c1", "name": "pay", "input": {"amount": 5}}}
PAID = {"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": "paid"}]}}
FACTS = ["Pay 5.", [("pay", {"amount": 5})], "paid", "It is paid."]


def log(span: str, time: int, name: str, body: object) -> dict[str, Any]:
    """Return a log record as CloudWatch has them."""
    ids = {"traceId": "t1", "spanId": span}
    return {**ids, "timeUnixNano": time, "body": body, "attributes": {"event.name": name}, "severityText": ""}


def span(span_id: str, start: int, **attributes: Any) -> dict[str, Any]:
    ids = {"traceId": "t1", "spanId": span_id}
    return {**ids, "name": span_id, "startTimeUnixNano": start, "endTimeUnixNano": start + 1, "attributes": attributes}


def chat(span_id: str, start: int) -> dict[str, Any]:
    return span(span_id, start, **{"gen_ai.operation.name": "chat"})


# Of Bedrock's client: a function's answer stands in an event of its own and in one of the user.
EVENTS = [
    log("a", 1, "gen_ai.user.message", {"content": [{"text": "Pay 5."}]}),
    log("a", 2, "gen_ai.choice", {"message": {"role": "assistant", "tool_calls": [CALL]}, "finish_reason": "tool_use"}),
    log("b", 3, "gen_ai.user.message", {"content": [{"text": "Pay 5."}]}),
    log("b", 4, "gen_ai.assistant.message", {"content": [{"text": ""}, USED], "tool_calls": [CALL]}),
    log("b", 5, "gen_ai.tool.message", {"id": "c1", "content": [{"text": "paid"}]}),
    log("b", 6, "gen_ai.user.message", {"content": [PAID]}),
    log("b", 7, "gen_ai.choice", {"message": {"content": [{"text": "It is paid."}]}, "finish_reason": "end_turn"}),
    log("b", 8, "", "Invocation completed"),
]


def take_out(asked: list[tuple[str, Any]], *said: dict[str, str]) -> dict[str, Any]:
    """Return messages as AWS's exporter takes them out of the spans of Strands."""
    outputs = [{"role": "assistant", "content": content} for content in said]
    return {
        "input": {"messages": [{"role": role, "content": content} for role, content in asked]},
        "output": {"messages": outputs},
    }


ASKED = ("user", {"content": json.dumps([{"text": "Pay 5."}])})
TAKEN_OUT = [
    log("a", 2, "strands", take_out([ASKED], {"message": json.dumps([USED]), "finish_reason": "tool_use"})),
    log(
        "b",
        7,
        "strands",
        take_out(
            [ASKED, ("tool", {"content": json.dumps([PAID])})],
            {"content": json.dumps([{"text": "Of an earlier turn."}])},
            {"content": json.dumps([USED])},
            {"message": json.dumps([{"text": "It is paid."}]), "finish_reason": "end_turn"},
        ),
    ),
]


def read(folder: Path, records: list[Any]) -> Any:
    path = folder / "logs.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), "utf-8")
    (result,) = read_log(path)
    return result


def list_facts(conversation: Conversation | UsageError) -> list[Any]:
    assert isinstance(conversation, Conversation), conversation
    facts: list[Any] = []
    for event in conversation.events:
        if isinstance(event, LoggedMessage):
            facts.append(event.text)
        elif isinstance(event, ModelReply):
            facts.append([(call.name, call.arguments) for call in event.calls] or event.text)
        elif isinstance(event, FunctionAnswer):
            facts.append(event.value)
    return facts


@pytest.mark.parametrize("logs", [EVENTS, TAKEN_OUT], ids=["events", "aws"])
def test_messages_in_log_records_are_those_of_their_spans(logs: list[Any], tmp_path: Path) -> None:
    """In any order: CloudWatch lists the latest first."""
    assert list_facts(read(tmp_path, [*reversed(logs), chat("b", 3), chat("a", 1)])) == FACTS


def test_log_records_are_read_from_otlp(tmp_path: Path) -> None:
    def wrap(value: object) -> dict[str, Any]:
        if isinstance(value, dict):
            return {"kvlistValue": {"values": [{"key": key, "value": wrap(inner)} for key, inner in value.items()]}}
        if isinstance(value, list):
            return {"arrayValue": {"values": [wrap(inner) for inner in value]}}
        return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}

    listed = [
        {**record, "body": wrap(record["body"]), "attributes": [], "eventName": record["attributes"]["event.name"]}
        for record in EVENTS
    ]
    export = {"resourceLogs": [{"scopeLogs": [{"logRecords": listed}]}]}
    assert list_facts(read(tmp_path, [export, chat("a", 1), chat("b", 3)])) == FACTS


def test_events_of_a_request_whose_span_is_missing_are_read(tmp_path: Path) -> None:
    assert list_facts(read(tmp_path, EVENTS)) == FACTS


def test_messages_of_an_unknown_span_make_its_trace_a_problem(tmp_path: Path) -> None:
    """They could be of a call as well as of a reply."""
    problem = read(tmp_path, [TAKEN_OUT[0], chat("b", 3), TAKEN_OUT[1]])
    assert str(problem) == (
        "logs.jsonl, trace t1: log records hold messages of a span that is not on record; put its export into the "
        "same file"
    )


def test_what_aws_takes_out_of_a_call_is_its_input_and_output(tmp_path: Path) -> None:
    taken = take_out([("user", "{'amount': 5}")])
    taken["output"]["messages"] = [
        {"role": "assistant", "content": '{"name": "pay", "type": "tool", "content": "paid"}'}
    ]
    call = span("a", 1, **{"openinference.span.kind": "TOOL", "tool.name": "pay"})
    conversation = read(tmp_path, [call, log("a", 2, "openinference", taken)])
    (answer,) = conversation.events
    assert answer.direct.arguments == {"amount": 5}


def test_what_else_was_logged_is_no_message(tmp_path: Path) -> None:
    records = [*EVENTS, log("x", 9, "app", "Started"), log("y", 9, "app", {"count": 3})]
    assert list_facts(read(tmp_path, records)) == FACTS
