"""Anthropic's messages: requests, replies whole and streamed.

The reply's blocks go back as they came, thoughts and their signatures included: the service checks them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evalkit.errors import ProviderError
from evalkit.jsonvalue import JsonDict
from evalkit.models.providers.base import (
    NameRules,
    OfferedFunction,
    ProviderKind,
    Refusal,
    require_readable,
)
from evalkit.models.providers.client import Client, ClientOptions, ClientProvider
from evalkit.models.providers.pacing import RetryPolicy
from evalkit.records.transcript import ModelRequest, ModelTurn
from evalkit.text.format import cut_between_words
from evalkit.wire import anthropic_messages
from evalkit.wire.reading import as_mapping


class AnthropicOptions(ClientOptions, frozen=True, kw_only=True):
    """Options of ``anthropic:MODEL?...``."""

    max_tokens: int = 8192  # of a reply, where the request sets no limit: the service wants one
    temperature: bool = False  # send the case's, which newer models refuse


class AnthropicProvider(ClientProvider):
    """A model behind the messages API."""

    name = "anthropic"
    package = extra = "anthropic"
    key_variable = "ANTHROPIC_API_KEY"
    missing_key = "set ANTHROPIC_API_KEY"

    def __init__(
        self, model: str, options: AnthropicOptions | None = None, *, policy: RetryPolicy | None = None
    ) -> None:
        self.options = options or AnthropicOptions()
        super().__init__(model, self.options, policy)

    def build_body(self, request: ModelRequest) -> JsonDict:
        body = build_body(request, max_tokens=self.options.max_tokens)
        if self.options.stream:
            body["stream"] = True
        if self.options.temperature and request.temperature is not None:
            body["extra_body"] = {"temperature": request.temperature}
        return body

    def open_client(self, **arguments: Any) -> Client:
        import anthropic

        return anthropic.AsyncAnthropic(api_key=self.options.api_key, base_url=self.options.base_url, **arguments)

    async def create(self, client: Client, body: JsonDict, timeout_s: float) -> Any:
        return await client.messages.with_raw_response.create(model=self.model, timeout=timeout_s, **body)

    def read_values(self, values: list[Any]) -> ModelTurn:
        if self.options.stream:
            reply = anthropic_messages.read_stream(values)
        else:
            reply = anthropic_messages.read_reply(as_mapping(values[0]))
        if reply.failure is not None:
            raise ProviderError(f"{self.service}: {reply.failure.message}", status=reply.failure.status)
        if not self.options.stream and not isinstance(as_mapping(values[0]).get("content"), list):
            text = cut_between_words(str(values[0]), 200)
            raise ProviderError(f"{self.service} answered something that is no message: {text}")
        turn = require_readable(reply, self.service).to_turn()
        if turn.finish_reason == "truncated":
            raise ProviderError(f"{self.service} broke the stream off: {turn.finish_message or 'it has no end'}")
        return turn


# -- requests

NAMES = NameRules("Anthropic", re.compile(r"[A-Za-z0-9_-]{1,128}"), "letters, digits, _ and -, at most 128")


def find_refusals(function: OfferedFunction) -> Iterator[Refusal]:
    """Find what Anthropic refuses in the schema of the parameters."""
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(function.parameters, Mapping) and key in function.parameters:
            advice = "say in the description which parameters go together"
            yield ("parameters", key), f"Anthropic refuses '{key}' at the root", advice


def build_body(request: ModelRequest, *, max_tokens: int) -> JsonDict:
    """Build the request's body without `model`. UsageError for a function whose name the service refuses."""
    for function in request.functions:
        NAMES.check(function.name)
    return anthropic_messages.build_request(request, max_tokens=max_tokens)


# -- replies


def read_reply(data: object) -> ModelTurn:
    """Read one whole message. Never raises on any JSON."""
    return anthropic_messages.read_reply(data if isinstance(data, Mapping) else {}).to_turn()


def read_stream(events: Iterable[Any]) -> ModelTurn:
    """Read a stream's events: the same turn as if it had come whole, except where the stream breaks off."""
    return anthropic_messages.read_stream(events).to_turn()


ANTHROPIC = ProviderKind(
    name="anthropic",
    key_variable="ANTHROPIC_API_KEY",
    model_prefixes=("claude-",),
    options=AnthropicOptions,
    open=AnthropicProvider,
    read_reply=read_reply,
    read_stream=read_stream,
    names=NAMES,
    find_refusals=find_refusals,
)
