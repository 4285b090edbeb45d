"""Gemini through google-genai, imported when the first turn is asked for.

The client only carries requests and errors: automatic function calling and continuation are off, retries are ours,
and replies are read from the wire's JSON, so that nothing the service said gets lost or reinterpreted on the way.
"""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from evalkit.errors import EvalkitError, ProviderError
from evalkit.model.transcript import ModelRequest, ModelTurn
from evalkit.providers.base import ModelSpec, read_options
from evalkit.providers.gemini.reply import merge_chunks, read_reply
from evalkit.providers.gemini.request import build_config_fields, build_contents, build_declarations
from evalkit.providers.pacing import RetryPolicy, call_with_retries
from evalkit.providers.service_errors import parse_seconds, read_retry_after, to_transport_error
from evalkit.streaming.events import parse_values

if TYPE_CHECKING:
    from google import genai


DEFAULT_API_VERSION = "v1beta"  # where functions have always worked; the client's own default is v1
VERTEX_API_VERSION = "v1beta1"  # Vertex AI has v1 and v1beta1, and no v1beta
DEFAULT_TIMEOUT_S = 60.0


class GeminiOptions(Struct, frozen=True, kw_only=True):
    """What ``gemini:MODEL?...`` may say beside the model. Keys are read by google-genai from its environment."""

    base_url: str | None = None
    api_version: str | None = None
    stream: bool = False
    timeout_s: float = DEFAULT_TIMEOUT_S
    retries: int = 4
    vertexai: bool = False
    project: str | None = None
    location: str | None = None
    api_key: str | None = None

    @property
    def version(self) -> str:
        """The API version that is asked: the one that was set, or the service's where functions work."""
        return self.api_version or (VERTEX_API_VERSION if self.vertexai else DEFAULT_API_VERSION)


class _Client:
    """google-genai's client and the HTTP client that it is given, which it leaves to its owner to close.

    Without one of ours it would use aiohttp wherever that is merely installed: other exceptions, other timeouts, one
    retry of its own, and no way to read the wire's JSON.
    """

    def __init__(self, client: genai.Client, http: Any) -> None:
        self.client = client
        self._http = http

    async def aclose(self) -> None:
        await self.client.aio.aclose()
        self.client.close()
        await self._http.aclose()


class GeminiProvider:
    """One Gemini model. Holds one client per event loop; `aclose` releases the running loop's."""

    name = "gemini"

    def __init__(self, model: str, options: GeminiOptions | None = None, *, policy: RetryPolicy | None = None) -> None:
        self.model = model
        self.options = options or GeminiOptions()
        self._policy = policy or RetryPolicy(retries=self.options.retries)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Client] = WeakKeyDictionary()

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Ask the model. Raises ProviderError when the service fails or refuses; a blocked reply is a turn."""
        contents = build_contents(request.messages)
        config = {**build_config_fields(request), "declarations": build_declarations(request.functions)}

        async def send() -> ModelTurn:
            return await self._send(contents, config, request.timeout_s)

        return await call_with_retries(send, self._policy)

    async def aclose(self) -> None:
        """Close the running event loop's client."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def _send(
        self, contents: list[dict[str, Any]], config: Mapping[str, Any], timeout_s: float | None
    ) -> ModelTurn:
        try:
            models = self._get_client().aio.models
            arguments: dict[str, Any] = {
                "model": self.model,
                "contents": [_validate_content(content) for content in contents],
                "config": self._build_config(config, timeout_s),
            }
            started = perf_counter()
            data = (
                merge_chunks(await fetch_stream(models, arguments))
                if self.options.stream
                else await _fetch_response(models, arguments)
            )
            if "error" in data:
                raise build_body_error(data["error"], self.model, self.options.version)
            return read_reply(data, duration_ms=(perf_counter() - started) * 1000)
        except Exception as error:
            raise to_provider_error(error, model=self.model, api_version=self.options.version) from error

    def _build_config(self, config: Mapping[str, Any], timeout_s: float | None) -> Any:
        from google.genai import types

        fields = {key: value for key, value in config.items() if key != "declarations"}
        if config["declarations"]:
            declared = [types.FunctionDeclaration(**declaration) for declaration in config["declarations"]]
            fields["tools"] = [types.Tool(function_declarations=declared)]
        if timeout_s is not None:
            fields["http_options"] = types.HttpOptions(timeout=int(timeout_s * 1000))
        if "automatic_continuation" in types.GenerateContentConfig.model_fields:
            fields["automatic_continuation"] = False
        if not self.options.stream:
            fields["should_return_http_response"] = True
        off = types.AutomaticFunctionCallingConfig(disable=True)
        return types.GenerateContentConfig(**fields, automatic_function_calling=off)

    def _get_client(self) -> genai.Client:
        """The running loop's client. Kept: google-genai closes a client that nobody refers to."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._create_client()
        return client.client

    def _create_client(self) -> _Client:
        http, version = _build_http_client(), self.options.version
        client = self._build_client(version, http)
        if client.vertexai and self.options.api_version is None and version != VERTEX_API_VERSION:
            client.close()  # GOOGLE_GENAI_USE_VERTEXAI, in the environment, chose Vertex AI
            client = self._build_client(VERTEX_API_VERSION, http)
        return _Client(client, http)

    def _build_client(self, api_version: str, http: Any) -> genai.Client:
        from google import genai
        from google.genai import types

        options = self.options
        arguments: dict[str, Any] = {
            "http_options": types.HttpOptions(
                base_url=options.base_url,
                api_version=api_version,
                timeout=int(options.timeout_s * 1000),
                retry_options=types.HttpRetryOptions(attempts=1),
                httpx_async_client=http,
            )
        }
        if options.vertexai:
            arguments |= {"vertexai": True, "project": options.project, "location": options.location}
        try:
            return genai.Client(api_key=options.api_key, **arguments)
        except ValueError:
            if options.base_url is None or options.vertexai:
                raise
            return genai.Client(api_key="none", **arguments)  # a gateway of one's own often asks for no key


def _build_http_client() -> Any:
    """A client of the HTTP library that google-genai goes by: httpx2 since its version 3, httpx before."""
    from google.genai import _api_client

    library: Any = getattr(_api_client, "httpx2", None) or getattr(_api_client, "httpx", None)
    # google-genai sets the timeout of each request.
    return library.AsyncClient(timeout=None, follow_redirects=True, event_hooks={"response": [keep_body]})


async def _fetch_response(models: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    response = await models.generate_content(**arguments)
    body = response.sdk_http_response.body
    data = json.loads(body) if body else {}
    return data if isinstance(data, dict) else {}


def _validate_content(content: dict[str, Any]) -> Any:
    """`content` as the client's type, without the keys that this version of the client does not know."""
    from google.genai import types
    from pydantic import ValidationError

    try:
        return types.Content.model_validate(content)
    except ValidationError as error:
        unknown = [problem["loc"] for problem in error.errors() if problem["type"] == "extra_forbidden"]
        if not unknown:
            raise
        return types.Content.model_validate(_remove_paths(content, unknown))


def _remove_paths(data: Any, paths: list[tuple[int | str, ...]]) -> Any:
    here = {path[0] for path in paths if len(path) == 1}
    below: dict[Any, list[tuple[int | str, ...]]] = {}
    for path in paths:
        if len(path) > 1:
            below.setdefault(path[0], []).append(path[1:])
    if isinstance(data, Mapping):
        return {key: _remove_paths(value, below.get(key, [])) for key, value in data.items() if key not in here}
    if isinstance(data, list):
        return [_remove_paths(value, below.get(index, [])) for index, value in enumerate(data)]
    return data


def open_gemini(spec: ModelSpec) -> GeminiProvider:
    """The provider of a parsed ``gemini:MODEL?...``. UsageError for an option that it does not have."""
    return GeminiProvider(spec.model, GeminiOptions(**read_options(spec, GeminiOptions)))


# Streamed replies, from the body of the response: server-sent events, or the JSON array of servers without them.
#
# The client would parse the events itself, and lose what it has no field for (the text of a malformed call), warn of
# finish reasons it doesn't know, and give up on an array. So the body is read as it came, by a hook in its HTTP library.  # noqa: E501

_body: ContextVar[list[str] | None] = ContextVar("evalkit_gemini_body", default=None)


async def keep_body(response: Any) -> None:
    """A response hook for httpx and httpx2: reads the whole body, for `streamed` to read."""
    holder = _body.get()
    if holder is not None and response.status_code == 200:
        await response.aread()
        holder.append(response.text)


async def fetch_stream(models: Any, arguments: dict[str, Any]) -> list[Any]:
    """Ask for a stream, and give all its chunks as wire JSON."""
    # A value that the client's enums don't know is a warning to it, and would be an error under -W error.
    warnings.filterwarnings("ignore", r".* is not a valid \w+", UserWarning, r"google\.genai\.")
    holder: list[str] = []
    token = _body.set(holder)
    try:
        stream = await models.generate_content_stream(**arguments)
        await anext(aiter(stream), None)  # the request goes out with the first chunk
    except Exception:
        if not holder:
            raise
    finally:
        _body.reset(token)
    return parse_values(holder[-1])


# What google-genai and its HTTP libraries raise, as one ProviderError with a message that says what to do.


def to_provider_error(error: Exception, *, model: str, api_version: str) -> EvalkitError:
    """The error to raise for `error`. What is no failure of the service comes back unchanged inside a ProviderError."""
    if isinstance(error, EvalkitError):
        return error
    from google.genai import errors

    if isinstance(error, errors.APIError):
        return _convert_api_error(error, model, api_version)
    below = to_transport_error(error, f"gemini ({model})")
    if below is not None:
        return below
    if isinstance(error, ValueError) and "api key" in str(error).lower():
        return ProviderError(
            "gemini: there is no API key; set GEMINI_API_KEY or GOOGLE_API_KEY (or run without a model: cassettes)",
            status=401,
        )
    kind = f"{type(error).__name__}: {error}".rstrip(": ")
    return ProviderError(f"gemini ({model}): the client refused the request: {kind}", status=400)


def _convert_api_error(error: Any, model: str, api_version: str) -> ProviderError:
    status = error.code if isinstance(error.code, int) else None
    text = str(error.message or error.status or error).strip()
    return _build_error(status, error.status, text, model, api_version, _find_retry_after(error))


def build_body_error(error: Any, model: str, api_version: str) -> ProviderError:
    """The error object that a body with status 200 holds: a stream that broke off, or a gateway's answer."""
    data = error if isinstance(error, Mapping) else {"message": str(error)}
    code = data.get("code")
    status = code if isinstance(code, int) else None
    text = str(data.get("message", "")).strip()
    retry_after_s = next((parse_seconds(detail.get("retryDelay")) for detail in _list_details(data)), None)
    return _build_error(status, data.get("status"), text, model, api_version, retry_after_s)


def _build_error(
    status: int | None, name: Any, text: str, model: str, api_version: str, retry_after_s: float | None
) -> ProviderError:
    words = f"{status} {name}" if status is not None and name else str(status or name or "error")
    hint = _find_hint(status, text, model, api_version)
    text = f"{text.rstrip('.')}. {hint}" if hint else text
    return ProviderError(f"gemini ({model}): {words}: {text}", status=status, retry_after_s=retry_after_s)


def _find_hint(status: int | None, text: str, model: str, api_version: str) -> str:
    lowered = text.lower()
    if status == 400 and 'unknown name "' in lowered and not api_version.startswith("v1beta"):
        lacks = "takes no tools" if "tool" in lowered else "lacks that"
        return f"API version {api_version} {lacks}: use gemini:{model}?api_version=v1beta"
    if status == 400 and "thought_signature" in lowered:
        return "The conversation lost a thought signature: send each model turn's content back as it came"
    if status == 404:
        return f"Is '{model}' a current model, and does API version {api_version} have it?"
    if status in (401, 403) or "api key" in lowered:
        return "Check GEMINI_API_KEY or GOOGLE_API_KEY"
    return ""


def _find_retry_after(error: Any) -> float | None:
    """Seconds that the service asks to wait: its `Retry-After` header, or RetryInfo in the error's details."""
    waited = read_retry_after(error.response)
    if waited is not None:
        return waited
    delays = (parse_seconds(detail.get("retryDelay")) for detail in _list_details(error.details))
    return next((delay for delay in delays if delay is not None), None)


def _list_details(data: Any) -> Iterator[Mapping[str, Any]]:
    error = data.get("error", data) if isinstance(data, Mapping) else {}
    details = error.get("details") if isinstance(error, Mapping) else None
    yield from (detail for detail in (details if isinstance(details, list) else ()) if isinstance(detail, Mapping))
