"""What google-genai and its HTTP libraries raise, as one ProviderError with a message that says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.errors import EvalkitError, ProviderError
from evalkit.providers.service_errors import parse_seconds, read_retry_after, to_transport_error


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
