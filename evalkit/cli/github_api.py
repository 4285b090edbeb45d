"""The little of GitHub's REST API that one comment needs, with the standard library alone."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener, getproxies

from evalkit.errors import EvalkitError

VERSION = "2022-11-28"  # of the REST API
_TRIES = 4
_MOST_BYTES = 50_000_000
_TIMEOUT_S = 30.0
_RETRY_STATUSES = (429, 500, 502, 503, 504)


class GitHubError(EvalkitError):
    """GitHub refused a request, or could not be reached. `status` 0: there was no answer."""

    code = "github"

    def __init__(self, message: str, status: int, *, is_limit: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.is_limit = is_limit


class _NoRedirects(HTTPRedirectHandler):
    """urllib would send the token along to wherever it is sent."""

    def redirect_request(self, *args: Any) -> None:
        return None


class GitHubApi:
    """Requests to one server. A rate limit is waited for as long as the server says, up to `patience_s` in all."""

    def __init__(
        self, base: str, token: str, *, patience_s: float = 120.0, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._base = base.rstrip("/")
        self._token = token
        self._patience_s = patience_s
        self._sleep = sleep
        self._opener = build_opener(_NoRedirects, ProxyHandler(getproxies()))

    def list_pages(self, path: str) -> Iterator[list[Any]]:
        """Each page of a list, as the `Link` headers lead; a link to another server is not followed."""
        address: str | None = self._base + path
        while address is not None:
            data, headers = self._request("GET", address, None)
            yield data if isinstance(data, list) else []
            address = self._find_next(headers)

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The data of the answer. ApiError for any status that is no success."""
        return self._request(method, self._base + path, body)[0]

    def _find_next(self, headers: Mapping[str, str]) -> str | None:
        match = re.search(r'<([^>]+)>\s*;[^,]*rel="next"', headers.get("link", ""))
        if match is None:
            return None
        here, there = urlsplit(self._base), urlsplit(match[1])
        return match[1] if (here.scheme, here.netloc) == (there.scheme, there.netloc) else None

    def _request(self, method: str, address: str, body: Mapping[str, Any] | None) -> tuple[Any, dict[str, str]]:
        for tries_left in range(_TRIES - 1, -1, -1):
            status, headers, data = self._send_once(method, address, body)
            if 200 <= status < 300:
                return data, headers
            wait = _compute_wait(status, headers, data, _TRIES - tries_left)
            if wait is None or not tries_left or wait > self._patience_s:
                raise GitHubError(
                    _describe_refusal(method, address, status, data), status, is_limit=wait is not None and status < 500
                )
            self._patience_s -= wait
            self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _send_once(self, method: str, address: str, body: Mapping[str, Any] | None) -> tuple[int, dict[str, str], Any]:
        if urlsplit(address).scheme not in ("http", "https"):
            raise GitHubError(f"{address}: not an address of an API", 0)
        request = Request(  # noqa: S310 - the scheme was looked at
            address, None if body is None else json.dumps(body).encode(), self._build_headers(), method=method
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as reply:
                return reply.status, _normalize_headers(reply.headers), _read_json(reply)
        except HTTPError as error:
            with error:
                return error.code, _normalize_headers(error.headers), _read_json(error)
        except (URLError, OSError) as error:
            raise GitHubError(f"{self._base} could not be reached: {getattr(error, 'reason', error)}", 0) from None

    def _build_headers(self) -> dict[str, str]:
        return {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "User-Agent": "evalkit",
            "X-GitHub-Api-Version": VERSION,
        }


def _normalize_headers(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _read_json(reply: Any) -> Any:
    try:
        return json.loads(reply.read(_MOST_BYTES) or b"null")
    except (ValueError, OSError):
        return None


def _compute_wait(status: int, headers: Mapping[str, str], data: Any, attempt: int) -> float | None:
    """Seconds until another try makes sense; None if it never does.

    GitHub's limits: 429, or 403 with `Retry-After` or nothing remaining, or 403 whose message says so.
    """
    retry_after = headers.get("retry-after", "")
    if status in (403, 429):
        if retry_after.isdecimal():
            return float(retry_after)
        if headers.get("x-ratelimit-remaining") == "0":
            reset = headers.get("x-ratelimit-reset", "")
            return max(float(reset) - time.time(), 0.0) + 1 if reset.isdecimal() else 60.0
        if status == 429 or "rate limit" in _get_message(data):
            return 60.0  # what GitHub's documentation asks for where it says nothing
        return None
    return 2.0**attempt / 2 if status in _RETRY_STATUSES else None


def _get_message(data: Any) -> str:
    return str(data.get("message", "")) if isinstance(data, dict) else ""


def _describe_refusal(method: str, address: str, status: int, data: Any) -> str:
    parts = [_get_message(data)]
    errors = data.get("errors") if isinstance(data, dict) else None
    if isinstance(errors, list):
        parts += [str(e.get("message") or e.get("code")) if isinstance(e, dict) else str(e) for e in errors]
    details = "; ".join(part for part in parts if part)
    return f"GitHub answered {status} to {method} {urlsplit(address).path}{f': {details}' if details else ''}"
