"""An HTTP/1.1 connection, on the side of the server or the client: h11's state machine over an asyncio stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import h11

_CHUNK = 65_536


class DisconnectedError(Exception):
    """The other side is gone."""


class RejectedMessageError(Exception):
    """A message that is broken or too large. `status` is the status that a server answers."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Channel:
    """An HTTP/1.1 connection, on the side of the server or the client: h11's state machine over an asyncio stream.

    `is_busy`: a message has begun, and its answer is not complete.
    """

    def __init__(self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection = connection
        self._reader = reader
        self._writer = writer
        self.is_busy = False
        self._is_at_end = False

    async def read_head(self) -> h11.Request | h11.Response | h11.ConnectionClosed:
        """Read the first event of the next message. Interim responses are skipped."""
        try:
            event = await self._read_event()
            while isinstance(event, h11.InformationalResponse):
                event = await self._read_event()
        except RejectedMessageError:
            if self._is_at_end:
                raise DisconnectedError from None
            raise
        if not isinstance(event, (h11.Request, h11.Response, h11.ConnectionClosed)):
            raise DisconnectedError
        self.is_busy = not isinstance(event, h11.ConnectionClosed)
        return event

    async def read_body(self, limit: int) -> bytes:
        """Read the rest of the message. RejectedMessageError beyond `limit` bytes."""
        parts: list[bytes] = []
        size = 0
        async for piece, _ in self.iterate_body():
            size += len(piece)
            if size > limit:
                raise RejectedMessageError(413, f"a body may have {limit:,} bytes")
            parts.append(piece)
        return b"".join(parts)

    async def iterate_body(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Yield what comes of the rest of the message as it comes, and whether the message's end came with it."""
        while True:
            event = await self._read_event()
            piece = b""
            while isinstance(event, h11.Data):
                piece += event.data
                event = self._take_event()
            has_ended = isinstance(event, h11.EndOfMessage)
            if piece or has_ended:
                yield piece, has_ended
            if has_ended:
                return
            if event is not h11.NEED_DATA:
                raise DisconnectedError

    def _take_event(self) -> Any:
        """Take an event that has come already; NEED_DATA without one."""
        try:
            return self.connection.next_event()
        except h11.RemoteProtocolError as error:
            raise RejectedMessageError(error.error_status_hint, str(error)) from None

    async def _read_event(self) -> Any:
        while True:
            event = self._take_event()
            if event is h11.PAUSED:
                raise DisconnectedError  # it sends another message before our answer
            if event is not h11.NEED_DATA:
                return event
            if self.connection.they_are_waiting_for_100_continue:
                await self.write(h11.InformationalResponse(status_code=100, headers=[]))
            data = await self._reader.read(_CHUNK)
            self._is_at_end = not data
            self.connection.receive_data(data)

    async def wait_until_closed(self) -> None:
        """Wait until the other side has closed. Messages that it sends meanwhile are kept."""
        while data := await self._reader.read(_CHUNK):
            self.connection.receive_data(data)

    async def write(self, event: Any) -> None:
        data = self.connection.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()
        if isinstance(event, h11.EndOfMessage):
            self.is_busy = False

    def is_reusable(self) -> bool:
        """Return whether both sides are done with a message and want to go on."""
        return self.connection.our_state is h11.DONE and self.connection.their_state is h11.DONE

    def close(self) -> None:
        """Close after everything is written."""
        self._writer.close()

    def abort(self) -> None:
        """Close now, even if something is not written yet."""
        self._writer.transport.abort()
