"""Ollama's own API: ``ollama:MODEL``, at http://localhost:11434 or wherever OLLAMA_HOST says.

Its API for OpenAI's clients has no context length, no thinking and no refusal of a conversation that is too long. The
package `ollama` would drop the ids of calls and half of JSON Schema, so that requests go out as they are built here.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from evalkit.errors import EvalkitError, ProviderError
from evalkit.jsonvalue import JsonDict, filter_mappings
from evalkit.models.providers.base import (
    MAX_REPLY_BYTES,
    NameRules,
    ProviderKind,
    ProviderOptions,
    limit_replies,
    parse_reply,
    refuse_settings,
    require_readable,
)
from evalkit.models.providers.client import Client
from evalkit.models.providers.pacing import RetryPolicy, call_with_retries, load_client
from evalkit.models.providers.service_errors import is_connection_refused, read_retry_after, to_transport_error
from evalkit.models.providers.time_limits import ReplyLimit
from evalkit.records.transcript import ModelRequest, ModelTurn
from evalkit.text.format import cut_between_words
from evalkit.text.url import complete_ollama_host
from evalkit.wire import ollama_chat
from evalkit.wire.bodies import read_values
from evalkit.wire.reading import as_mapping
from evalkit.wire.records import Reply

DEFAULT_HOST = "http://localhost:11434"


class OllamaOptions(ProviderOptions, frozen=True, kw_only=True):
    """Options of ``ollama:MODEL?...``."""

    num_ctx: int | None = None  # tokens of the context; None: the server's, which may be 4096
    think: str | None = None  # "true", "false", or how much: "low", "medium", "high"
    max_reply_bytes: int = MAX_REPLY_BYTES
    api_key: str | None = None


class OllamaProvider:
    """A model of an Ollama server. There is a client for each event loop; `aclose` releases the running loop's."""

    name = "ollama"

    def __init__(self, model: str, options: OllamaOptions | None = None, *, policy: RetryPolicy | None = None) -> None:
        self.model = model
        self.options = options or OllamaOptions()
        self._policy = policy or RetryPolicy(retries=self.options.retries)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = WeakKeyDictionary()
        host = self.options.base_url or os.environ.get("OLLAMA_HOST") or DEFAULT_HOST
        self.url = (host if "://" in host else complete_ollama_host(host)).rstrip("/")

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Ask the model. Raises ProviderError when the server fails or refuses; a malformed call is a turn."""
        body = self.build_body(request)

        async def send() -> ModelTurn:
            try:
                return await self._send(body, request.timeout_s)
            except Exception as error:
                raise self._to_evalkit_error(error) from error

        await self._open()
        return await call_with_retries(send, self._policy)

    def build_body(self, request: ModelRequest) -> JsonDict:
        """Build the request's body. UsageError for a function whose name the service refuses."""
        for function in request.functions:
            NAMES.check(function.name)
        refuse_settings(request, "Ollama", "verbosity")
        body = ollama_chat.build_request(request, stream=self.options.streams, num_ctx=self.options.num_ctx)
        think = self.options.think or request.reasoning_effort
        if think is not None:
            words = {"true": True, "1": True, "false": False, "0": False, "none": False}
            body["think"] = words.get(think, think)
        return {"model": self.model, **body}

    async def _open(self) -> None:
        """Import the package and open the client, before a request takes its turn: it can take seconds."""
        try:
            await load_client("httpx2")
            self._get_client()
        except Exception as error:
            raise self._to_evalkit_error(error) from error

    async def aclose(self) -> None:
        """Close the running event loop's client."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def _send(self, body: JsonDict, timeout_s: float | None) -> ModelTurn:
        options, started = self.options, perf_counter()
        limit = ReplyLimit(
            self._service,
            options.timeout_s,
            first_s=options.first_timeout_s,
            whole_s=timeout_s,
            is_streamed=options.streams,
        )
        async with limit.watch():
            response = await self._get_client().post("/api/chat", json=body)
        reply = self._read(response)
        return require_readable(reply, self._service).to_turn((perf_counter() - started) * 1000)

    def _read(self, response: Any) -> Reply:
        """Read an answer. Raises ProviderError for what is no reply of the model."""
        if response.status_code >= 400:
            values = read_values(response.content)
            refused = ollama_chat.read_refusal(as_mapping(next(iter(values), None)))
            if refused is None:
                raise self._build_status_error(response, as_mapping(next(iter(values), None)))
            return refused
        values = parse_reply(response.text, self._service)
        if len(values) > 1 or as_mapping(values[0]).get("done") is False:
            reply = ollama_chat.read_stream(values)
        else:
            reply = ollama_chat.read_reply(as_mapping(values[0]))
        if reply.failure is not None:
            refused = ollama_chat.read_refusal({"error": reply.failure.message})
            if refused is None:
                raise ProviderError(f"{self._service}: {reply.failure.message}")
            return refused
        if not any(ollama_chat.is_value(value) for value in filter_mappings(values)):
            text = cut_between_words(response.text, 200)
            raise ProviderError(f"{self._service} answered something that is no reply: {text}")
        if reply.end == "truncated":
            raise ProviderError(f"{self._service} broke the stream off")
        return reply

    def _get_client(self) -> Client:
        """Return the running loop's client."""
        import httpx2

        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            key = self.options.api_key or os.environ.get("OLLAMA_API_KEY")
            self._clients[loop] = httpx2.AsyncClient(
                base_url=self.url,
                timeout=None,
                follow_redirects=True,
                headers={"authorization": f"Bearer {key}"} if key else {},
                event_hooks={"response": [limit_replies(self.options.max_reply_bytes, self._service)]},
            )
        return self._clients[loop]

    @property
    def _service(self) -> str:
        return f"ollama ({self.model})"

    def _build_status_error(self, response: Any, data: Mapping[str, object]) -> ProviderError:
        status = response.status_code
        text = str(data.get("error") or cut_between_words(response.text, 200)).strip().rstrip(".")
        missing = f"Fetch it: ollama pull {self.model}" if data else f"Is {self.url} Ollama's, without /v1?"
        hint = {401: ". Set OLLAMA_API_KEY", 404: f". {missing}"}.get(status, "")
        if status == 400 and "does not support" in text:
            hint = f". What it can: ollama show {self.model}"
        elif ollama_chat.FULL_CONTEXT.fits((), text):
            hint = f". To allow more: ollama:{self.model}?num_ctx=16384"
        return ProviderError(
            f"{self._service}: {status}: {text}{hint}", status=status, retry_after_s=read_retry_after(response)
        )

    def _to_evalkit_error(self, error: Exception) -> EvalkitError:
        if isinstance(error, EvalkitError):
            return error
        if isinstance(error, ModuleNotFoundError) and error.name == "httpx2":
            why = "ollama: models need the extra: pip install 'pytest-evalkit[ollama]'"
            return ProviderError(why, status=400)
        below = to_transport_error(error, self._service)
        if below is not None and is_connection_refused(error):
            why = f"{self._service}: no server at {self.url}. Start it: ollama serve; one elsewhere: OLLAMA_HOST"
            return ProviderError(why, is_final=True)
        return below or ProviderError(f"{self._service}: {type(error).__name__}: {error}", status=400)


# The server takes any name; models split one at white space.
NAMES = NameRules("Ollama", re.compile(r"\S{1,256}"), "no white space, at most 256 characters")


def read_reply(data: object) -> ModelTurn:
    """Read one whole reply. Never raises on any JSON."""
    return ollama_chat.read_reply(as_mapping(data)).to_turn()


def read_stream(lines: Iterable[Any]) -> ModelTurn:
    """Read a stream's lines: the same turn as if it had come whole, except where the stream breaks off."""
    return ollama_chat.read_stream(lines).to_turn()


OLLAMA = ProviderKind(
    name="ollama",
    key_variable="OLLAMA_API_KEY",
    model_prefixes=(),
    options=OllamaOptions,
    open=OllamaProvider,
    read_reply=read_reply,
    read_stream=read_stream,
    names=NAMES,
)
