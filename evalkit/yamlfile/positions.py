"""The places of values in a text: a table that a second pass makes, when a message needs one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from evalkit.errors import Location, PathProblem, Problem, SpecError
from evalkit.yamlfile import events
from evalkit.yamlfile.events import (
    AliasEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    SourceText,
    StreamEndEvent,
    YAMLError,
    prepare,
)

Place = tuple[int, int]
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
            parser = events.open_parser(self.source.text)
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
