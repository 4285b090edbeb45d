"""One POST, as an agent behind a URL is asked: HTTP/1.1 over an asyncio stream, which ends with the task that asks."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import h11
from msgspec import Struct

from evalkit.agents.http_channel import Channel, DisconnectedError, RejectedMessageError


class UnreachableError(Exception):
    """There was no answer, or none that is HTTP."""


class ServiceResponse(Struct, frozen=True):
    """A response. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def post(url: str, headers: Mapping[str, str], body: bytes, *, limit: int) -> ServiceResponse:
    """POST `body` to `url`; UnreachableError where nobody answers, RefusedError for a body beyond `limit` bytes.

    No redirect is followed and no proxy is asked. There is no time limit but the task's.
    """
    parts, (host, port) = urlsplit(url), get_peer(url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=secure)
    except OSError as error:
        why = f"connecting to {host}:{port} failed: {_explain_error(error)}"
        raise UnreachableError(f"{why}; a service is started before pytest, by you") from None
    channel = Channel(h11.Connection(h11.CLIENT), reader, writer)
    try:
        return await _send_request(channel, parts.netloc.rpartition("@")[2], _build_target(url), headers, body, limit)
    except (DisconnectedError, ConnectionError, RejectedMessageError) as error:
        if isinstance(error, RejectedMessageError) and error.status == 413:
            raise
        why = str(error) if isinstance(error, RejectedMessageError) else "the connection was closed"
        raise UnreachableError(f"it did not answer the request: {why}") from None
    finally:
        channel.abort()


def get_peer(url: str) -> tuple[str | None, int]:
    """The host and the port that are asked for `url`."""
    parts = urlsplit(url)
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _build_target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _explain_error(error: OSError) -> str:
    """The reason in words; asyncio joins the attempts on several addresses into one text."""
    return error.strerror or str(error)


async def _send_request(
    channel: Channel, host: str, target: str, headers: Mapping[str, str], body: bytes, limit: int
) -> ServiceResponse:
    all_headers = {"host": host, "content-length": str(len(body)), "connection": "close", **headers}
    lines = [(name.encode("latin-1"), value.encode("utf-8")) for name, value in all_headers.items()]
    await channel.write(h11.Request(method=b"POST", target=target.encode("utf-8"), headers=lines))
    await channel.write(h11.Data(data=body))
    await channel.write(h11.EndOfMessage())
    head = await channel.read_head()
    if not isinstance(head, h11.Response):
        raise DisconnectedError
    content = await channel.read_body(limit)
    named = {name.decode("latin-1"): value.decode("utf-8", "replace") for name, value in head.headers}
    return ServiceResponse(head.status_code, named, content)
