"""Bodies as JSON values: whole ones and streams, in pieces of any size, whatever their content type says."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator

from evalkit.wire.reading import build_unread
from evalkit.wire.records import Unread

_LINE_END = re.compile(r"\r\n|\n|\r")
_DECODER = json.JSONDecoder()
_START = re.compile(r"\s*[\[,]?\s*(?=[{\[\"])")
_MAX_DEPTH_GUARD = 2_000_000


class EventDecoder:
    """Server-sent events, JSON lines, a JSON array or one value, in pieces: `feed` bytes, and `close` at the end.

    A value that does not parse is an `Unread`, and the others are read all the same.
    """

    def __init__(self, charset: str = "utf-8") -> None:
        try:
            self._decode = codecs.getincrementaldecoder(charset)("replace")
        except LookupError:
            self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""  # a line that is not over
        self._data: list[str] = []  # of the event that is not over
        self._bare: list[str] = []  # lines that are no event's
        self.count = 0

    def feed(self, content: bytes) -> Iterator[object]:
        """Yield the values that are whole with this piece."""
        text = self._rest + self._decode.decode(content)
        hold = text.endswith("\r")  # perhaps the first half of a line's end
        *lines, self._rest = _LINE_END.split(text[:-1] if hold else text)
        self._rest += "\r" if hold else ""
        for line in lines:
            yield from self._add_line(line)

    def close(self) -> Iterator[object]:
        """Yield what is left."""
        rest = self._rest + self._decode.decode(b"", final=True)
        for line in (*_LINE_END.split(rest), ""):
            yield from self._add_line(line)
        yield from self._parse_bare("\n".join(self._bare))
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

    def _parse_bare(self, text: str) -> Iterator[object]:
        """Values that follow each other, with or without an array around them."""
        text = text.removeprefix("\ufeff")
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
        if rest.strip():
            self.count += 1
            yield build_unread("body.text", f"character {position}", rest)

    def _take(self, value: object) -> object:
        self.count += 1
        return value


def read_values(content: bytes, charset: str = "utf-8") -> list[object]:
    """Read the values of a whole body; those that do not parse are `Unread`."""
    decoder = EventDecoder(charset)
    return [*decoder.feed(content), *decoder.close()]


def split_unread(values: list[object]) -> tuple[list[object], list[Unread]]:
    """Return the values, and what did not parse."""
    return [value for value in values if not isinstance(value, Unread)], [v for v in values if isinstance(v, Unread)]
