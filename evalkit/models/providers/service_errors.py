"""Errors of the client libraries below a service's API, and for how long a service asks to wait."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from operator import attrgetter

from evalkit.errors import ProviderError
from evalkit.jsonvalue import filter_mappings
from evalkit.text.format import cut_between_words
from evalkit.text.url import drop_secret_parts, is_loopback

_TRANSPORT_PACKAGES = ("httpx", "httpcore", "aiohttp", "ssl", "anyio", "h11")


def to_transport_error(error: BaseException, service: str) -> ProviderError | None:
    """Convert a timeout, a broken connection or an answer that is no JSON to a ProviderError; None for other
    exceptions."""
    kind = f"{type(error).__name__}: {error}".rstrip(": ")
    if type(error).__name__ in ("UnsupportedProtocol", "InvalidURL"):
        return ProviderError(f"{service}: {kind}; a base_url begins with http:// or https://", is_final=True)
    if isinstance(error, TimeoutError) or "timeout" in type(error).__name__.lower():
        return ProviderError(f"{service} did not answer in time: {kind}")
    if isinstance(error, OSError) or any(cls.__module__.startswith(_TRANSPORT_PACKAGES) for cls in type(error).__mro__):
        url, is_refused = find_url(error), is_connection_refused(error)
        if url is None:
            return ProviderError(f"{service} could not be reached: {kind}")
        if is_refused and is_loopback(url):  # no program listens there, and a second attempt starts none
            why = f"nothing listens at {url}: connection refused; is the server started, and this its port?"
            return ProviderError(f"{service}: {why}", is_final=True)
        return ProviderError(f"{service} could not be reached at {url}: {kind}")
    # JSONDecodeError and its like; a ValidationError is of the request, which the client did not send.
    if isinstance(error, ValueError) and type(error).__name__ not in ("ValueError", "ValidationError"):
        return ProviderError(f"{service} answered something that is no JSON: {kind}")
    return None


_URLS = ("request.url", "request_info.real_url", "url")  # httpx's and requests', aiohttp's, urllib's


def find_url(error: BaseException) -> str | None:
    """Find the URL of the request that failed, without what may be secret in it."""
    for each in _iter_causes(error):
        for name in _URLS:
            with suppress(Exception):  # httpx raises for a request that was never set
                return drop_secret_parts(str(attrgetter(name)(each)))
    return None


def is_connection_refused(error: BaseException) -> bool:
    """Return whether nothing listens at the address, at each address of its name."""
    causes = list(_iter_causes(error))
    return any(isinstance(each, ConnectionRefusedError) for each in causes) or "refused" in str(causes[-1]).lower()


def _iter_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception, and those behind it; of a group, those of its first member."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # `raise error from error` is its own cause
        seen.add(id(error))
        yield error
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        error = inner or error.__cause__ or error.__context__


def parse_seconds(value: object) -> float | None:
    """Parse ``7``, ``7s`` or ``7.5s`` as seconds."""
    try:
        delay_s = float(str(value).removesuffix("s"))
    except ValueError:
        return None
    return delay_s if 0 <= delay_s < float("inf") else None


def describe_refusal(body: object) -> str:
    """Return what the body of an answer says is wrong: services have an `error`, a `message` or a `detail`, each a text
    or a structure of its own. "" where it says nothing."""
    if isinstance(body, (list, tuple)):
        return "; ".join(filter(None, map(describe_refusal, body)))
    if not isinstance(body, Mapping):
        return "" if body is None else cut_between_words(str(body).strip(), 500)
    if isinstance(body.get("loc"), list) and isinstance(body.get("msg"), str):  # pydantic's, of a server in Python
        return f"{'.'.join(map(str, body['loc']))}: {body['msg']}"
    text = next((describe_refusal(body[key]) for key in _TEXT_KEYS if body.get(key)), "")
    metadata = body.get("metadata")  # OpenRouter's: what the service behind it said
    behind = metadata.get("raw") if isinstance(metadata, Mapping) else None
    return ": ".join(filter(None, (text, describe_refusal(behind)))) or cut_between_words(json.dumps(dict(body)), 500)


def find_refused_key(body: object) -> str | None:
    """Find the key of the request that the body of a refusal names: as `param`, or as the place of what a server in
    Python found wrong (``loc: [body, seed]``)."""
    if isinstance(body, (list, tuple)):
        return next(filter(None, map(find_refused_key, body)), None)
    if not isinstance(body, Mapping):
        return None
    param, place = body.get("param"), body.get("loc")
    if isinstance(param, str) and param not in ("", "None"):  # LiteLLM's word for none
        return param.removeprefix("body.")
    if isinstance(place, list) and len(place) > 1 and place[0] == "body":
        return str(place[1])
    return find_refused_key([body.get(key) for key in _TEXT_KEYS])


_TEXT_KEYS = ("error", "message", "detail")

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_FIRST_EPOCH_S, _FIRST_EPOCH_MS = 1e9, 1e12  # numbers from there on are no delays, but moments since 1970


def read_retry_after(response: object) -> float | None:
    """Read after how many seconds a response asks to try again: ``retry-after-ms``, or `Retry-After`, a number or a
    date, which is compared with the service's own clock where the response has a date. Without them, the limits in
    ``x-ratelimit-*`` that are used up."""
    headers = getattr(response, "headers", None)
    if headers is None:
        return None
    delay_ms = parse_seconds(headers.get("retry-after-ms"))
    if delay_ms is not None:
        return delay_ms / 1000
    delay_s = parse_seconds(headers.get("retry-after"))
    until = _parse_date(headers.get("retry-after")) if delay_s is None else None
    if until is None:
        return _read_reset(headers) if delay_s is None else delay_s
    return max((until - (_parse_date(headers.get("date")) or datetime.now(UTC))).total_seconds(), 0.0)


def _read_reset(headers: Mapping[str, str]) -> float | None:
    """Read after how many seconds used-up limits begin anew: all of them, or those of requests or tokens."""
    delays_s = []
    for kind in ("", "-requests", "-tokens"):
        delay_s = _parse_reset(headers.get(f"x-ratelimit-reset{kind}") or "")
        if headers.get(f"x-ratelimit-remaining{kind}") == "0" and delay_s is not None:
            delays_s.append(delay_s)
    return max(delays_s, default=None)


def _parse_reset(text: str) -> float | None:
    """Parse ``1s``, ``6m0s``, ``20ms``, a number of seconds, or a moment in seconds or milliseconds since 1970."""
    parts = _DURATION.findall(text)
    if parts and _DURATION.sub("", text) == "":
        return sum(float(amount) * _UNITS[unit] for amount, unit in parts)
    number = parse_seconds(text)
    if number is None or number < _FIRST_EPOCH_S:
        return number
    return max(number / (1000 if number >= _FIRST_EPOCH_MS else 1) - time.time(), 0.0)


def _parse_date(text: object) -> datetime | None:
    try:
        moment = parsedate_to_datetime(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def read_retry_info(data: object) -> tuple[float | None, bool]:
    """Read the details of Google's body of an error: the seconds of its RetryInfo, and whether its QuotaFailure is of a
    day's quota, whose RetryInfo says some seconds all the same."""
    error = data.get("error", data) if isinstance(data, Mapping) else {}
    listed = list(filter_mappings(error.get("details") if isinstance(error, Mapping) else None))
    delays_s = (parse_seconds(detail.get("retryDelay")) for detail in listed)
    quotas = [violation for detail in listed for violation in filter_mappings(detail.get("violations"))]
    is_of_a_day = any("PerDay" in str(violation.get("quotaId")) for violation in quotas)
    return next((delay_s for delay_s in delays_s if delay_s is not None), None), is_of_a_day
