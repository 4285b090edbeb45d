"""Bodies as JSON values: whole ones and streams, in pieces of any size, whatever their content type says.

Beside texts there are AWS's event streams, frames of bytes. An event of theirs is the object that AWS's client makes of
it, ``{name: data}``.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
import struct
from collections.abc import Iterator, Mapping

from evalkit.wire.reading import build_unread
from evalkit.wire.records import Unread

_LINE_END = re.compile(r"\r\n|\n|\r")
_DECODER = json.JSONDecoder()
_START = re.compile(r"\s*[\[,]?\s*(?=[{\[\"])")


NO_DATA = "body.no_data"  # a text that holds no JSON: a page of a proxy, a line of an error


class EventDecoder:
    """Server-sent events, JSON lines, a JSON array, one value or AWS's frames, in pieces: `feed` bytes, and `close` at
    the end.

    A value that does not parse is an `Unread`, and the others are read all the same.
    """

    def __init__(self, charset: str = "utf-8") -> None:
        self._decode = _open_decoder(charset)
        self._rest: list[str] = []  # a line that is not over
        self._holds_return = False
        self._data: list[str] = []  # of the event that is not over
        self._bare: list[str] = []  # lines that are no event's
        self._frames: _FrameDecoder | None = None
        self.count = 0

    def feed(self, content: bytes) -> Iterator[object]:
        """Yield the values that are whole with this piece."""
        if self._frames is None and content[:1] == b"\x00" and not (self.count or any(self._rest)):
            self._frames = _FrameDecoder()
        if self._frames is not None:
            yield from map(self._take, self._frames.feed(content))
            return
        self._rest.append(self._decode.decode(content))
        if not self._holds_return and _LINE_END.search(self._rest[-1]) is None:
            return  # a long line is not joined anew with each piece
        text = "".join(self._rest)
        self._holds_return = text.endswith("\r")  # perhaps the first half of a line's end
        *lines, rest = _LINE_END.split(text[:-1] if self._holds_return else text)
        self._rest = [rest, "\r"] if self._holds_return else [rest]
        for line in lines:
            yield from self._add_line(line)

    def close(self, *, is_whole: bool = True) -> Iterator[object]:
        """Yield what is left. Of a body that is not whole, the value that broke off is nothing that could be read."""
        if self._frames is not None:
            yield from self._frames.close()
            return
        rest = "".join([*self._rest, self._decode.decode(b"", final=True)])
        for line in (*_LINE_END.split(rest), ""):
            yield from (value for value in self._add_line(line) if is_whole or not isinstance(value, Unread))
        yield from self._parse_bare("\n".join(self._bare), is_whole=is_whole)
        self._bare = []

    def _add_line(self, line: str) -> Iterator[object]:
        if line.lstrip().startswith("data:"):
            self._data.append(line.lstrip()[5:].removeprefix(" "))
        elif not line.strip():
            if self._data:
                data, self._data = self._data, []
                yield from self._parse_event(data)
        elif not line.startswith(("event:", "id:", "retry:", ":")):
            self._bare.append(line)

    def _parse_event(self, lines: list[str]) -> Iterator[object]:
        """One event's data: a value over all its lines, or, from servers that omit the empty line, one on each."""
        lines = [line for line in lines if line.strip() not in ("", "[DONE]")]
        if not lines:
            return
        try:
            yield self._take(json.loads("\n".join(lines)))
            return
        except (ValueError, RecursionError):
            pass
        for line in lines:
            try:
                yield self._take(json.loads(line))
            except (ValueError, RecursionError):
                self.count += 1
                yield build_unread("body.event", f"event {self.count}", line)

    def _parse_bare(self, text: str, *, is_whole: bool) -> Iterator[object]:
        """Values that follow each other, with or without an array around them."""
        if not text.strip():
            return
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            yield from map(self._take, value if isinstance(value, list) else [value])
            return
        position = 0
        while (start := _START.match(text, position)) is not None:
            try:
                value, position = _DECODER.raw_decode(text, start.end())
            except (ValueError, RecursionError):
                break
            yield from map(self._take, value if isinstance(value, list) else [value])
        rest = text[position:].strip().strip("],")
        broke_off = not is_whole and (position == 0 or "\n" not in rest)
        if rest.strip() and not broke_off:
            self.count += 1
            holds_data = "{" in rest and not rest.startswith("<")
            yield build_unread("body.text" if holds_data else NO_DATA, f"character {position}", rest)

    def _take(self, value: object) -> object:
        self.count += 1
        return value


def _open_decoder(charset: str) -> codecs.IncrementalDecoder:
    """Open the decoder of a charset, UTF-8's for one that nobody knows. A mark of the byte order is no text."""
    try:
        name = codecs.lookup(charset).name
    except LookupError:
        name = "utf-8"
    return codecs.getincrementaldecoder("utf-8-sig" if name == "utf-8" else name)("replace")


_LENGTHS = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # of a header's value, by its type
_LENGTH_TYPES = (6, 7)  # bytes and text: their length stands before them
_LARGEST_FRAME = 1 << 25


class _FrameDecoder:
    """The frames of ``application/vnd.amazon.eventstream``: lengths, headers, a JSON text, checksums."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, content: bytes) -> Iterator[object]:
        self._rest += content
        while len(self._rest) >= 12:
            total, headers_length = struct.unpack_from(">II", self._rest)
            if not 16 + headers_length <= total <= _LARGEST_FRAME:
                yield build_unread("body.frame", "frame", repr(self._rest[:40]))
                self._rest = b""
                return
            if len(self._rest) < total:
                return
            frame, self._rest = self._rest[:total], self._rest[total:]
            try:
                yield _read_frame(frame[12 : 12 + headers_length], frame[12 + headers_length : -4])
            except (IndexError, struct.error):  # lengths that lead nowhere
                yield build_unread("body.frame", "frame", repr(frame[:40]))

    def close(self) -> Iterator[object]:
        return iter(())  # a frame that did not come whole: the stream broke off, which its reader sees


def _read_frame(headers: bytes, payload: bytes) -> object:
    """Read a frame: ``{name: data}``; of an invoked model, whose own events are within, the inner event."""
    facts = _read_headers(headers)
    name = facts.get(":event-type") or facts.get(":exception-type") or facts.get(":error-code") or "event"
    try:
        data = json.loads(payload) if payload else {}
        if isinstance(data, Mapping) and isinstance(data.get("bytes"), str):
            return json.loads(base64.b64decode(data["bytes"]))
    except (ValueError, RecursionError):
        return build_unread("body.frame", f"frame {name}", repr(payload[:200]))
    if facts.get(":message-type") == "error":
        return {f"{name}Exception": {"message": facts.get(":error-message", "")}}
    return {name: data}


def _read_headers(headers: bytes) -> dict[str, str]:
    """Read the headers that are texts."""
    facts: dict[str, str] = {}
    place = 0
    while place < len(headers):
        name_end = place + 1 + headers[place]
        name, kind = headers[place + 1 : name_end].decode(errors="replace"), headers[name_end]
        place = name_end + 1
        length = _LENGTHS.get(kind, 0)
        if kind in _LENGTH_TYPES:
            (length,) = struct.unpack_from(">H", headers, place)
            place += 2
        if kind == 7:
            facts[name] = headers[place : place + length].decode(errors="replace")
        place += length
    return facts


def read_values(content: bytes, charset: str = "utf-8", *, is_whole: bool = True) -> list[object]:
    """Read the values of a body; those that do not parse are `Unread`, but for one that broke off with the body."""
    decoder = EventDecoder(charset)
    return [*decoder.feed(content), *decoder.close(is_whole=is_whole)]


def split_unread(values: list[object]) -> tuple[list[object], list[Unread]]:
    """Return the values, and what did not parse."""
    return [value for value in values if not isinstance(value, Unread)], [v for v in values if isinstance(v, Unread)]
