"""YAML out: data as readable YAML, and edits of a person's file that keep all other lines as they are.

`dump` writes block YAML that `load` reads back as the same data, and that other YAML readers do not misread.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from difflib import SequenceMatcher
from io import StringIO
from itertools import pairwise
from typing import Any

from evalkit.errors import KeyPath, UsageError, format_path

_PLAIN = re.compile(r"[^\W\d_](?:[\w ./@+()$%=~^;<>-]|[:,](?=[^\s:,]))*(?<![\s:])")
_SERIAL = re.compile(r"[0-9]*[A-Za-z][\w.-]*")
# Texts that YAML 1.1 readers, other tools among them, take for other types.
_MISREAD = re.compile(
    r"(?:~|null|true|false|yes|no|on|off|y|n)|[-+.]?[0-9][-+0-9_.,:]*(?:[eE][-+]?[0-9]+)?|0[xXoObB][0-9A-Fa-f_]+"
    r"|[-+]?\.(?:inf|nan)|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}[Tt ].*",
    re.IGNORECASE,
)
_NOT_IN_BLOCKS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_TO_ESCAPE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_BLOCK_ODDITY = re.compile(r"[ \t]+$|\A\n*\Z", re.MULTILINE)  # blanks that nobody sees, or nothing else
_MAX_SIMPLE_KEY = 100


def dump(data: object) -> str:
    """Dump `data` (JSON types; tuples as lists) as YAML. UsageError, with the path, for values that are no JSON."""
    return "\n".join(_format_lines(data, (), nested=False)) + "\n"


def _format_lines(value: object, path: KeyPath, *, nested: bool = True) -> Iterator[str]:
    """Format the lines of a node, unindented. The first line of an item or scalar follows `- ` or `key: `."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            if not isinstance(key, str):
                raise UsageError(f"can't write {_format_place(path)} as YAML: key {key!r} is not text")
            key_text = next(_format_text(key, path, block=False))
            lines = _format_lines(item, (*path, key))
            if len(key_text) > _MAX_SIMPLE_KEY:
                yield "? " + key_text
                key_text = ""
            if isinstance(item, (Mapping, list, tuple)) and item:
                yield key_text + ":"
            else:
                yield f"{key_text}: {next(lines)}"
            yield from ("  " + line if line else "" for line in lines)
    elif isinstance(value, (list, tuple)) and value:
        for index, item in enumerate(value):
            lines = _format_lines(item, (*path, index))
            yield "- " + next(lines)
            yield from ("  " + line if line else "" for line in lines)
    elif isinstance(value, str):
        yield from _format_text(value, path, block=nested)
    elif value is None or isinstance(value, bool):
        yield {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, int):
        yield int.__repr__(value)
    elif isinstance(value, float) and math.isfinite(value):
        digits = format(Decimal(repr(float(value))), "f")
        yield digits if "." in digits else digits + ".0"
    elif isinstance(value, (Mapping, list, tuple)):
        yield "{}" if isinstance(value, Mapping) else "[]"
    else:
        raise UsageError(f"can't write {_format_place(path)} as YAML: {value!r} is not JSON data")


def _format_place(path: KeyPath) -> str:
    return format_path(path) or "the data"


def _format_text(value: str, path: KeyPath, *, block: bool) -> Iterator[str]:
    if "\n" in value and block and not _NOT_IN_BLOCKS.search(value) and not _BLOCK_ODDITY.search(value):
        body = value.rstrip("\n")
        line_ends = len(value) - len(body)
        indent = "2" if value[0] in " \t\n" else ""  # where the first line does not show the indentation
        yield "|" + indent + ("-", "", "+")[min(line_ends, 2)]
        yield from body.split("\n")
        yield from [""] * (line_ends - 1)
    elif (_PLAIN.fullmatch(value) or _SERIAL.fullmatch(value)) and not _MISREAD.fullmatch(value):
        yield value
    else:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            character = value[error.start]
            raise UsageError(f"can't write {_format_place(path)} as YAML: {character!r} is no character") from None
        quoted = json.dumps(value, ensure_ascii=False)
        yield _TO_ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


class YamlEditor:
    """A text being edited. Paths lead from its root; a path that is not there is a UsageError."""

    def __init__(self, text: str) -> None:
        from ruamel.yaml import YAML

        self._text = text
        self._yaml = YAML()
        self._yaml.preserve_quotes = True
        self._yaml.width = 100_000
        offset = _find_offset(text)
        self._yaml.indent(mapping=_find_indent(text), sequence=2 + offset, offset=offset)
        self._root: Any = self._yaml.load(text)
        self._before = self._dump()

    def has(self, path: KeyPath) -> bool:
        """Tell whether this text itself has a value at `path`."""
        try:
            self.get(path)
        except UsageError:
            return False
        return True

    def get(self, path: KeyPath) -> Any:
        """Return the value at `path`."""
        node = self._root
        for step in path:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                raise UsageError(f"the file itself has nothing at {path}") from None
        return node

    def set(self, path: KeyPath, value: object) -> None:
        """Write `value` (JSON data) at `path`, where a value stands or a mapping lacks the key."""
        self.get(path[:-1])[path[-1]] = _to_ruamel(value)

    def remove(self, path: KeyPath) -> None:
        """Take away a key or an item."""
        self.get(path)
        del self.get(path[:-1])[path[-1]]

    def set_items(self, path: KeyPath, items: Sequence[object]) -> None:
        """Make the list at `path` of its own items, by number, and of new ones."""
        sequence = self.get(path)
        nodes = list(sequence)
        comments = dict(sequence.ca.items)
        new_nodes = [nodes[item] if isinstance(item, int) else _to_ruamel(item) for item in items]
        sequence.ca.items.clear()
        sequence[:] = []
        for place, (item, node) in enumerate(zip(items, new_nodes, strict=True)):
            sequence.append(node)
            if isinstance(item, int) and item in comments:
                sequence.ca.items[place] = comments[item]

    def to_text(self) -> str:
        """Return the edited text. Lines that were not edited are unchanged, whatever ruamel would make of them."""
        before, after = self._before.splitlines(keepends=True), self._dump().splitlines(keepends=True)
        lines = self._text.splitlines(keepends=True)
        if "\r\n" in self._text:  # as editors on Windows end lines; ruamel ends them all with a line feed
            before, after = ([line.replace("\n", "\r\n") for line in dumped] for dumped in (before, after))
        if len(before) != len(lines):
            return "".join(after)
        result: list[str] = []
        for kind, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if kind == "equal":
                result += lines[start:end]
                continue
            near = min(start, len(lines) - 1) if kind == "replace" else start - 1
            shift = _count_spaces(lines[near]) - _count_spaces(before[near]) if lines and near >= 0 else 0
            result += (_shift(line, shift) for line in after[new_start:new_end])
        text = "".join(result)
        return text if self._holds(text) else "".join(after)

    def _holds(self, text: str) -> bool:
        """Return whether a text says what was edited: lines of an unusual style may not fit between others."""
        from ruamel.yaml.error import YAMLError

        try:
            return bool(self._yaml.load(text) == self._root)
        except YAMLError:
            return False

    def _dump(self) -> str:
        out = StringIO()
        self._yaml.dump(self._root, out)
        return out.getvalue()


def _count_spaces(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _shift(line: str, shift: int) -> str:
    """Move a line to the right, or to the left."""
    return line if not line.strip() else " " * shift + line if shift > 0 else line[min(-shift, _count_spaces(line)) :]


def _find_indent(text: str) -> int:
    """Find how far the keys of a mapping stand to the right of its own key: 2 by default."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line, following in pairwise(lines):
        deeper = _count_spaces(following) - _count_spaces(line)
        if (
            line.rstrip().endswith(":")
            and deeper > 0
            and not line.lstrip().startswith("- ")
            and following.lstrip()[:1] != "-"
        ):
            return deeper
    return 2


def _find_offset(text: str) -> int:
    """Find how far a list's dash stands to the right of its key: 2 by default."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line, following in pairwise(lines):
        if line.rstrip().endswith(":") and following.lstrip().startswith("- "):
            key = len(line) - len(line.lstrip())
            if line.lstrip().startswith("- "):
                key += 2
            return max(len(following) - len(following.lstrip()) - key, 0)
    return 2


def _to_ruamel(value: object) -> Any:
    """Convert `value` for ruamel: texts of several lines as blocks, and texts that other readers misread in quotes."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    if isinstance(value, dict):
        result = CommentedMap()
        for key, item in value.items():
            result[key] = _to_ruamel(item)
        return result
    if isinstance(value, (list, tuple)):
        return CommentedSeq([_to_ruamel(item) for item in value])
    if isinstance(value, str) and type(value) is str:
        dumped = dump({"x": value})
        if dumped.startswith("x: |"):
            return LiteralScalarString(value)
        return DoubleQuotedScalarString(value) if dumped.startswith('x: "') else value
    return value
