"""Places of values: a table made in a second pass over the text, only when a message needs a place."""

from __future__ import annotations

from msgspec import Struct, field

from evalkit.yamlfile import events
from evalkit.yamlfile.events import Event

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
    source = events.prepare(text.removeprefix("\ufeff"))
    return Positions(_PositionsReader(source).read())


class _PositionsReader:
    def __init__(self, source: events.SourceText) -> None:
        self.source = source
        self.root: _Node | None = None
        self.anchors: dict[str, _Node] = {}
        self.key_texts: dict[str, str] = {}  # anchored scalars, which an alias may make a key of

    def read(self) -> _Node | None:
        try:
            parser = events.open_parser(self.source.text)
        except (events.YAMLError, UnicodeEncodeError):
            return None
        self._next = parser.get_event
        try:
            self._next()  # the stream's start
            if self._next().__class__ is not events.StreamEndEvent:
                event = self._next()
                self.root = self._open_node(event)
                self._fill(self.root, event, 0)
        except events.YAMLError:
            return self.root
        finally:
            parser.dispose()
        return self.root

    def _open_node(self, event: Event) -> _Node:
        """Make a node without its children: it gets its place before they are read, in case the text breaks off."""
        node = _Node((event.start_mark.line + 1, event.start_mark.column + 1))
        if event.__class__ is events.AliasEvent:
            target = self.anchors.get(event.anchor or "")
            if target is not None and not target.is_open:
                node.items, node.keys, node.merged = target.items, target.keys, target.merged
            return node
        if event.anchor is not None:
            self.anchors[event.anchor] = node
            if event.__class__ is events.ScalarEvent:
                self.key_texts[event.anchor] = event.value
        return node

    def _fill(self, node: _Node, event: Event, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise events.YAMLError("nested too deeply")
        node.is_open = True
        if event.__class__ is events.SequenceStartEvent:
            node.items = []
            while (item := self._next()).__class__ is not events.SequenceEndEvent:
                node.items.append(self._open_node(item))
                self._fill(node.items[-1], item, depth + 1)
        elif event.__class__ is events.MappingStartEvent:
            node.keys = {}
            while (key := self._next()).__class__ is not events.MappingEndEvent:
                self._fill_pair(node, node.keys, key, depth + 1)
        node.is_open = False

    def _fill_pair(self, node: _Node, keys: dict[str, tuple[Place, _Node]], key: Event, depth: int) -> None:
        shell = self._open_node(key)
        self._fill(shell, key, depth)
        event = self._next()
        child = self._open_node(event)
        name = self._read_key_text(key)
        is_merge = name == "<<" and key.__class__ is events.ScalarEvent and not key.style
        if name is not None and not is_merge:
            keys.setdefault(name, (shell.place, child))
        self._fill(child, event, depth)
        if is_merge:
            node.merged = [child] if child.items is None else child.items

    def _read_key_text(self, key: Event) -> str | None:
        if key.__class__ is events.AliasEvent:
            return self.key_texts.get(key.anchor or "")
        if key.__class__ is not events.ScalarEvent:
            return None
        text: str = key.value
        return text if self.source.restore is None else text.translate(self.source.restore)
