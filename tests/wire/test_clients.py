"""Agents with the services' own clients, live: what a model asks for and what the agent answers is on record."""

from __future__ import annotations

import base64
import json
import struct
from binascii import crc32
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalkit.records.settings import Settings
from evalkit.records.verdict import Verdict
from evalkit.runner.run_case import run_case
from evalkit.spec.load import case_from_dict
from tests.servers.replay import Answer, ReplayServer

Agent = Callable[[str], object]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
OK = {"ok": True}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplayServer]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "k")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = ReplayServer()
    yield server
    server.close()


def encode_frames(*events: tuple[str, Any]) -> bytes:
    """Encode events as AWS does."""
    stream = b""
    for name, data in events:
        headers = b""
        for key, value in ((":event-type", name), (":message-type", "event")):
            headers += bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        payload = json.dumps(data).encode()
        prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
        message = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
        stream += message + struct.pack(">I", crc32(message))
    return stream


def open_bedrock(url: str) -> Any:
    return pytest.importorskip("boto3").client("bedrock-runtime", region_name="us-east-1", endpoint_url=url)


HELLO: list[Any] = [{"role": "user", "content": [{"text": "Hi."}]}]
TOOLS = {"tools": [{"toolSpec": {"name": "check", "inputSchema": {"json": SCHEMA}}}]}


def by_converse(url: str) -> None:
    client = open_bedrock(url)
    reply = client.converse(modelId="v.m-v1:0", messages=HELLO, toolConfig=TOOLS)["output"]["message"]
    use = next(block["toolUse"] for block in reply["content"] if "toolUse" in block)
    result = {"toolResult": {"toolUseId": use["toolUseId"], "content": [{"json": OK}]}}
    again = [*HELLO, reply, {"role": "user", "content": [result]}]
    client.converse(modelId="v.m-v1:0", messages=again, toolConfig=TOOLS)


def by_converse_stream(url: str) -> None:
    list(open_bedrock(url).converse_stream(modelId="v.m-v1:0", messages=HELLO, toolConfig=TOOLS)["stream"])


CLAUDE = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi."}],
          "tools": [{"name": "check", "input_schema": SCHEMA}]}  # fmt: skip


def by_invoke(url: str) -> None:
    open_bedrock(url).invoke_model(modelId="v.claude", body=json.dumps(CLAUDE))["body"].read()


def by_invoke_stream(url: str) -> None:
    list(open_bedrock(url).invoke_model_with_response_stream(modelId="v.claude", body=json.dumps(CLAUDE))["body"])


def open_genai(url: str) -> Any:
    return pytest.importorskip("google.genai").Client(http_options={"base_url": url})


FUNCTION = {"type": "function", "name": "check", "parameters": SCHEMA}


def by_interactions(url: str) -> None:
    client = open_genai(url)
    first = client.interactions.create(model="gemini-x", input="Hi.", tools=[FUNCTION])
    result = {"type": "function_result", "call_id": "c1", "name": "check", "result": json.dumps(OK)}
    client.interactions.create(model="gemini-x", input=[result], tools=[FUNCTION], previous_interaction_id=first.id)


def by_interactions_stream(url: str) -> None:
    client = open_genai(url)  # which closes itself when nobody holds it
    list(client.interactions.create(model="gemini-x", input="Hi.", tools=[FUNCTION], stream=True))


def by_ollama(url: str) -> None:
    httpx = pytest.importorskip("httpx")
    tools = [{"type": "function", "function": {"name": "check", "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "user", "content": "Hi."}]
    reply = httpx.post(f"{url}/api/chat", json={"model": "m", "messages": messages, "tools": tools}).text
    messages += [json.loads(reply.splitlines()[0])["message"]]
    messages += [{"role": "tool", "tool_name": "check", "content": json.dumps(OK)}]
    httpx.post(f"{url}/api/chat", json={"model": "m", "messages": messages, "tools": tools})


def by_responses(url: str) -> None:
    client = pytest.importorskip("openai").OpenAI(base_url=url)
    first = client.responses.create(model="m", input="Hi.", tools=[FUNCTION])
    result = {"type": "function_call_output", "call_id": "c1", "output": json.dumps(OK)}
    client.responses.create(model="m", input=[result], tools=[FUNCTION], previous_response_id=first.id)


def json_of(value: Any) -> Answer:
    return Answer(json.dumps(value))


def frames_of(*events: tuple[str, Any]) -> Answer:
    return Answer(encode_frames(*events), content_type="application/vnd.amazon.eventstream")


def events_of(*events: Any) -> Answer:
    return Answer("".join(f"data: {json.dumps(event)}\n\n" for event in events), content_type="text/event-stream")


def converse(block: Any, stop: str) -> Any:
    return {"output": {"message": {"role": "assistant", "content": [block]}}, "stopReason": stop,
            "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}}  # fmt: skip


def interaction(step: Any, status: str) -> Any:
    return {"id": "v1_abcdefgh", "object": "interaction", "model": "gemini-x", "status": status, "steps": [step],
            "created": "2026-11-27T10:00:00Z", "updated": "2026-11-27T10:00:00Z"}  # fmt: skip


def response(item: Any) -> Any:
    return {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m",
            "output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip


USE = {"toolUse": {"toolUseId": "c1", "name": "check", "input": {"n": 1}}}
TOOL_USE = {"type": "tool_use", "id": "c1", "name": "check", "input": {"n": 1}}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [TOOL_USE],
           "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
STEP = {"type": "function_call", "id": "c1", "name": "check", "arguments": {"n": 1}}
SAID = {"type": "message", "id": "m1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "done", "annotations": []}]}  # fmt: skip
OLLAMA = {"model": "m", "done": True}


def encode_event(event: Any) -> tuple[str, Any]:
    return "chunk", {"bytes": base64.b64encode(json.dumps(event).encode()).decode()}


# name -> (the agent, what its service answers, whether the agent answers the call)
WAYS: dict[str, tuple[Agent, list[Answer], bool]] = {
    "converse": (by_converse, [json_of(converse(USE, "tool_use")), json_of(converse({"text": "done"}, "end_turn"))],
                 True),
    "converse, streamed": (by_converse_stream, [frames_of(
        ("messageStart", {"role": "assistant"}),
        ("contentBlockStart", {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "c1", "name": "check"}}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"toolUse": {"input": '{"n": 1}'}}}),
        ("contentBlockStop", {"contentBlockIndex": 0}), ("messageStop", {"stopReason": "tool_use"}))], False),
    "invoke": (by_invoke, [json_of(MESSAGE)], False),
    "invoke, streamed": (by_invoke_stream, [frames_of(*map(encode_event, [
        {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {**TOOL_USE, "input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"n": 1}'}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}]))], False),
    "interactions": (by_interactions, [json_of(interaction(STEP, "requires_action")), json_of(interaction(
        {"type": "model_output", "content": [{"type": "text", "text": "done"}]}, "completed"))], True),
    "interactions, streamed": (by_interactions_stream, [events_of(
        {"event_type": "step.start", "index": 0, "step": {**STEP, "arguments": {}}},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "arguments_delta", "arguments": '{"n": 1}'}},
        {"event_type": "step.stop", "index": 0},
        {"event_type": "interaction.completed", "interaction": interaction(STEP, "requires_action")})], False),
    "Ollama": (by_ollama, [
        Answer("\n".join(map(json.dumps, [
            {**OLLAMA, "done": False, "message": {"role": "assistant", "content": "", "tool_calls": [
                {"function": {"name": "check", "arguments": {"n": 1}}}]}},
            {**OLLAMA, "message": {"role": "assistant", "content": ""}}]))),
        json_of({**OLLAMA, "message": {"role": "assistant", "content": "done"}})], True),
    "responses": (by_responses, [json_of(response({"type": "function_call", "id": "fc_1", "call_id": "c1",
        "name": "check", "arguments": '{"n": 1}', "status": "completed"})), json_of(response(SAID))], True),
}  # fmt: skip


def judge(agent: Agent, answers: list[Answer], expected: Any, service: ReplayServer, root: Path) -> Verdict:
    service.answers[:] = answers
    case = case_from_dict(
        {"input": {"message": "Hi."}, "expected_output": expected}, root / "scenarios" / "case_001.yaml", root=root
    )
    settings = Settings(root=root, model="openai:m?base_url=http://127.0.0.1:9/v1")
    return run_case(case, lambda task: agent(service.url) or "done", settings=settings)


@pytest.mark.parametrize(("agent", "answers", "is_answered"), WAYS.values(), ids=WAYS)
def test_a_forbidden_call_is_red(
    agent: Agent, answers: list[Answer], is_answered: bool, service: ReplayServer, tmp_path: Path
) -> None:
    verdict = judge(agent, answers, {"forbidden_function_calls": ["check"]}, service, tmp_path)

    assert (verdict.status, verdict.reasons[0].code) == ("failed", "forbidden_call")
    (call,) = verdict.transcript.calls
    assert (call.name, call.arguments) == ("check", {"n": 1})


@pytest.mark.parametrize("name", [name for name, (_, _, is_answered) in WAYS.items() if is_answered])
def test_a_call_that_is_wanted_is_green_and_has_the_agents_answer(
    name: str, service: ReplayServer, tmp_path: Path
) -> None:
    agent, answers, _ = WAYS[name]
    expected = {"expected_function_calls": [{"function_name": "check", "arguments": {"n": 1}}]}
    verdict = judge(agent, answers, expected, service, tmp_path)

    assert (verdict.status, verdict.reasons) == ("passed", ())
    assert [call.result for call in verdict.transcript.calls] == [OK]
    assert len(verdict.transcript.turns) == 2
