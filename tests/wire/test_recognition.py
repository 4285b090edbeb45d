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


def read(path: str, request: Any, reply: Any) -> Any:
    body = b"" if request is None else json.dumps(request).encode()
    return read_exchange("POST", f"https://api.example.com{path}", body, 200, json.dumps(reply).encode())


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
    ],
)
def test_what_looks_like_a_request_to_a_model_and_is_of_no_known_api_is_unread(request_data: Any) -> None:
    exchange = read("/ask", request_data, {"answer": "Hello."})

    assert [item.what for item in exchange.list_unread()] == ["unknown_api.api.example.com"]
    assert is_candidate("POST", "https://api.example.com/ask", json.dumps(request_data).encode())
    assert not is_candidate("GET", "https://api.example.com/ask", b"")


def test_a_body_in_another_charset_is_read_by_it() -> None:
    reply = {"choices": [{"message": {"content": "Grüße"}, "finish_reason": "stop"}]}
    content = json.dumps(reply, ensure_ascii=False).encode("latin-1")
    exchange = read_exchange("POST", "https://x/v1/chat/completions", b"{}", 200, content, charset="latin-1")

    assert exchange is not None
    assert exchange.reply is not None
    assert exchange.reply.text == "Grüße"
