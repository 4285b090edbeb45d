"""What the client libraries of model services have in common when something fails below the API."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from evalkit.errors import ProviderError

_TRANSPORT_PACKAGES = ("httpx", "httpcore", "aiohttp", "ssl", "anyio", "h11")


def below_the_api(error: BaseException, service: str) -> ProviderError | None:
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


def seconds(value: Any) -> float | None:
    """``7``, ``7s`` or ``7.5s`` as seconds."""
    try:
        found = float(str(value).removesuffix("s"))
    except ValueError:
        return None
    return found if 0 <= found < float("inf") else None


def asked_to_wait(response: Any) -> float | None:
    """Seconds in the `Retry-After` header of a response, if there is one: a number, or a date, which is held against
    the service's own clock where it tells the time."""
    headers = getattr(response, "headers", None)
    if headers is None:
        return None
    found = seconds(headers.get("retry-after"))
    until = _date(headers.get("retry-after")) if found is None else None
    if until is None:
        return found
    return max((until - (_date(headers.get("date")) or datetime.now(UTC))).total_seconds(), 0.0)


def _date(text: Any) -> datetime | None:
    try:
        found = parsedate_to_datetime(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
