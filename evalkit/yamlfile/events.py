"""From bytes to the text that the parser gets, to its events, and to the places of values.

The parser is libyaml's where PyYAML has it, else PyYAML's own. Both give the same events. Places are a table made in a
second pass over the text, only when a message needs one. Syntax errors are worded here, too: the parser's own words are
about tokens and simple keys.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import yaml
from msgspec import Struct, field
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
from evalkit.errors import Location, PathProblem, Problem, SpecError

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


Place = tuple[int, int]
SyntaxProblem = Any  # an error of PyYAML's: which marks it has depends on its class
_MAX_DEPTH = 400  # deeper than any limit of `load` that makes sense, and within Python's recursion limit


class _Node(Struct):
    place: Place
    items: list[_Node] | None = None  # of a list
    keys: dict[str, tuple[Place, _Node]] | None = None  # of a mapping
    merged: list[_Node] = field(default_factory=list)  # what its `<<` names
    is_open: bool = False  # its children are being read


class Positions:
    """Lines and columns, from 1, of what a text holds. Of a text that breaks off: of what stands before the break."""

    def __init__(self, root: _Node | None) -> None:
        self._root = root

    def locate(self, path: tuple[str | int, ...], *, key: bool = False) -> Place:
        """Locate the value at `path` (`key`: the key that it stands under).

        A path that leads nowhere gives the place of the nearest ancestor that exists; an empty text gives 1:1.
        """
        node = self._root
        if node is None:
            return (1, 1)
        place = node.place
        for step in path:
            child = _find_child(node, step)
            if child is None:
                return node.place
            place, node = child
        return place if key else node.place

    def has(self, path: tuple[str | int, ...]) -> bool:
        """Tell whether the text has a value at `path`."""
        node = self._root
        for step in path:
            child = _find_child(node, step) if node is not None else None
            if child is None:
                return False
            node = child[1]
        return node is not None


def _find_child(node: _Node, step: str | int) -> tuple[Place, _Node] | None:
    if isinstance(step, int):
        if node.items is None or not 0 <= step < len(node.items):
            return None
        return node.items[step].place, node.items[step]
    if node.keys is not None and step in node.keys:
        return node.keys[step]
    for source in node.merged:
        child = _find_child(source, step)
        if child is not None:
            return child
    return None


def read_positions(text: str | bytes) -> Positions:
    """Read the positions in `text`, which need not be valid: unreadable parts are left out."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    source = prepare(text.removeprefix("\ufeff"))
    return Positions(_PositionsReader(source).read())


def raise_problems(problems: Sequence[PathProblem], content: bytes | str, file: str, code: str) -> None:
    """Raise a SpecError with the problems and their places in a file, if there are any."""
    if problems:
        positions = read_positions(content)
        located = [
            Problem(Location(file, *positions.locate(problem.path, key=problem.at_key)), problem.message, code)
            for problem in problems
        ]
        raise SpecError(sorted(located, key=lambda problem: problem.location))


class _PositionsReader:
    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.root: _Node | None = None
        self.anchors: dict[str, _Node] = {}
        self.key_texts: dict[str, str] = {}  # anchored scalars, which an alias may make a key of

    def read(self) -> _Node | None:
        try:
            parser = open_parser(self.source.text)
        except (YAMLError, UnicodeEncodeError):
            return None
        self._next = parser.get_event
        try:
            self._next()  # the stream's start
            if self._next().__class__ is not StreamEndEvent:
                event = self._next()
                self.root = self._open_node(event)
                self._fill(self.root, event, 0)
        except YAMLError:
            return self.root
        finally:
            parser.dispose()
        return self.root

    def _open_node(self, event: Event) -> _Node:
        """Make a node without its children: it gets its place before they are read, in case the text breaks off."""
        node = _Node((event.start_mark.line + 1, event.start_mark.column + 1))
        if event.__class__ is AliasEvent:
            target = self.anchors.get(event.anchor or "")
            if target is not None and not target.is_open:
                node.items, node.keys, node.merged = target.items, target.keys, target.merged
            return node
        if event.anchor is not None:
            self.anchors[event.anchor] = node
            if event.__class__ is ScalarEvent:
                self.key_texts[event.anchor] = event.value
        return node

    def _fill(self, node: _Node, event: Event, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise YAMLError("nested too deeply")
        node.is_open = True
        if event.__class__ is SequenceStartEvent:
            node.items = []
            while (item := self._next()).__class__ is not SequenceEndEvent:
                node.items.append(self._open_node(item))
                self._fill(node.items[-1], item, depth + 1)
        elif event.__class__ is MappingStartEvent:
            node.keys = {}
            while (key := self._next()).__class__ is not MappingEndEvent:
                shell = self._open_node(key)
                self._fill(shell, key, depth + 1)
                value = self._next()
                child = self._open_node(value)
                name: str | None = None
                if key.__class__ is AliasEvent:
                    name = self.key_texts.get(key.anchor or "")
                elif key.__class__ is ScalarEvent:
                    name = key.value if self.source.restore is None else key.value.translate(self.source.restore)
                is_merge = name == "<<" and key.__class__ is ScalarEvent and not key.style
                if name is not None and not is_merge:
                    node.keys.setdefault(name, (shell.place, child))
                self._fill(child, value, depth + 1)
                if is_merge:
                    node.merged = [child] if child.items is None else child.items
        node.is_open = False


_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
TAG_PREFIX = "tag:yaml.org,2002:"
_TAG = re.compile(r"![^\s,\[\]{}]*")


def explain_syntax_error(error: SyntaxProblem, text: str, file: str) -> Problem:
    """Explain the parser's `error` over `text` as a problem at the place that has to be corrected."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    bad = _CONTROL.search(text) if mark is None else None
    if bad is not None:
        code = ord(bad[0])
        escape = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
        name = "NUL" if code == 0 else f"control character U+{code:04X}"
        message = f'{name} in the text; remove it, or write "{escape}" in double quotes'
        if 0xD800 <= code <= 0xDFFF:
            message = f"U+{code:04X} is half a surrogate pair, not a character; remove it"
        return Problem(Location(file, *locate_offset(text, bad.start())), message)
    if mark is None:
        return Problem(Location(file), f"not valid YAML: {error}")
    lines = re.split("\r\n|\n|\r", text)
    content = lines[mark.line] if mark.line < len(lines) else ""
    lead = content[: len(content) - len(content.lstrip(" \t"))]
    tab = lead.find("\t") if "\t" in lead else None
    if tab is not None:
        return Problem(Location(file, mark.line + 1, tab + 1), _TAB)
    words, context = str(error.problem or ""), str(error.context or "")
    for needle, at_context, say in _TABLE:
        if needle in words or needle in context:
            mark = (error.context_mark or mark) if at_context else mark
            message = say if isinstance(say, str) else say(error, text)
            if _BEGINNING in message:
                message = message.replace(_BEGINNING, _format_beginning(error))
            return Problem(Location(file, mark.line + 1, mark.column + 1), message)
    message = f"not valid YAML: {', '.join(filter(None, (context, words)))}"
    return Problem(Location(file, mark.line + 1, mark.column + 1), message)


def _describe_escape(error: SyntaxProblem, text: str) -> str:
    index = error.problem_mark.index
    # libyaml points at the backslash, PyYAML's own parser behind it.
    escape = "\\" + text[index : index + 2].removeprefix("\\")[:1]
    return f"unknown escape {escape} in double quotes; write \\{escape}, or use single quotes"


def _describe_anchor(error: SyntaxProblem, text: str) -> str:
    sign, noun = ("&", "an anchor") if "anchor" in str(error.context) else ("*", "an alias")
    return f"{sign!r} begins {noun} and needs a name after it; quote the text if it is text"


def _format_beginning(error: SyntaxProblem) -> str:
    return f"line {error.context_mark.line + 1}, column {error.context_mark.column + 1}"


def _describe_missing_comma(error: SyntaxProblem, text: str) -> str:
    opens, closes = "[]" if "sequence" in error.context else "{}"
    return f"',' or '{closes}' was expected here, for the '{opens}' that opens at {_format_beginning(error)}"


def _describe_stray_colon(error: SyntaxProblem, text: str) -> str:
    lines = text[: error.problem_mark.index].splitlines()[:-1]
    last = next((line for line in reversed(lines) if line.strip() and not line.lstrip().startswith("#")), "")
    if match := re.fullmatch(r"\s*(?:- )?(\w+):(\S.*)", last):  # the line before is a text, and no key
        return f"a ':' is not allowed here; the line before lacks a space: write '{match[1]}: {match[2].rstrip()}'"
    return "a ':' is not allowed here; quote a text that holds ': ', and begin the keys of one mapping in one column"


_BEGINNING = "(beginning)"  # in a message: where what is open begins
_MISSING_KEY = (
    f"a key was expected here, to continue the mapping of {_BEGINNING}; "
    "check the indentation, and quote a text that begins with a quote or a bracket as a whole"
)
_MISSING_DASH = f"'- ' was expected here, to continue the list of {_BEGINNING}; check the indentation"
_TAB = "a tab indents this line; indent with spaces"
_NO_DIGITS = "an escape needs hexadecimal digits here: \\x two, \\u four, \\U eight"
_ENDED = "the document has ended before this; remove what follows, or fix the brackets"
# A part of the parser's message, whether its context is the better place, and our message.
_TABLE: tuple[tuple[str, bool, str | Callable[[SyntaxProblem, str], str]], ...] = (
    (
        "that cannot start any token",
        False,
        lambda error, text: f"a plain value can't begin with {text[error.problem_mark.index :][:1]!r}; quote the text",
    ),
    ("a tab character where an indentation", False, _TAB),
    (
        "mapping values are not allowed",
        False,
        _describe_stray_colon,
    ),
    ("found unknown escape character", False, _describe_escape),
    (
        "invalid Unicode character escape",
        False,
        "this escape is half a surrogate pair, or no character; write the character itself",
    ),
    ("expected hexdecimal number", False, _NO_DIGITS),
    ("expected escape sequence of", False, _NO_DIGITS),
    ("unexpected end of stream", True, "the text that this quote opens is never closed"),
    ("unexpected document", True, "the text that this quote opens is not closed before '---' or '...'"),
    (
        "undefined tag handle",
        False,
        lambda error, text: describe_refused_tag((_TAG.findall(text[error.problem_mark.index :]) or ["!"])[0]),
    ),
    ("while scanning an alias", True, _describe_anchor),
    ("while scanning an anchor", True, _describe_anchor),
    ("node content", False, "a value was expected here; close the bracket that is open, or quote the text"),
    ("while parsing a flow sequence", False, _describe_missing_comma),
    ("while parsing a flow mapping", False, _describe_missing_comma),
    ("while scanning a simple key", True, "a key and a ':' were expected here; check the indentation and the quotes"),
    ("while parsing a block mapping", False, _MISSING_KEY),
    ("while parsing a block collection", False, _MISSING_DASH),
    ("while parsing a block sequence", False, _MISSING_DASH),
    ("sequence entries are not allowed", False, "a list can't begin here; put '- ' on a line of its own below the key"),
    ("mapping keys are not allowed", False, "'? ' can't begin a key here; quote the text"),
    ("expected <document start>", False, _ENDED),
    ("expected '<document start>'", False, _ENDED),
    ("found incompatible YAML document", False, "this %YAML version is not known; remove the line"),
)


def describe_refused_tag(tag: str) -> str:
    """Describe the refusal of a tag that is not one of YAML's core tags."""
    tag_text = "!!" + tag.removeprefix(TAG_PREFIX) if tag.startswith(TAG_PREFIX) else tag
    return f"tag {tag_text} is refused: evalkit reads plain data; remove the tag, or quote the text if it is text"
