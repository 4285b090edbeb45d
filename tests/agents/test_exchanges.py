"""Calls that the application answered itself, told by the next request of its client: by ids, names and order."""

from __future__ import annotations

import json
from typing import Any

import pytest

import evalkit
from evalkit.wire.table import read_exchange

URL = "https://api.openai.com/v1/chat/completions"
USER = {"role": "user", "content": "hi"}


def tool_call(call_id: str | None, name: str = "find") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def assistant(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


LEGACY = {"role": "assistant", "content": None, "function_call": {"name": "find", "arguments": "{}"}}
ANSWERED: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "by its id": (assistant(tool_call("c1")), [{"role": "tool", "tool_call_id": "c1", "content": "7"}]),
    "an id of no characters": (assistant(tool_call("")), [{"role": "tool", "tool_call_id": "", "content": "7"}]),
    "no id at all": (assistant(tool_call(None)), [{"role": "tool", "content": "7"}]),
    "from before tools": (LEGACY, [{"role": "function", "name": "find", "content": "7"}]),
    "several without ids": (
        assistant(tool_call("", "look"), tool_call("", "find")),
        [{"role": "tool", "tool_call_id": "", "content": "1"}, {"role": "tool", "tool_call_id": "", "content": "7"}],
    ),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_an_answer_in_the_next_request_is_the_calls(name: str) -> None:
    message, answers = ANSWERED[name]
    done = {"role": "assistant", "content": "done"}

    def agent(task: evalkit.Task) -> str:
        for messages, reply in (([USER], message), ([USER, message, *answers], done)):
            body = json.dumps({"model": "m", "messages": messages}).encode()
            finish = "stop" if reply is done else "tool_calls"
            data = {"id": "r", "choices": [{"index": 0, "message": reply, "finish_reason": finish}]}
            exchange = read_exchange("POST", URL, body, 200, json.dumps(data).encode())
            assert exchange is not None
            task.record_exchange(exchange)
        return "done"

    case = evalkit.case_from_dict({"input": {"message": "hi"}, "expected_output": {"response_contains": "done"}})
    verdict = evalkit.run_case(case, agent)
    assert verdict.status == "passed", verdict.reasons
    (call,) = (call for call in verdict.transcript.calls if call.name == "find")
    assert (call.answered_by, call.result, call.outcome) == ("application", "7", "ok")
    assert {call.answered_by for call in verdict.transcript.calls} == {"application"}


GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/gemini-x:generateContent"
CONVERSE = "https://bedrock-runtime.eu-central-1.amazonaws.com/model/m/converse"
DECLARED = [{"functionDeclarations": [{"name": "look"}, {"name": "find"}]}]
TOOL_CONFIG = {"tools": [{"toolSpec": {"name": "find", "inputSchema": {"json": {}}}}]}
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "tools": DECLARED}


def candidate(reason: str, message: str = "") -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model"}, "finishReason": reason, "finishMessage": message}]}


# what the service says -> (URL, request, reply, the call that it left out)
LEFT_OUT: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "Gemini names the function": (
        GEMINI,
        CONTENTS,
        candidate("MALFORMED_FUNCTION_CALL", "Malformed function call: print(default_api.find(n=1)"),
        "find",
    ),
    "Gemini names none": (GEMINI, CONTENTS, candidate("MALFORMED_FUNCTION_CALL"), "(no name)"),
    "a call that was not expected": (GEMINI, CONTENTS, candidate("UNEXPECTED_TOOL_CALL"), "(no name)"),
    "Bedrock": (
        CONVERSE,
        {"messages": [{"role": "user", "content": [{"text": "hi"}]}], "toolConfig": TOOL_CONFIG},
        {"output": {"message": {"role": "assistant", "content": []}}, "stopReason": "malformed_tool_use"},
        "(no name)",
    ),
}


@pytest.mark.parametrize("name", LEFT_OUT)
@pytest.mark.parametrize("expected", [{"response_contains": "done"}, {"expected_function_calls": []}])
def test_a_call_that_the_service_left_out_as_malformed_is_the_models(name: str, expected: Any) -> None:
    url, request, reply, function = LEFT_OUT[name]

    def agent(task: evalkit.Task) -> str:
        exchange = read_exchange("POST", url, json.dumps(request).encode(), 200, json.dumps(reply).encode())
        assert exchange is not None
        task.record_exchange(exchange)
        return "done"

    case = evalkit.case_from_dict({"input": {"message": "hi"}, "expected_output": expected})
    verdict = evalkit.run_case(case, agent)

    assert verdict.status == "failed"
    assert verdict.reasons[0].code == "malformed_call"
    assert [(call.name, call.answered_by) for call in verdict.transcript.calls] == [(function, "nobody")]


CALL = '{"name": "find", "arguments": {"q": "SN1"}}'


@pytest.mark.parametrize(
    ("text", "calls", "is_told"),
    [
        (CALL, [], True),
        (f"<tool_call>{CALL}</tool_call>", [], True),
        (f"I have called {CALL}", ["find"], False),
        ('<tool_response>{"name": "find", "result": 7}', [], False),
        ("I would find it.", [], False),
    ],
)
def test_a_last_reply_that_is_a_call_as_text_says_how_an_agent_of_its_own_reads_it(
    text: str, calls: list[str], is_told: bool
) -> None:
    def agent(task: evalkit.Task) -> str:
        for name in calls:
            task.call(name, q="SN1")
        body = json.dumps({"model": "m", "messages": [USER]}).encode()
        data = {"id": "r", "choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}]}
        exchange = read_exchange("POST", URL, body, 200, json.dumps(data).encode())
        assert exchange is not None
        task.record_exchange(exchange)
        return text

    expected = {"expected_function_calls": [{"function_name": "find", "arguments": {"q": "SN1"}}]}
    given = {"message": "hi", "mock_function_responses": {"find": 7}}
    verdict = evalkit.run_case(evalkit.case_from_dict({"input": given, "expected_output": expected}), agent)
    hints = [warning for warning in verdict.warnings if "evalkit.parse_text_calls" in warning]
    assert len(hints) == is_told
    assert [reason.code for reason in verdict.reasons] == ([] if calls else ["missing_call"])
