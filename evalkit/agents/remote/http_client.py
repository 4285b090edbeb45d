"""Requests to services elsewhere: one per connection, which ends with the task that sends it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import SplitResult, urlsplit

import h11
from msgspec import Struct

from evalkit.agents.remote.channel import Channel, DisconnectedError, RejectedMessageError

NO_ANSWER, BROKEN_OFF = "it did not answer the request", "its answer broke off"
CLOSED = "the connection was closed"


class UnreachableError(Exception):
    """There was no answer, or none that is HTTP. `is_refused`: nobody listens there."""

    def __init__(self, message: str, *, is_refused: bool = False) -> None:
        super().__init__(message)
        self.is_refused = is_refused


def build_connect_error(url: str, error: OSError) -> UnreachableError:
    """Build the error for a service that can't be reached, by that of the system."""
    host, port = get_peer(url)
    why = error.strerror or error  # without strerror: several attempts
    return UnreachableError(f"connecting to {host}:{port} failed: {why}", is_refused=True)


class ServiceResponse(Struct, frozen=True):
    """A response. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class OpenResponse:
    """A response whose body is on its way. `headers` have lower-case names."""

    def __init__(self, head: h11.Response, channel: Channel) -> None:
        self.status = head.status_code
        self.headers = tuple((name.decode("latin-1"), value.decode("utf-8", "replace")) for name, value in head.headers)
        self._channel = channel

    async def read(self, limit: int) -> bytes:
        """Read the body. UnreachableError if it breaks off, RejectedMessageError beyond `limit` bytes."""
        with _explain_break(NO_ANSWER):
            return await self._channel.read_body(limit)

    async def iterate(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Yield the pieces of the body as they come, and whether each is known to be the last. UnreachableError if it
        breaks off."""
        with _explain_break(BROKEN_OFF):
            async for piece in self._channel.iterate_body():
                yield piece


@asynccontextmanager
async def open_response(method: str, url: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[OpenResponse]:
    """Send `body` to `url`, and read the head of the response. UnreachableError without one.

    No redirect is followed and no proxy is used. There is no time limit but the task's.
    """
    parts, (host, port) = urlsplit(url), get_peer(url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=secure)
    except OSError as error:
        raise build_connect_error(url, error) from None
    channel = Channel(h11.Connection(h11.CLIENT), reader, writer)
    try:
        with _explain_break(NO_ANSWER):
            await _send(channel, method, parts, headers, body)
            head = await channel.read_head()
            if not isinstance(head, h11.Response):
                raise DisconnectedError
        yield OpenResponse(head, channel)
    finally:
        channel.abort()


async def send_request(
    method: str, url: str, headers: Mapping[str, str], body: bytes, *, limit: int
) -> ServiceResponse:
    """Send `body` to `url`, and read the whole response, of `limit` bytes at most. UnreachableError without one."""
    async with open_response(method, url, headers, body) as response:
        return ServiceResponse(response.status, dict(response.headers), await response.read(limit))


async def _send(channel: Channel, method: str, parts: SplitResult, headers: Mapping[str, str], body: bytes) -> None:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    all_headers = {
        "host": parts.netloc.rpartition("@")[2],
        "content-length": str(len(body)),
        "connection": "close",
        **headers,
    }
    lines = [(name.encode("latin-1"), value.encode("utf-8")) for name, value in all_headers.items()]
    await channel.write(h11.Request(method=method.encode("ascii"), target=target.encode("utf-8"), headers=lines))
    await channel.write(h11.Data(data=body))
    await channel.write(h11.EndOfMessage())


@contextmanager
def _explain_break(problem: str) -> Iterator[None]:
    """Raise UnreachableError for a connection that breaks."""
    try:
        yield
    except (DisconnectedError, ConnectionError, RejectedMessageError) as error:
        if isinstance(error, RejectedMessageError) and error.status == 413:
            raise
        why = str(error) if isinstance(error, RejectedMessageError) else CLOSED
        raise UnreachableError(f"{problem}: {why}") from None


def get_peer(url: str) -> tuple[str | None, int]:
    """Return the host and the port of `url`."""
    parts = urlsplit(url)
    return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
