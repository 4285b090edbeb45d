"""OpenAI-compatible chat completions: requests, replies whole and streamed.

OpenAI itself, Ollama, vLLM, llama.cpp, LiteLLM, OpenRouter, Groq, Mistral, ...: whatever speaks the API at `base_url`.
Azure OpenAI and Mistral have a key and rules of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from evalkit.errors import KeyPath, ProviderError
from evalkit.fields.schema import JSON_TYPES, describe_schema, walk_schemas
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.models.providers.base import (
    NameRules,
    OfferedFunction,
    ProviderKind,
    Refusal,
    require_readable,
    require_whole,
)
from evalkit.models.providers.client import Client, ClientOptions, ClientProvider
from evalkit.models.providers.pacing import RetryPolicy
from evalkit.records.transcript import ModelRequest, ModelTurn
from evalkit.wire import openai_chat
from evalkit.wire.reading import as_mapping


class OpenAIProvider(ClientProvider):
    """A model behind a chat-completions API."""

    name = "openai"
    package = extra = "openai"
    key_variable = "OPENAI_API_KEY"
    missing_key = "set OPENAI_API_KEY, or name a base_url"

    def __init__(self, model: str, options: ClientOptions | None = None, *, policy: RetryPolicy | None = None) -> None:
        self.options = options or ClientOptions()
        super().__init__(model, self.options, policy)

    def build_body(self, request: ModelRequest) -> JsonDict:
        limit = "max_completion_tokens" if self.options.base_url is None else "max_tokens"  # others know the old key
        return openai_chat.build_request(request, stream=self.options.stream, limit_key=limit)

    def open_client(self, **arguments: Any) -> Client:
        import openai

        arguments["base_url"] = self.options.base_url
        try:
            return openai.AsyncOpenAI(api_key=self.options.api_key, **arguments)
        except openai.OpenAIError:
            if self.options.base_url is None:
                raise
            return openai.AsyncOpenAI(api_key="none", **arguments)  # a server of one's own often asks for no key

    async def create(self, client: Client, body: JsonDict, timeout_s: float) -> Any:
        import openai

        try:
            return await client.chat.completions.with_raw_response.create(model=self.model, timeout=timeout_s, **body)
        except openai.APIStatusError as error:
            if _find_malformed_call(error.body) is None:
                raise
            return [{"error": error.body}]

    def read_values(self, values: list[Any]) -> ModelTurn:
        failed = next((place for place, value in enumerate(values) if _get_error(value)), len(values))
        if self.options.stream:
            reply = openai_chat.read_stream(values[:failed])
        else:
            reply = openai_chat.read_reply(as_mapping(values[0]))
        if failed < len(values):
            return self._apply_error(reply.to_turn(), _get_error(values[failed]))
        turn = require_readable(reply, self.service).to_turn()
        return require_whole(turn, self.service, is_streamed=self.options.stream)

    def _apply_error(self, turn: ModelTurn, error: Any) -> ModelTurn:
        """Raise the error of an answer with status 200; one that reports a malformed call becomes part of the turn."""
        model_text = _find_malformed_call(error)
        if model_text is not None:
            return replace(turn, finish_reason="malformed_call", finish_message=model_text)
        data = error if isinstance(error, Mapping) else {"message": error}
        status = next((data[key] for key in ("status_code", "code", "status") if isinstance(data.get(key), int)), None)
        raise ProviderError(f"{self.service}: {data.get('message') or json.dumps(data)}", status=status)


def _get_error(value: object) -> Any:
    return value.get("error") if isinstance(value, Mapping) else None


def _find_malformed_call(error: object) -> str | None:
    """Return what the model wrote, or what the service says of it, if `error` says that it was no readable call."""
    inner = error.get("error", error) if isinstance(error, Mapping) else error
    refusal = openai_chat.read_refusal({"error": inner})
    return None if refusal is None else refusal.end_message or ""


# -- requests

NAMES = NameRules("OpenAI", re.compile(r"[A-Za-z0-9_-]{1,64}"), "letters, digits, _ and -, at most 64")
_REFUSED_AT_ROOT = ("anyOf", "oneOf", "allOf", "enum", "not")
_REFUSED_IN_STRICT_MODE = """allOf oneOf not dependentRequired dependentSchemas if then else patternProperties
    propertyNames minProperties maxProperties unevaluatedProperties unevaluatedItems contains
    minContains maxContains uniqueItems default"""


def find_refusals(function: OfferedFunction) -> Iterator[Refusal]:
    """Find what OpenAI refuses in the schema of the parameters."""
    root = function.parameters
    if not isinstance(root, Mapping):
        return
    kind = root.get("type")
    is_other = kind is None or (kind in JSON_TYPES and kind != "object")  # what is not a type is another mistake
    if root and is_other and "$ref" not in root:
        yield ("parameters",), "OpenAI wants parameters of type 'object'", "write type: object"
    for key in _REFUSED_AT_ROOT:
        if key in root:
            advice = "say in the description which parameters go together"
            yield ("parameters", key), f"OpenAI refuses '{key}' at the root", advice
    for path, schema in walk_schemas(root):
        at = ("parameters", *path)
        if schema.get("type") == "array" and not {"items", "prefixItems"} & schema.keys():
            yield at, f"{describe_schema(path)} is an array without 'items'", "say what its items are"
        if function.is_strict:
            yield from _find_strict_refusals(schema, at)


def _find_strict_refusals(schema: JsonObject, at: KeyPath) -> Iterator[Refusal]:
    """Find what OpenAI's strict mode refuses in one schema of the parameters."""
    for key in sorted(schema.keys() & _REFUSED_IN_STRICT_MODE.split()):
        if at != ("parameters",) or key not in _REFUSED_AT_ROOT:  # else it is refused in any mode
            yield (*at, key), f"strict mode refuses '{key}'", "leave it out, or drop strict"
    if schema.get("type") != "object" and "properties" not in schema:
        return
    if schema.get("additionalProperties") is not False:
        message = f"strict mode wants 'additionalProperties: false' in {describe_schema(at[1:])}"
        yield at, message, "add it, or drop strict"
    properties, required = schema.get("properties"), schema.get("required")
    names = properties if isinstance(properties, Mapping) else ()
    missing = [name for name in names if name not in (required or ())]
    if missing:
        listed = f"{', '.join(map(repr, missing))} {'is' if len(missing) == 1 else 'are'}"
        message = f"strict mode wants every parameter in 'required'; {listed} not"
        yield at, message, "list it and let it be null (type: [string, 'null']), or drop strict"


# -- replies


def read_reply(data: object) -> ModelTurn:
    """Read one whole response. Never raises on any JSON."""
    return openai_chat.read_reply(data if isinstance(data, Mapping) else {}).to_turn()


def read_stream(chunks: Iterable[Any]) -> ModelTurn:
    """Read a stream's chunks: the same turn as if it had come whole, except where the stream breaks off."""
    return openai_chat.read_stream(chunks).to_turn()


OPENAI = ProviderKind(
    name="openai",
    key_variable="OPENAI_API_KEY",
    model_prefixes=("gpt-", "o1", "o3", "o4", "chatgpt-"),
    options=ClientOptions,
    open=OpenAIProvider,
    read_reply=read_reply,
    read_stream=read_stream,
    names=NAMES,
    find_refusals=find_refusals,
)


class AzureOptions(ClientOptions, frozen=True, kw_only=True):
    """Options of ``azure:DEPLOYMENT?...``. `base_url` is https://NAME.openai.azure.com; else AZURE_OPENAI_ENDPOINT."""

    api_version: str | None = None  # else OPENAI_API_VERSION; None: the API without versions, at /openai/v1


class AzureProvider(OpenAIProvider):
    """A deployment of Azure OpenAI: ``azure:DEPLOYMENT``."""

    name = "azure"
    key_variable = "AZURE_OPENAI_API_KEY"
    missing_key = "set AZURE_OPENAI_API_KEY"

    def __init__(self, model: str, options: AzureOptions | None = None, *, policy: RetryPolicy | None = None) -> None:
        options = options or AzureOptions()
        super().__init__(model, options, policy=policy)
        self._api_version = options.api_version

    def build_body(self, request: ModelRequest) -> JsonDict:
        return openai_chat.build_request(request, stream=self.options.stream, limit_key="max_completion_tokens")

    def open_client(self, **arguments: Any) -> Client:
        import openai

        endpoint = self.options.base_url or os.environ.get("AZURE_OPENAI_ENDPOINT") or ""
        key = self.options.api_key or os.environ.get("AZURE_OPENAI_API_KEY")
        version = self._api_version or os.environ.get("OPENAI_API_VERSION")
        if not endpoint:
            message = "azure: there is no endpoint; set AZURE_OPENAI_ENDPOINT, or write ?base_url=https://NAME..."
            raise ProviderError(message, status=400)
        if not key:
            raise openai.OpenAIError("the api_key is missing")
        if version is None:
            return openai.AsyncOpenAI(api_key=key, base_url=f"{endpoint.rstrip('/')}/openai/v1/", **arguments)
        return openai.AsyncAzureOpenAI(api_key=key, azure_endpoint=endpoint, api_version=version, **arguments)


class MistralProvider(OpenAIProvider):
    """A model of Mistral's own platform: ``mistral:MODEL``."""

    name = "mistral"
    key_variable = "MISTRAL_API_KEY"
    missing_key = "set MISTRAL_API_KEY"

    def build_body(self, request: ModelRequest) -> JsonDict:
        """Build the body: another name of the seed, no key that the service does not know, ids in its form."""
        body = openai_chat.build_request(request, stream=self.options.stream, limit_key="max_tokens")
        body.pop("stream_options", None)
        if "seed" in body:
            body["extra_body"] = {"random_seed": body.pop("seed")}
        for message in body["messages"]:
            for call in message.get("tool_calls", ()):
                call["id"] = _shorten_id(call["id"])
            if "tool_call_id" in message:
                message["tool_call_id"] = _shorten_id(message["tool_call_id"])
        return body

    def open_client(self, **arguments: Any) -> Client:
        import openai

        key = self.options.api_key or os.environ.get("MISTRAL_API_KEY")
        if not key:
            raise openai.OpenAIError("the api_key is missing")
        return openai.AsyncOpenAI(
            api_key=key, base_url=self.options.base_url or "https://api.mistral.ai/v1", **arguments
        )


def _shorten_id(call_id: str) -> str:
    """Return the id of a call in the only form that the service takes: nine letters and digits."""
    return call_id if re.fullmatch(r"[A-Za-z0-9]{9}", call_id) else hashlib.sha256(call_id.encode()).hexdigest()[:9]


AZURE = ProviderKind(
    name="azure",
    key_variable="AZURE_OPENAI_API_KEY",
    model_prefixes=(),
    options=AzureOptions,
    open=AzureProvider,
    read_reply=read_reply,
    read_stream=read_stream,
    names=replace(NAMES, service="Azure OpenAI"),
    find_refusals=find_refusals,
    span_name="azure.ai.openai",
)
MISTRAL = ProviderKind(
    name="mistral",
    key_variable="MISTRAL_API_KEY",
    model_prefixes=("mistral-", "magistral-", "ministral-", "codestral-", "devstral-"),
    options=ClientOptions,
    open=MistralProvider,
    read_reply=read_reply,
    read_stream=read_stream,
    names=replace(NAMES, service="Mistral"),
    span_name="mistral_ai",
)
