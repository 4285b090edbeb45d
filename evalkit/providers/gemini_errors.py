"""What google-genai and its HTTP libraries raise, as one ProviderError with a message that says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.errors import EvalkitError, ProviderError

_TRANSPORT_PACKAGES = ("httpx", "httpcore", "aiohttp", "ssl", "anyio", "h11")


def provider_error(error: Exception, *, model: str, api_version: str) -> EvalkitError:
    """The error to raise for `error`. What is no failure of the service comes back unchanged inside a ProviderError."""
    if isinstance(error, EvalkitError):
        return error
    from google.genai import errors

    if isinstance(error, errors.APIError):
        return _refused(error, model, api_version)
    kind = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, TimeoutError) or "timeout" in type(error).__name__.lower():
        return ProviderError(f"gemini ({model}) did not answer in time: {kind}")
    if isinstance(error, OSError) or _is_transport(error):
        return ProviderError(f"gemini ({model}) could not be reached: {kind}")
    if isinstance(error, ValueError) and "api key" in str(error).lower():
        return ProviderError(
            "gemini: there is no API key; set GEMINI_API_KEY or GOOGLE_API_KEY (or run without a model: cassettes)",
            status=401,
        )
    if isinstance(error, ValueError) and (type(error) is not ValueError):  # JSONDecodeError, UnknownApiResponseError
        return ProviderError(f"gemini ({model}) answered something that is no JSON: {kind}")
    return ProviderError(f"gemini ({model}): the client refused the request: {kind}", status=400)


def _is_transport(error: Exception) -> bool:
    return any(cls.__module__.startswith(_TRANSPORT_PACKAGES) for cls in type(error).__mro__)


def _refused(error: Any, model: str, api_version: str) -> ProviderError:
    status = error.code if isinstance(error.code, int) else None
    text = str(error.message or error.status or error).strip()
    return _error(status, error.status, text, model, api_version, _retry_after(error))


def broke_off(error: Any, model: str, api_version: str) -> ProviderError:
    """The error object that a body with status 200 holds: a stream that broke off, or a gateway's answer."""
    data = error if isinstance(error, Mapping) else {"message": str(error)}
    code = data.get("code")
    status = code if isinstance(code, int) else None
    text = str(data.get("message", "")).strip()
    retry_after_s = next((_seconds(detail.get("retryDelay")) for detail in _details(data)), None)
    return _error(status, data.get("status"), text, model, api_version, retry_after_s)


def _error(
    status: int | None, name: Any, text: str, model: str, api_version: str, retry_after_s: float | None
) -> ProviderError:
    words = f"{status} {name}" if status is not None and name else str(status or name or "error")
    hint = _hint(status, text, model, api_version)
    text = f"{text.rstrip('.')}. {hint}" if hint else text
    return ProviderError(f"gemini ({model}): {words}: {text}", status=status, retry_after_s=retry_after_s)


def _hint(status: int | None, text: str, model: str, api_version: str) -> str:
    lowered = text.lower()
    if status == 400 and 'unknown name "tool' in lowered and api_version != "v1beta":
        return f"API version {api_version} takes no tools: use gemini:{model}?api_version=v1beta"
    if status == 400 and "thought_signature" in lowered:
        return "The conversation lost a thought signature: send each model turn's content back as it came"
    if status == 404:
        return f"Is '{model}' a current model, and does API version {api_version} have it?"
    if status in (401, 403) or "api key" in lowered:
        return "Check GEMINI_API_KEY or GOOGLE_API_KEY"
    return ""


def _retry_after(error: Any) -> float | None:
    """Seconds that the service asks to wait: its `Retry-After` header, or RetryInfo in the error's details."""
    headers = getattr(error.response, "headers", None)
    value = headers.get("retry-after") if headers is not None else None
    seconds = _seconds(value)
    if seconds is not None:
        return seconds
    found = (_seconds(detail.get("retryDelay")) for detail in _details(error.details))
    return next((delay for delay in found if delay is not None), None)


def _details(data: Any) -> Iterator[Mapping[str, Any]]:
    error = data.get("error", data) if isinstance(data, Mapping) else {}
    details = error.get("details") if isinstance(error, Mapping) else None
    yield from (detail for detail in details or () if isinstance(detail, Mapping))


def _seconds(value: Any) -> float | None:
    """``7``, ``7s`` or ``7.5s`` as seconds. HTTP dates are not waited for."""
    try:
        seconds = float(str(value).removesuffix("s"))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
