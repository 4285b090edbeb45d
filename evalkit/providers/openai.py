"""OpenAI-compatible chat completions: requests, replies whole and streamed.

OpenAI itself, Ollama, vLLM, llama.cpp, LiteLLM, OpenRouter, Groq, Mistral, ...: whatever speaks the API at `base_url`.
Azure OpenAI and Mistral have a key and rules of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from msgspec.structs import replace

from evalkit.errors import ProviderError, UsageError
from evalkit.jsonvalue import JsonDict, JsonObject, parse_arguments
from evalkit.model.parts import IMAGE, PARTS, TEXT, InputPart
from evalkit.model.transcript import ModelCall, ModelRequest, ModelTurn
from evalkit.providers.base import (
    ProviderKind,
    SchemaRules,
    build_call_id,
    format_result,
    pair_results,
    require_readable,
    require_whole,
)
from evalkit.providers.client import Client, ClientOptions, ClientProvider
from evalkit.providers.pacing import RetryPolicy
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
        return build_body(request, stream=self.options.stream, limit_key=limit)

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
    """Return what the model wrote, if `error` says that it was no readable call: Groq answers HTTP 400 then, but it is
    a reply of the model's and no failure of the service."""
    inner = error.get("error", error) if isinstance(error, Mapping) else None
    if not isinstance(inner, Mapping) or inner.get("code") != "tool_use_failed":
        return None
    return str(inner.get("failed_generation") or inner.get("message") or "")


# -- requests

_REFUSED_IN_STRICT_MODE = """allOf oneOf not dependentRequired dependentSchemas if then else patternProperties
    propertyNames minProperties maxProperties unevaluatedProperties unevaluatedItems contains
    minContains maxContains uniqueItems default"""
SCHEMA_RULES = SchemaRules(
    name=re.compile(r"[A-Za-z0-9_-]{1,64}"),
    name_advice="letters, digits, _ and -, at most 64",
    refused_at_root=("anyOf", "oneOf", "allOf", "enum", "not"),
    refused_in_strict_mode=frozenset(_REFUSED_IN_STRICT_MODE.split()),
)
NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}


def build_body(request: ModelRequest, *, stream: bool, limit_key: str) -> JsonDict:
    """Build the request's body without `model`. `limit_key` is the server's key for `max_output_tokens`."""
    body: JsonDict = {"messages": build_messages(request.system, request.messages)}
    if request.functions:
        body["tools"] = []
        for function in request.functions:
            declared: JsonDict = {"name": function.name, "parameters": dict(function.parameters or NO_PARAMETERS)}
            if function.description:
                declared["description"] = function.description
            body["tools"].append({"type": "function", "function": declared})
    options = {"temperature": request.temperature, "seed": request.seed, limit_key: request.max_output_tokens}
    body |= {key: value for key, value in options.items() if value is not None}
    if request.response_schema is not None:
        schema = {"name": "response", "schema": dict(request.response_schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def build_messages(system: str | None, messages: Iterable[JsonObject]) -> list[JsonDict]:
    """Build the conversation in the API's form. Calls that came without an id get one, so that answers find them."""
    sent: list[JsonDict] = [{"role": "system", "content": system}] if system else []
    pending: list[tuple[ModelCall, str]] = []
    for position, message in enumerate(messages):
        role = message.get("role")
        if role == "user":
            parts = [_build_part(part) for part in message.get(PARTS, ())]
            sent.append({"role": "user", "content": parts or message["text"]})
        elif role == "model":
            reply = _build_reply(message["turn"], position)
            ids = [call["id"] for call in reply.get("tool_calls", ())]
            pending = list(zip(message["turn"].calls, ids, strict=False))
            sent.append(reply)
        elif role == "function":
            for call_id, value in pair_results(message["results"], pending, position):
                sent.append({"role": "tool", "tool_call_id": call_id, "content": format_result(value)})
        else:
            raise UsageError(f"a message's role is user, model or function, got {role!r}")
    return sent


def _build_part(part: InputPart) -> JsonDict:
    """Build a part in the API's form: text files are text to it, and of others it takes images, PDF and sound."""
    if part.kind == TEXT:
        return {"type": "text", "text": part.text}
    if part.kind == IMAGE:
        return {"type": "image_url", "image_url": {"url": part.build_data_url()}}
    if part.is_text_file:
        return {"type": "text", "text": f"{part.name}:\n{part.content.decode(errors='replace')}"}
    if part.mime_type.startswith("audio/"):
        sound_format = "mp3" if "mpeg" in part.mime_type else "wav"
        return {"type": "input_audio", "input_audio": {"data": part.encode_base64(), "format": sound_format}}
    return {"type": "file", "file": {"filename": PurePath(part.name).name, "file_data": part.build_data_url()}}


def _build_reply(turn: ModelTurn, position: int) -> JsonDict:
    message: JsonDict = dict(turn.content) if isinstance(turn.content, Mapping) else {"role": "assistant"}
    if "content" not in message:
        message["content"] = turn.text or None
    if not turn.calls and message["content"] is None:
        message["content"] = ""  # of a reply of which nothing came; null stands only beside calls
    if turn.calls:
        came: list[JsonObject] = list(message.get("tool_calls") or ())
        for call in () if came else turn.calls:
            arguments = call.arguments if call.raw is None else call.raw
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            came.append({"function": {"name": call.name, "arguments": text}, "id": call.call_id})
        message["tool_calls"] = []
        for index, sent in enumerate(came):
            function = sent["function"]
            written = function.get("arguments")
            if isinstance(written, str) and parse_arguments(written)[1] is not None:
                # vLLM, Ollama and others parse the arguments again, and refuse the whole conversation.
                function = {**function, "arguments": "{}"}
            call_id = sent.get("id") or build_call_id(position, index)
            message["tool_calls"].append({**sent, "function": function, "type": "function", "id": call_id})
    return message


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
    schema_rules=SCHEMA_RULES,
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
        return build_body(request, stream=self.options.stream, limit_key="max_completion_tokens")

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
        body = build_body(request, stream=self.options.stream, limit_key="max_tokens")
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
    schema_rules=SCHEMA_RULES,
)
MISTRAL = ProviderKind(
    name="mistral",
    key_variable="MISTRAL_API_KEY",
    model_prefixes=("mistral-", "magistral-", "ministral-", "codestral-", "devstral-"),
    options=ClientOptions,
    open=MistralProvider,
    read_reply=read_reply,
    read_stream=read_stream,
    schema_rules=SCHEMA_RULES,
)
