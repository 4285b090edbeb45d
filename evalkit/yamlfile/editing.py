"""Changing a YAML file that people wrote: what is not changed keeps its comments, quotes and layout, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from io import StringIO
from itertools import pairwise
from typing import Any

from evalkit.errors import UsageError

Path = tuple[str | int, ...]


class Editing:
    """A text being edited. Paths lead from its root; a path that is not there is a UsageError."""

    def __init__(self, text: str) -> None:
        from ruamel.yaml import YAML

        self._text = text
        self._yaml = YAML()
        self._yaml.preserve_quotes = True
        self._yaml.width = 100_000
        offset = _offset(text)
        self._yaml.indent(mapping=2, sequence=2 + offset, offset=offset)
        self._root: Any = self._yaml.load(text)
        self._before = self._dumped()

    def has(self, path: Path) -> bool:
        """Whether this text itself holds something at `path`."""
        try:
            self.at(path)
        except UsageError:
            return False
        return True

    def at(self, path: Path) -> Any:
        """What stands at `path`."""
        node = self._root
        for step in path:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                raise UsageError(f"the file itself has nothing at {path}") from None
        return node

    def set(self, path: Path, value: Any) -> None:
        """Write `value` (JSON data) at `path`, where a value stands or a mapping lacks the key."""
        self.at(path[:-1])[path[-1]] = _styled(value)

    def remove(self, path: Path) -> None:
        """Take away a key or an item."""
        self.at(path)
        del self.at(path[:-1])[path[-1]]

    def arrange(self, path: Path, items: Sequence[int | Any]) -> None:
        """Make the list at `path` of its own items, by number, and of new ones."""
        sequence = self.at(path)
        nodes = list(sequence)
        comments = dict(sequence.ca.items)
        kept = [nodes[item] if isinstance(item, int) else _styled(item) for item in items]
        sequence.ca.items.clear()
        sequence[:] = []
        for place, (item, node) in enumerate(zip(items, kept, strict=True)):
            sequence.append(node)
            if isinstance(item, int) and item in comments:
                sequence.ca.items[place] = comments[item]

    def text(self) -> str:
        """The text now. Lines that were not edited are as they were, whatever ruamel would make of them."""
        before, after = self._before.splitlines(keepends=True), self._dumped().splitlines(keepends=True)
        lines = self._text.splitlines(keepends=True)
        if "\r\n" in self._text:  # as editors on Windows end lines; ruamel ends them all with a line feed
            before, after = ([line.replace("\n", "\r\n") for line in dumped] for dumped in (before, after))
        if len(before) != len(lines):
            return "".join(after)
        result: list[str] = []
        for kind, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            result += lines[start:end] if kind == "equal" else after[new_start:new_end]
        return "".join(result)

    def _dumped(self) -> str:
        out = StringIO()
        self._yaml.dump(self._root, out)
        return out.getvalue()


def _offset(text: str) -> int:
    """How far a list's dash stands to the right of its key: 2, unless the text does without."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line, following in pairwise(lines):
        if line.rstrip().endswith(":") and following.lstrip().startswith("- "):
            key = len(line) - len(line.lstrip())
            if line.lstrip().startswith("- "):
                key += 2
            return max(len(following) - len(following.lstrip()) - key, 0)
    return 2


def _styled(value: Any) -> Any:
    """`value` as ruamel writes it: texts of several lines as blocks, and texts that other readers misread in quotes."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    from evalkit.yamlfile.writing import dump

    if isinstance(value, dict):
        result = CommentedMap()
        for key, item in value.items():
            result[key] = _styled(item)
        return result
    if isinstance(value, (list, tuple)):
        return CommentedSeq([_styled(item) for item in value])
    if isinstance(value, str) and type(value) is str:
        written = dump({"x": value})
        if written.startswith("x: |"):
            return LiteralScalarString(value)
        return DoubleQuotedScalarString(value) if written.startswith('x: "') else value
    return value
