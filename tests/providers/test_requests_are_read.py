"""What a provider sends is read back by its API's reader: the calls of the history, their answers, the declarations."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from evalkit.jsonvalue import JsonDict
from evalkit.models.providers import anthropic, bedrock
from evalkit.records.case import Declaration
from evalkit.records.transcript import ModelCall, ModelRequest, ModelTurn
from evalkit.wire import (
    anthropic_messages,
    bedrock_converse,
    gemini_content,
    gemini_interactions,
    ollama_chat,
    openai_chat,
)
from evalkit.wire.records import Answer, Call, Request, Text, Unread
from evalkit.wire.table import find_api, looks_like_model_request

VALUES: list[Any] = [{"ok": True}, {}, [1, {"a": None}], "plain", "12", "é\n", {"deep": {"a": [1.5]}}]
NAMES = ("check", "send_mail", "x2")


APIS: dict[str, tuple[Any, Callable[[ModelRequest], JsonDict]]] = {
    "openai": (openai_chat, lambda request: openai_chat.build_request(request, stream=False, limit_key="max_tokens")),
    "anthropic": (anthropic_messages, lambda request: anthropic.build_body(request, max_tokens=5)),
    "bedrock": (bedrock_converse, lambda request: bedrock.build_body(request, max_tokens=5)),
    "gemini": (gemini_content, gemini_content.build_request),
    "interactions": (gemini_interactions, gemini_interactions.build_request),
    "ollama": (ollama_chat, lambda request: {"model": "m", **ollama_chat.build_request(request, stream=False)}),
}


def make_request(chance: random.Random, *, keeps_order: bool) -> tuple[ModelRequest, list[Any]]:
    """Make a conversation: calls with and without ids, answered in any order; and what is to be read of it."""
    messages: list[Any] = [{"role": "user", "text": "Hi."}]
    wanted: list[Any] = ["Hi."]
    for turn in range(chance.randint(1, 3)):
        with_ids = chance.random() < 0.5
        calls = tuple(
            ModelCall(
                name=chance.choice(NAMES),
                arguments={"n": chance.choice(VALUES), "turn": turn, "place": place},
                call_id=f"call_{turn}_{place}" if with_ids else None,
            )
            for place in range(chance.randint(1, 3))
        )
        text = chance.choice(["", "I look."])
        results = [(call, chance.choice(VALUES)) for call in calls]
        if with_ids and keeps_order:
            chance.shuffle(results)
        messages += [
            {"role": "model", "turn": ModelTurn(text=text, calls=calls)},
            {"role": "function", "results": results},
        ]
        wanted += [*([text] if text else []), *((call.name, call.arguments) for call in calls)]
        wanted += [("answer", call.name, value) for call, value in results]
    functions = tuple(Declaration(name=name, parameters={"type": "object"}) for name in NAMES)
    return ModelRequest(system="Be brief.", messages=tuple(messages), functions=functions), wanted


def tell(request: Request) -> list[Any]:
    told: list[Any] = []
    for item in request.items:
        if isinstance(item, Text) and item.role != "system":
            told.append(item.text)
        elif isinstance(item, Call):
            told.append((item.name, item.arguments))
        elif isinstance(item, Answer):
            told.append(("answer", item.name, item.value))
        assert not isinstance(item, Unread)
    return told


@pytest.mark.parametrize("name", APIS)
def test_what_is_sent_is_read_back(name: str) -> None:
    api, build = APIS[name]
    chance = random.Random(name)
    for _ in range(60):
        request, wanted = make_request(chance, keeps_order=api is not ollama_chat)  # whose answers stand as its calls
        body = json.loads(json.dumps(build(request)))
        read = api.read_request(body)
        assert tell(read) == wanted
        assert read.functions == NAMES
        assert looks_like_model_request(body)
        path = "/api/chat" if api is ollama_chat else "/ask"  # by its form it is OpenAI's
        found = find_api(f"https://gateway.example.com{path}", body)
        assert found is not None
        assert found.NAME == api.NAME
