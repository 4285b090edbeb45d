"""Which exchanges are with a model, and by whose API: by path and form together, else by form, else by the reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalkit.wire.table import is_candidate, read_exchange

HI = [{"role": "user", "content": "Hi."}]
CHAT = {"model": "m", "messages": HI}
CHAT_REPLY = {"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]}
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hello."}],
           "stop_reason": "end_turn"}  # fmt: skip
RESPONSE = {"object": "response", "status": "completed", "output": [{"type": "message", "content": "Hello."}]}
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]}
CONVERSE = {"messages": [{"role": "user", "content": [{"text": "Hi."}]}]}
CONVERSE_REPLY = {"output": {"message": {"content": [{"text": "Hello."}]}}, "stopReason": "end_turn"}

# name -> (path, request, reply, API, model)
READ: dict[str, tuple[str, Any, Any, str, str | None]] = {
    "a gateway's path": ("/proxy/team/v1/chat/completions", CHAT, CHAT_REPLY, "openai_chat", "m"),
    "a gateway's path that sounds like another's": ("/files/proxy/v1/chat/completions", CHAT, CHAT_REPLY, "openai_chat",
                                                    "m"),
    "a path of its own": ("/ask", CHAT, CHAT_REPLY, "openai_chat", "m"),
    "a gateway that translates": ("/v1/chat/completions", CHAT, MESSAGE, "anthropic_messages", "m"),
    "a path of a model's own": ("/models/m/generate", CHAT, CHAT_REPLY, "openai_chat", "m"),
    "a request that tells nothing": ("/ask", {"question": "Hi."}, CHAT_REPLY, "openai_chat", None),
    "a model below a path of files": ("/files/ask", CHAT, CHAT_REPLY, "openai_chat", "m"),
    "a model below a path of batches": ("/v1/batches/run", {"model": "m", "input": "Hi."}, RESPONSE, "openai_responses",
                                        "m"),
    "a model at a path of embeddings": ("/v1/embeddings", CHAT, CHAT_REPLY, "openai_chat", "m"),
    "a model at a path of images": ("/images/describe", {"model": "m", "prompt": "Hi."}, CHAT_REPLY, "openai_chat",
                                    "m"),
    "the older completions": ("/v1/completions", {"model": "m", "prompt": "Hi."},
                              {"choices": [{"text": "Hello.", "finish_reason": "stop"}]}, "openai_chat", "m"),
    "messages of an invoked model": ("/model/vendor.m/invoke", {"anthropic_version": "x", "messages": HI}, MESSAGE,
                                     "anthropic_messages", "vendor.m"),
    "Bedrock's model is in its path": ("/model/vendor.m%3A0/converse", CONVERSE, CONVERSE_REPLY, "bedrock_converse",
                                       "vendor.m:0"),
    "Gemini's too": ("/v1beta/models/gemini-x:generateContent", CONTENTS,
                     {"candidates": [{"content": {"parts": [{"text": "Hello."}]}, "finishReason": "STOP"}]},
                     "gemini_content", "gemini-x"),
    "Ollama's generate": ("/api/generate", {"model": "m", "prompt": "Hi."},
                          {"model": "m", "response": "Hello.", "done": True}, "ollama_chat", "m"),
    "a text as input": ("/v1/responses", {"model": "m", "input": "Hi."}, RESPONSE, "openai_responses", "m"),
    "a reply that is looked up": ("/v1/responses/resp_1", None, RESPONSE, "openai_responses", None),
}  # fmt: skip


def read(path: str, request: Any, reply: Any, method: str = "POST") -> Any:
    body = b"" if request is None else json.dumps(request).encode()
    content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
    return read_exchange(method, f"https://api.example.com{path}", body, 200, content)


@pytest.mark.parametrize(("path", "request_data", "reply", "api", "model"), READ.values(), ids=READ)
def test_an_exchange_is_read_by_its_api(path: str, request_data: Any, reply: Any, api: str, model: str | None) -> None:
    exchange = read(path, request_data, reply)

    assert (exchange.api, exchange.list_unread(), exchange.reply.text) == (api, [], "Hello.")
    assert exchange.reply.model == model


NO_TURNS: dict[str, tuple[str, Any, Any]] = {
    "embeddings": ("/v1/embeddings", {"model": "m", "input": "Hi."}, {"data": [{"embedding": [0.1]}]}),
    "embeddings behind another path": ("/embed", {"model": "m", "input": "Hi."}, {"data": [{"embedding": [0.1]}]}),
    "embeddings of Gemini's": ("/v1beta/models/m:embedContent", {"content": {}}, {"embedding": {"values": [0.1]}}),
    "Ollama's embeddings": ("/api/embed", {"model": "m", "input": "Hi."}, {"embeddings": [[0.1]]}),
    "a count of tokens": ("/v1/messages/count_tokens", CHAT, {"input_tokens": 5}),
    "Gemini's": ("/v1beta/models/m:countTokens", CONTENTS, {"totalTokens": 5}),
    "Bedrock's": ("/model/m/count-tokens", {"input": {}}, {"inputTokens": 5}),
    "cached contents": ("/v1beta/cachedContents", {**CONTENTS, "model": "m"}, {"name": "c"}),
    "models": ("/v1/models", None, {"data": []}),
    "a video": ("/v1/videos", {"model": "m", "prompt": "Hi."}, {"object": "video"}),
    "a batch": ("/v1/messages/batches", {"requests": [{"params": CHAT}]}, {"id": "b"}),
    "a conversation that the service keeps": ("/v1/conversations", {"items": HI}, {"object": "conversation"}),
    "moderation": ("/v1/moderations", {"model": "m", "input": "Hi."}, {"results": []}),
    "a chat between people": ("/messages", {"to": "ana", "text": "Hi."}, {"type": "message", "text": "Hi."}),
    "members of a team": ("/teams", {"inputs": [{"role": "admin"}, {"role": "user"}]}, {"id": 1}),
    "steps of a job": ("/jobs", {"steps": [{"name": "resize", "parameters": {"width": 5}}]}, {"id": 1}),
    "any other service": ("/orders", {"items": [{"name": "drill"}]}, {"id": 1}),
}


@pytest.mark.parametrize(("path", "request_data", "reply"), NO_TURNS.values(), ids=NO_TURNS)
def test_what_is_no_turn_is_none(path: str, request_data: Any, reply: Any) -> None:
    assert read(path, request_data, reply) is None


@pytest.mark.parametrize(
    "request_data",
    [
        CHAT,
        {"dialogue": 1, "tools": [{"name": "drop", "parameters": {}}]},
        {"model": "m", "prompt": "Hi."},
        {"model": "m", "inputs": HI},
        {"agent_id": "a", "inputs": "Hi."},  # Mistral's conversations
        {"inputText": "Hi."},  # Bedrock's agents
        {"message": "Hi.", "tools": [{"name": "drop", "parameter_definitions": {}}]},  # Cohere's first chat
        {"assistant_id": "a"},
        {"messages": [{"role": "human", "content": "Hi."}]},
        {"messages": [*HI, {"role": "ipython", "content": "5"}]},
        {"actions": [{"name": "drop", "parameters": {"type": "object", "properties": {}}}], "question": "Hi."},
    ],
)
def test_what_looks_like_a_request_to_a_model_and_is_of_no_known_api_is_unread(request_data: Any) -> None:
    exchange = read("/ask", request_data, {"answer": "Hello."})

    assert [item.what for item in exchange.list_unread()] == ["unknown_api.api.example.com"]
    assert is_candidate("POST", "https://api.example.com/ask", json.dumps(request_data).encode())
    assert not is_candidate("GET", "https://api.example.com/ask", b"")


CALL = {"id": "c1", "type": "function", "function": {"name": "drop", "arguments": "{}"}}
CHAT_CALL = {"choices": [{"message": {"content": None, "tool_calls": [CALL]}, "finish_reason": "tool_calls"}]}
MESSAGE_CALL = {**MESSAGE, "content": [{"type": "tool_use", "id": "c1", "name": "drop", "input": {}}]}
CONTENT_CALL = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "drop", "args": {}}}]}}]}


def dump_lines(*lines: Any) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


# what a reply holds -> (method, path, request, reply); none of the requests looks like one to a model
ENCLOSED: dict[str, tuple[str, str, Any, Any]] = {
    "a batch of chat completions": (
        "GET", "/v1/files/file-1/content", None,
        dump_lines({"custom_id": "a", "response": {"status_code": 200, "body": CHAT_REPLY}},
                   {"custom_id": "b", "response": {"status_code": 200, "body": CHAT_CALL}})),
    "a batch of messages": (
        "GET", "/v1/messages/batches/msgbatch_1/results", None,
        dump_lines({"custom_id": "a", "result": {"type": "succeeded", "message": MESSAGE_CALL}})),
    "a batch of contents": (
        "GET", "/v1beta/batches/b1", None,
        {"name": "batches/b1", "done": True,
         "response": {"inlinedResponses": {"inlinedResponses": [{"response": CONTENT_CALL}]}}}),
    "a file of a batch of contents": (
        "GET", "/download/v1beta/files/f1:download", None, dump_lines({"key": "a", "response": CONTENT_CALL})),
    "a batch of an invoked model": (
        "GET", "/batch/out.jsonl", None, dump_lines({"recordId": "a", "modelOutput": MESSAGE_CALL})),
    "a gateway's envelope": ("POST", "/ask", {"question": "Hi."}, {"code": 0, "data": CHAT_CALL}),
    "an envelope in a list": ("POST", "/ask", {"question": "Hi."}, [{"data": MESSAGE_CALL}]),
    "the answer to what goes on": ("POST", "/runs/1/continue", {"outputs": [{"call": "1", "output": "done"}]},
                                   {"state": "waits", "tool_calls": [{"name": "drop", "parameters": {}}]}),
    "a call at a path of files": ("POST", "/files/ask", {"question": "Hi."}, {"steps": [{"toolCall": {"name": "f"}}]}),
}  # fmt: skip


@pytest.mark.parametrize(("method", "path", "request_data", "reply"), ENCLOSED.values(), ids=ENCLOSED)
def test_a_call_in_a_reply_that_no_api_reads_is_unread(method: str, path: str, request_data: Any, reply: Any) -> None:
    exchange = read(path, request_data, reply, method)

    assert [item.what for item in exchange.list_unread()] == ["enclosed_call.api.example.com"]


@pytest.mark.parametrize(
    ("method", "path", "reply"),
    [
        ("GET", "/v1/files/file-1/content", dump_lines({"response": {"body": CHAT_REPLY}})),  # replies without calls
        ("GET", "/conversations/1", {"messages": [{"role": "assistant", "tool_calls": [CALL]}]}),  # of the application
        ("POST", "/jobs", {"name": "resize", "args": {"width": 5}, "invocation_id": "i1"}),
        ("POST", "/mcp", {"result": {"tools": [{"name": "drop", "inputSchema": {}, "type": "function"}]}}),
        ("POST", "/flags", {"tool_use": {"enabled": True}, "function_calls": [], "tool_call_limit": 5}),
    ],
)
def test_replies_of_other_services_hold_no_calls(method: str, path: str, reply: Any) -> None:
    assert read(path, {"question": "Hi."} if method == "POST" else None, reply, method) is None


@pytest.mark.parametrize(
    ("path", "request_data", "reply"),
    [
        ("/v1beta/cachedContents", {**CONTENTS, "model": "m"}, {"name": "c", "usageMetadata": {"totalTokenCount": 5}}),
        ("/tokenize", CHAT, {"count": 5, "tokens": [1, 2, 3, 4, 5]}),
        ("/v1/responses/compact", {"model": "m", "input": HI}, {"object": "response.compaction", "output": []}),
    ],
)
def test_what_is_made_of_a_history_and_says_nothing_is_no_turn(path: str, request_data: Any, reply: Any) -> None:
    assert read(path, request_data, reply) is None


@pytest.mark.parametrize("content", [b"", b"<html>a {}</html>", b"upstream timed out", b": ping\n\n"])
def test_a_reply_without_any_data_is_the_services_failure(content: bytes) -> None:
    exchange = read("/v1/chat/completions", CHAT, content)

    assert exchange.list_unread() == []
    assert exchange.reply.failure.message.startswith("the service answered no reply of a model: ")


@pytest.mark.parametrize("content", [b'{"answer": 1', b"event: x\ndata: {oops\n\n", b'call: drop({"id": 5})'])
def test_a_reply_that_may_hold_a_call_is_unread(content: bytes) -> None:
    assert read("/v1/chat/completions", CHAT, content).list_unread() != []


def test_a_body_in_another_charset_is_read_by_it() -> None:
    reply = {"choices": [{"message": {"content": "Grüße"}, "finish_reason": "stop"}]}
    content = json.dumps(reply, ensure_ascii=False).encode("latin-1")
    exchange = read_exchange("POST", "https://x/v1/chat/completions", b"{}", 200, content, charset="latin-1")

    assert exchange is not None
    assert exchange.reply is not None
    assert exchange.reply.text == "Grüße"
