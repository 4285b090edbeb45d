"""What settings say of requests, in the form of each API; and what a service has no key for."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.errors import UsageError
from evalkit.models.providers.table import open_provider
from evalkit.records.transcript import ModelRequest
from evalkit.wire import (
    bedrock_converse,
    gemini_content,
    gemini_interactions,
    ollama_chat,
    openai_chat,
    openai_responses,
)
from tests.providers.asking import ask_provider

USER = {"role": "user", "text": "hi"}
SAID = ModelRequest(messages=(USER,), temperature=0.5, seed=7, max_output_tokens=9, reasoning_effort="low")
PLAIN = ModelRequest(messages=(USER,))
BUILD: dict[str, Any] = {
    "chat": lambda request: openai_chat.build_request(request, stream=False, limit_key="max_tokens"),
    "responses": lambda request: openai_responses.build_request(request, stream=False),
    "gemini": gemini_content.build_request,
    "interactions": gemini_interactions.build_request,
    "ollama": lambda request: ollama_chat.build_request(request, stream=False),
    "bedrock": lambda request: bedrock_converse.build_request(request, max_tokens=8192),
}


@pytest.mark.parametrize(
    ("api", "added"),
    [
        ("chat", {"temperature": 0.5, "seed": 7, "max_tokens": 9, "reasoning_effort": "low"}),
        ("responses", {"temperature": 0.5, "max_output_tokens": 9, "reasoning": {"effort": "low"}}),
        ("gemini", {"generationConfig": {"temperature": 0.5, "seed": 7, "maxOutputTokens": 9,
                                         "thinkingConfig": {"thinkingLevel": "LOW"}}}),
        ("interactions", {"generation_config": {"temperature": 0.5, "seed": 7, "max_output_tokens": 9,
                                                "thinking_level": "low"}}),
        ("ollama", {"options": {"num_predict": 9, "temperature": 0.5, "seed": 7}}),
        ("bedrock", {"inferenceConfig": {"maxTokens": 9, "temperature": 0.5}}),
    ],
)  # fmt: skip
def test_what_is_set_is_sent_by_its_name_and_nothing_else_is(api: str, added: dict[str, Any]) -> None:
    body, plain = BUILD[api](SAID), BUILD[api](PLAIN)

    assert {key: value for key, value in body.items() if plain.get(key) != value} == added
    assert not {"temperature", "seed", "generationConfig", "generation_config", "options"} & plain.keys()


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ("gemini:m?verbosity=low", "Gemini has no 'verbosity', and the request says 'low'"),
        ("anthropic:m?verbosity=low", "Anthropic has no 'verbosity'"),
        ("mistral:m?verbosity=low", "Mistral has no 'verbosity'"),
        ("ollama:m?verbosity=low", "Ollama has no 'verbosity'"),
        ("bedrock:m?verbosity=low", "Bedrock's converse has no 'verbosity'"),
        ("bedrock:m?reasoning_effort=low", "Bedrock's converse has no 'reasoning_effort'"),
    ],
)
def test_what_a_service_has_no_key_for_is_told_before_anything_is_sent(model: str, refused: str) -> None:
    with pytest.raises(UsageError, match=refused):
        ask_provider(open_provider(model), PLAIN)


@pytest.mark.parametrize("option", ["temperature=3", "temperature=-1", "max_output_tokens=0", "temperature=warm"])
def test_options_of_a_model_have_bounds(option: str) -> None:
    with pytest.raises(UsageError, match=f"{option} is no value of"):
        open_provider(f"gemini:m?{option}")
