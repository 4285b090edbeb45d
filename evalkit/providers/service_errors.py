"""What the client libraries of model services have in common when something fails below the API."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from evalkit.errors import ProviderError

_TRANSPORT_PACKAGES = ("httpx", "httpcore", "aiohttp", "ssl", "anyio", "h11")


def to_transport_error(error: BaseException, service: str) -> ProviderError | None:
    """The ProviderError for a timeout, a broken connection or an answer that is no JSON; None for other exceptions."""
    kind = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, TimeoutError) or "timeout" in type(error).__name__.lower():
        return ProviderError(f"{service} did not answer in time: {kind}")
    if isinstance(error, OSError) or any(cls.__module__.startswith(_TRANSPORT_PACKAGES) for cls in type(error).__mro__):
        return ProviderError(f"{service} could not be reached: {kind}")
    # JSONDecodeError and its like; a ValidationError is of the request, which the client did not send.
    if isinstance(error, ValueError) and type(error).__name__ not in ("ValueError", "ValidationError"):
        return ProviderError(f"{service} answered something that is no JSON: {kind}")
    return None


def parse_seconds(value: Any) -> float | None:
    """``7``, ``7s`` or ``7.5s`` as seconds."""
    try:
        delay_s = float(str(value).removesuffix("s"))
    except ValueError:
        return None
    return delay_s if 0 <= delay_s < float("inf") else None


def read_retry_after(response: Any) -> float | None:
    """Seconds in the `Retry-After` header of a response, if there is one: a number, or a date, which is held against
    the service's own clock where it tells the time."""
    headers = getattr(response, "headers", None)
    if headers is None:
        return None
    delay_s = parse_seconds(headers.get("retry-after"))
    until = _parse_date(headers.get("retry-after")) if delay_s is None else None
    if until is None:
        return delay_s
    return max((until - (_parse_date(headers.get("date")) or datetime.now(UTC))).total_seconds(), 0.0)


def _parse_date(text: Any) -> datetime | None:
    try:
        moment = parsedate_to_datetime(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
