"""What an agent's own client sends back to the model, on the wires of four APIs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import evalkit
from evalkit.models.cassettes.http.messages import HttpRequest, HttpResponse
from evalkit.models.cassettes.http.model_exchanges import read_http_exchange
from evalkit.records.transcript import CallAnswer
from evalkit.wire.records import Request
from evalkit.wire.table import APIS, parse_body

CHAT = {
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{"id": "c0"}]},
        {"role": "tool", "tool_call_id": "c0", "content": "old"},
        {"role": "assistant", "tool_calls": [{"id": "c1"}, {"id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"ok": true}'},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "plain"}]},
    ],
    "tool_choice": "auto",
}
RESPONSES = {
    "input": [
        {"type": "function_call", "call_id": "c0"},
        {"type": "function_call_output", "call_id": "c0", "output": "[1]"},
    ],
    "tool_choice": {"type": "function", "name": "report"},
}
ANTHROPIC = {
    "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1"}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True},
                {"type": "text", "text": "go on"},
            ],
        },
    ],
    "tool_choice": {"type": "tool", "name": "report"},
}
GEMINI = {
    "contents": [
        {"role": "model", "parts": [{"functionCall": {"name": "f"}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"result": 1}}}]},
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["report"]}},
}
GEMINI_ERROR = {
    "contents": [
        {"role": "model", "parts": [{"functionCall": {"name": "f"}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"error": {"type": "x"}}}}]},
    ]
}
FORCED_CHAT = {"messages": [], "tool_choice": {"type": "function", "function": {"name": "report"}}}
WIRES: dict[str, tuple[Any, tuple[CallAnswer, ...], str | None]] = {
    "chat completions": (CHAT, (CallAnswer({"ok": True}, "c1"), CallAnswer("plain", "c2")), None),
    "chat completions, forced": (FORCED_CHAT, (), "report"),
    "responses": (RESPONSES, (CallAnswer([1], "c0"),), "report"),
    "anthropic": (ANTHROPIC, (CallAnswer("no", "c1", is_error=True),), "report"),
    "gemini": (GEMINI, (CallAnswer(1, name="f"),), "report"),
    "gemini, an error": (GEMINI_ERROR, (CallAnswer({"error": {"type": "x"}}, name="f", is_error=True),), None),
    "any function": ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, (), None),
    "a text as input": ({"input": "hello"}, (), None),
    "another service": ([1, 2], (), None),
    "no JSON": (None, (), None),
}


@pytest.mark.parametrize(("data", "answers", "forced"), WIRES.values(), ids=WIRES)
def test_answers_and_a_forced_function_are_read(data: Any, answers: tuple[CallAnswer, ...], forced: str | None) -> None:
    body = b"{" if data is None else json.dumps(data).encode()
    known = parse_body(body)
    api = next((api for api in APIS if known is not None and api.is_request(known)), None)
    request = Request() if api is None or known is None else api.read_request(known)
    read = tuple(CallAnswer(item.value, item.call_id, item.name, item.is_error) for item in request.new_answers)
    assert (read, request.forced_name) == (answers, forced)


def reply(*names: str) -> dict[str, Any]:
    calls = [
        {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}} for name in names
    ]
    message = {"role": "assistant", "content": None if names else "done", "tool_calls": calls}
    return {"object": "chat.completion", "choices": [{"message": message, "finish_reason": "stop"}]}


@pytest.fixture
def converse(tmp_path: Path) -> Any:
    """Run an agent whose client posts these bodies and plays these replies; the calls on record."""

    def run(*exchanges: tuple[dict[str, Any], dict[str, Any]]) -> list[tuple[Any, ...]]:
        url = "http://model.example.com/v1/chat/completions"
        file = tmp_path / "cassettes" / "guarded_001.http.yaml"
        file.parent.mkdir()
        recorded = [
            {"request": {"method": "POST", "url": url, "json": body}, "response": {"status": 200, "json": answer}}
            for body, answer in exchanges
        ]
        file.write_text(yaml.safe_dump({"exchanges": recorded}))

        def agent(task: evalkit.Task) -> str:
            from urllib.request import Request, urlopen

            for body, _ in exchanges:
                request = Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
                with urlopen(request, timeout=5) as response:
                    response.read()
            return "done"

        case = evalkit.case_from_dict(
            {"input": {"message": "go"}, "expected_output": {"response_contains": "done"}},
            path=Path("guarded_001.yaml"),
        )
        settings = evalkit.Settings(root=tmp_path, cassettes=Path("cassettes"))
        verdict = evalkit.run_case(case, agent, settings)
        assert verdict.passed, verdict.reasons
        return [(call.name, call.turn, call.answered_by, call.result) for call in verdict.transcript.calls]

    return run


def test_a_body_that_its_client_has_unpacked_is_read() -> None:
    """aiohttp unpacks, and leaves the header."""
    reply = json.dumps({"choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]})
    request = HttpRequest("POST", "https://api.example.com/v1/chat/completions", b'{"model": "m", "messages": []}')
    for content, is_unpacked in ((reply.encode(), True), (gzip.compress(reply.encode()), False)):
        headers = (("content-encoding", "gzip"),)
        response = HttpResponse(200, "", headers, content, is_unpacked=is_unpacked)
        exchange = read_http_exchange(request, response, 0.0)
        assert exchange is not None
        assert exchange.reply is not None
        assert exchange.reply.text == "yes"


def test_what_the_application_answers_on_the_wire_is_a_call(converse: Any) -> None:
    answers = [{"role": "tool", "tool_call_id": "call_delete", "content": "blocked by policy"}]
    messages = [{"role": "assistant", "tool_calls": []}, *answers]
    calls = converse(({"messages": []}, reply("delete", "route")), ({"messages": messages}, reply()))
    unanswered = {"type": "unanswered", "message": "the model asked for route, and nobody answered"}
    assert calls == [
        ("delete", 0, "application", "blocked by policy"),
        ("route", 0, "nobody", {"error": unanswered}),
    ]


def test_an_answer_of_before_there_were_tools_belongs_to_its_call(converse: Any) -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "track", "arguments": "{}"}}
    asked = {"object": "chat.completion", "choices": [{"message": call, "finish_reason": "function_call"}]}
    answered = {"messages": [call, {"role": "function", "name": "track", "content": '{"at": "Lyon"}'}]}
    assert converse(({"messages": []}, asked), (answered, reply())) == [("track", 0, "application", {"at": "Lyon"})]


def test_the_only_answer_belongs_to_the_only_call_also_under_an_empty_id(converse: Any) -> None:
    """Some local servers give calls no id."""
    asked = reply("track")
    asked["choices"][0]["message"]["tool_calls"][0]["id"] = ""
    messages = [asked["choices"][0]["message"], {"role": "tool", "tool_call_id": "", "content": '{"at": "Lyon"}'}]
    calls = converse(({"messages": []}, asked), ({"messages": messages}, reply()))
    assert calls == [("track", 0, "application", {"at": "Lyon"})]


def test_structured_output_by_a_forced_function_is_no_call(converse: Any) -> None:
    """The client makes the model call it, and reads the arguments as the answer."""
    assert converse((FORCED_CHAT, reply("report"))) == []
