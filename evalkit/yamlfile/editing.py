"""Changing a YAML file that people wrote: what is not changed keeps its comments, quotes and layout, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from io import StringIO
from itertools import pairwise
from typing import Any

from evalkit.errors import UsageError

KeyPath = tuple[str | int, ...]


class YamlEditor:
    """A text being edited. Paths lead from its root; a path that is not there is a UsageError."""

    def __init__(self, text: str) -> None:
        from ruamel.yaml import YAML

        self._text = text
        self._yaml = YAML()
        self._yaml.preserve_quotes = True
        self._yaml.width = 100_000
        offset = _find_offset(text)
        self._yaml.indent(mapping=2, sequence=2 + offset, offset=offset)
        self._root: Any = self._yaml.load(text)
        self._before = self._dump()

    def has(self, path: KeyPath) -> bool:
        """Whether this text itself holds something at `path`."""
        try:
            self.get(path)
        except UsageError:
            return False
        return True

    def get(self, path: KeyPath) -> Any:
        """What stands at `path`."""
        node = self._root
        for step in path:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                raise UsageError(f"the file itself has nothing at {path}") from None
        return node

    def set(self, path: KeyPath, value: Any) -> None:
        """Write `value` (JSON data) at `path`, where a value stands or a mapping lacks the key."""
        self.get(path[:-1])[path[-1]] = _to_ruamel(value)

    def remove(self, path: KeyPath) -> None:
        """Take away a key or an item."""
        self.get(path)
        del self.get(path[:-1])[path[-1]]

    def set_items(self, path: KeyPath, items: Sequence[int | Any]) -> None:
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
        """The text now. Lines that were not edited are as they were, whatever ruamel would make of them."""
        before, after = self._before.splitlines(keepends=True), self._dump().splitlines(keepends=True)
        lines = self._text.splitlines(keepends=True)
        if "\r\n" in self._text:  # as editors on Windows end lines; ruamel ends them all with a line feed
            before, after = ([line.replace("\n", "\r\n") for line in dumped] for dumped in (before, after))
        if len(before) != len(lines):
            return "".join(after)
        result: list[str] = []
        for kind, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            result += lines[start:end] if kind == "equal" else after[new_start:new_end]
        return "".join(result)

    def _dump(self) -> str:
        out = StringIO()
        self._yaml.dump(self._root, out)
        return out.getvalue()


def _find_offset(text: str) -> int:
    """How far a list's dash stands to the right of its key: 2, unless the text does without."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line, following in pairwise(lines):
        if line.rstrip().endswith(":") and following.lstrip().startswith("- "):
            key = len(line) - len(line.lstrip())
            if line.lstrip().startswith("- "):
                key += 2
            return max(len(following) - len(following.lstrip()) - key, 0)
    return 2


def _to_ruamel(value: Any) -> Any:
    """`value` as ruamel writes it: texts of several lines as blocks, and texts that other readers misread in quotes."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    from evalkit.yamlfile.writing import dump

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
