"""OpenAI-compatible chat completions through the openai client (the extra ``openai``), imported with the first turn.

OpenAI itself, Ollama, vLLM, llama.cpp, LiteLLM, OpenRouter, Groq, Mistral, ...: whatever speaks the API at `base_url`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from evalkit.errors import EvalkitError, ProviderError
from evalkit.model.transcript import ModelRequest, ModelTurn
from evalkit.providers.base import ModelSpec, read_options
from evalkit.providers.openai.reply import read_reply, read_stream
from evalkit.providers.openai.request import build_body
from evalkit.providers.pacing import RetryPolicy, call_with_retries
from evalkit.providers.service_errors import parse_seconds, read_retry_after, to_transport_error
from evalkit.streaming.events import parse_values

if TYPE_CHECKING:
    import openai


DEFAULT_TIMEOUT_S = 60.0


class OpenAIOptions(Struct, frozen=True, kw_only=True):
    """What ``openai:MODEL?...`` may say beside the model. The key is read by the client from its environment.

    `drop` names keys of the request, separated by commas, that this server refuses, e.g. ``seed``.
    """

    base_url: str | None = None
    stream: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S
    retries: int = 4
    drop: str = ""
    api_key: str | None = None


class OpenAIProvider:
    """One model behind a chat-completions API. One client per event loop; `aclose` releases the running loop's."""

    name = "openai"

    def __init__(self, model: str, options: OpenAIOptions | None = None, *, policy: RetryPolicy | None = None) -> None:
        self.model = model
        self.options = options or OpenAIOptions()
        self._policy = policy or RetryPolicy(retries=self.options.retries)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = WeakKeyDictionary()

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Ask the model. Raises ProviderError when the service fails or refuses; a blocked reply is a turn."""
        limit = "max_completion_tokens" if self.options.base_url is None else "max_tokens"  # others know the old key
        body = build_body(request, stream=self.options.stream, token_limit=limit)
        for key in self.options.drop.split(","):
            body.pop(key, None)

        async def send() -> ModelTurn:
            return await self._send(body, request.timeout_s)

        return await call_with_retries(send, self._policy)

    async def aclose(self) -> None:
        """Close the running event loop's client."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def _send(self, body: dict[str, Any], timeout_s: float | None) -> ModelTurn:
        started = perf_counter()
        try:
            values = await self._post(body, timeout_s)
            failed = next((place for place, value in enumerate(values) if _get_error(value)), len(values))
            turn = self._read_stream(values[:failed]) if self.options.stream else read_reply(values[0])
            if failed < len(values):
                turn = self._apply_error(turn, _get_error(values[failed]))
        except Exception as error:
            raise self._to_evalkit_error(error) from error
        return replace(turn, duration_ms=(perf_counter() - started) * 1000)

    async def _post(self, body: dict[str, Any], timeout_s: float | None) -> list[Any]:
        """The JSON values of the answer, at least one."""
        import openai

        create = self._get_client().chat.completions.with_raw_response.create
        try:
            response = await create(model=self.model, timeout=timeout_s or self.options.timeout_s, **body)
        except openai.APIStatusError as error:
            if _find_malformed_call(error.body) is None:
                raise
            return [{"error": error.body}]
        await response.http_response.aread()
        text = str(response.http_response.text)
        values = parse_values(text)
        if not values:
            raise ProviderError(f"{self._format_service()} answered something that is no JSON: {text[:200]!r}")
        return values

    def _read_stream(self, chunks: list[Any]) -> ModelTurn:
        try:
            return read_stream(chunks)
        except (AttributeError, KeyError, TypeError) as error:
            raise ProviderError(
                f"{self._format_service()} streamed something that is no chat completion: {error}"
            ) from error

    def _apply_error(self, turn: ModelTurn, error: Any) -> ModelTurn:
        """An answer with status 200 that holds an error, perhaps after a part of the reply."""
        model_text = _find_malformed_call(error)
        if model_text is not None:
            return replace(turn, finish_reason="malformed_call", finish_message=model_text)
        data = error if isinstance(error, Mapping) else {"message": error}
        status = next((data[key] for key in ("status_code", "code", "status") if isinstance(data.get(key), int)), None)
        raise ProviderError(f"{self._format_service()}: {data.get('message') or json.dumps(data)}", status=status)

    def _get_client(self) -> openai.AsyncOpenAI:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._create_client()
        return client

    def _create_client(self) -> openai.AsyncOpenAI:
        import openai

        arguments: dict[str, Any] = {"base_url": self.options.base_url, "max_retries": 0}
        try:
            return openai.AsyncOpenAI(api_key=self.options.api_key, **arguments)
        except openai.OpenAIError:
            if self.options.base_url is None:
                raise
            return openai.AsyncOpenAI(api_key="none", **arguments)  # a server of one's own often asks for no key

    def _format_service(self) -> str:
        return f"openai ({self.model})"

    def _to_evalkit_error(self, error: Exception) -> EvalkitError:
        if isinstance(error, EvalkitError):
            return error
        if isinstance(error, ModuleNotFoundError) and error.name == "openai":
            return ProviderError("openai: models need the extra: pip install 'pytest-evalkit[openai]'", status=400)
        import openai

        if isinstance(error, openai.APIStatusError):
            return self._convert_status_error(error)
        cause = error.__cause__ if isinstance(error, openai.APIConnectionError) and error.__cause__ else error
        below = to_transport_error(cause, self._format_service())
        if below is not None:
            return below
        if isinstance(error, openai.OpenAIError) and "api_key" in str(error):
            return ProviderError("openai: there is no API key; set OPENAI_API_KEY, or name a base_url", status=401)
        return ProviderError(f"{self._format_service()}: {type(error).__name__}: {error}", status=400)

    def _convert_status_error(self, error: openai.APIStatusError) -> ProviderError:
        body = error.body if isinstance(error.body, Mapping) else {}
        text = str(body.get("message") or error.message).strip()
        hint = {401: ". Check OPENAI_API_KEY", 403: ". Check OPENAI_API_KEY", 404: f". Has the server '{self.model}'?"}
        retry_after_s = read_retry_after(error.response)
        if retry_after_s is None:
            milliseconds = parse_seconds(error.response.headers.get("retry-after-ms"))
            retry_after_s = None if milliseconds is None else milliseconds / 1000
        return ProviderError(
            f"{self._format_service()}: {error.status_code}: {text.rstrip('.')}{hint.get(error.status_code, '')}",
            status=error.status_code,
            retry_after_s=retry_after_s,
        )


def _get_error(value: Any) -> Any:
    return value.get("error") if isinstance(value, Mapping) else None


def _find_malformed_call(error: Any) -> str | None:
    """What the model wrote, if `error` says that it was no readable call: Groq answers HTTP 400 then, but it is a
    reply of the model's and no failure of the service."""
    inner = error.get("error", error) if isinstance(error, Mapping) else None
    if not isinstance(inner, Mapping) or inner.get("code") != "tool_use_failed":
        return None
    return str(inner.get("failed_generation") or inner.get("message") or "")


def open_openai(spec: ModelSpec) -> OpenAIProvider:
    """The provider of a parsed ``openai:MODEL?...``. UsageError for an option that it does not have."""
    return OpenAIProvider(spec.model, OpenAIOptions(**read_options(spec, OpenAIOptions)))
