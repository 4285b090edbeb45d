"""From bytes to the text that the parser gets, and to its events.

The parser is libyaml's where PyYAML has it, else PyYAML's own. Both give the same events.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
from collections.abc import Callable
from typing import Any, Protocol

import yaml
from msgspec import Struct
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from evalkit.bounds import explain_bound, get_bounds
from evalkit.errors import Location, Problem, SpecError

__all__ = [
    "AliasEvent",
    "DocumentEndEvent",
    "DocumentStartEvent",
    "MappingEndEvent",
    "MappingStartEvent",
    "ScalarEvent",
    "SequenceEndEvent",
    "SequenceStartEvent",
    "StreamEndEvent",
]

Event = Any  # of PyYAML's: its attributes depend on its class
Node = Any  # a value that is read: of JSON's types, once the text is read to its end
GetEvent = Callable[[], Event]
TAG_PREFIX = "tag:yaml.org,2002:"
# Line breaks in YAML 1.1, which libyaml speaks; plain characters in YAML 1.2, in editors and in JSON.
_OLD_BREAKS = "\x85\u2028\u2029"
_CHUNK = 1 << 16  # bytes that are read of a file which grows
_OPEN_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a pipe without a writer would block
_STAND_INS = range(0xF8A0, 0xF8FF)
_SURROGATE_PAIR = r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
_WIDE_BOMS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Limits(Struct, frozen=True):
    """Limits on one text. `max_nodes` counts keys and values after aliases are expanded."""

    max_bytes: int = 10_000_000
    max_depth: int = 100
    max_nodes: int = 100_000


def get_limits() -> Limits:
    """Return the limits of case files, by the project's bounds."""
    return Limits(max_bytes=get_bounds().file_bytes)


class SourceText(Struct, frozen=True):
    """Text as the parser reads it. `restore` undoes, in scalars, what was replaced to keep libyaml from folding it."""

    text: str
    restore: dict[int, str] | None = None


def read_file(path: str | os.PathLike[str], bound: str = "file_bytes") -> bytes:
    """Read an ordinary file within a bound of the project. Raises OSError, which says so, for a larger one and for a
    device or a pipe, which might never end."""
    max_bytes: int = getattr(get_bounds(), bound)
    opened = os.open(path, os.O_RDONLY | _OPEN_FLAGS)
    try:
        status = os.fstat(opened)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no ordinary file but a device, a pipe or the like", os.fspath(path))
        content = os.read(opened, min(status.st_size, max_bytes) + 1)  # as much memory is reserved as is to be read
        while status.st_size < len(content) <= max_bytes and (more := os.read(opened, _CHUNK)):  # as in /proc
            content += more
    finally:
        os.close(opened)
    if len(content) > max_bytes:
        size = f"{max(status.st_size, len(content)):,} bytes, more than the limit of {max_bytes:,}"
        message = f"it has {size}{explain_bound(bound)}"
        raise OSError(errno.EFBIG, message, os.fspath(path))
    return content


def locate_offset(text: str, offset: int) -> tuple[int, int]:
    """Locate a character of `text`: its line and column, from 1. A line ends in LF, CRLF or CR."""
    before = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def decode(data: str | bytes, file: str, max_bytes: int) -> str:
    """Decode `data` without its byte order mark. SpecError for too much of it, and for other encodings than UTF-8."""
    if len(data) > max_bytes:
        unit = "bytes" if isinstance(data, bytes) else "characters"
        raise _make_error(file, 0, 0, f"the file has {len(data):,} {unit}, more than the limit of {max_bytes:,}")
    if isinstance(data, bytes):
        if data.startswith(_WIDE_BOMS):
            raise _make_error(file, 1, 1, "the file is not UTF-8 but UTF-16 or UTF-32; save it as UTF-8")
        try:
            return data.decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            line, column = locate_offset(data[: error.start].decode("utf-8"), error.start)
            message = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
            raise _make_error(file, line, column, message) from None
    return data.removeprefix("\ufeff")


def _make_error(file: str, line: int, column: int, message: str) -> SpecError:
    return SpecError([Problem(Location(file, line, column), message)])


def prepare(text: str) -> SourceText:
    """Prepare `text` for libyaml: replace characters that it reads otherwise than YAML 1.2 and JSON do."""
    if text.lstrip()[:1] in ("{", "[") and ("\\ud" in text or "\\uD" in text):
        text = re.sub(_SURROGATE_PAIR, _join_surrogates, text)  # JSON writes a character beyond U+FFFF as two escapes
    if not any(char in text for char in _OLD_BREAKS):
        return SourceText(text)
    free = (code for code in _STAND_INS if chr(code) not in text)
    restore = {code: char for char, code in zip(_OLD_BREAKS, free, strict=False)}
    return SourceText(text.translate({ord(char): code for code, char in restore.items()}), restore)


def _join_surrogates(match: re.Match[str]) -> str:
    high, low = int(match[2], 16), int(match[3], 16)
    return match[1] + chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def count_expanded(value: Node, budget: int) -> tuple[int, int]:
    """Count the keys and values in `value`, and its levels, with aliases expanded. Counting stops beyond `budget`."""
    nodes, depth = 0, 0
    level = [value]
    while (level := [item for item in level if item.__class__ in (dict, list)]) and nodes <= budget:
        depth += 1
        inner: list[Node] = []
        for item in level:
            nodes += len(item) * (2 if item.__class__ is dict else 1)
            if nodes > budget:
                break
            inner.extend(item.values() if item.__class__ is dict else item)
        level = inner
    return nodes, depth


YAMLError = yaml.YAMLError


class EventParser(Protocol):
    """The part of a YAML parser that is used."""

    def get_event(self) -> Event: ...
    def dispose(self) -> None: ...


class PythonParser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """PyYAML's parser without libyaml: some twenty times slower."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


def select_parser(*, libyaml: bool) -> Callable[[str], EventParser]:
    """Select the constructor of a parser over a text."""
    if not libyaml:
        return PythonParser
    parser: Callable[[str], EventParser] = yaml.cyaml.CParser  # type: ignore[attr-defined]  # missing in its stub
    return parser


open_parser = select_parser(libyaml=yaml.__with_libyaml__)
