"""Values from the parser's events, in one pass: half the time of PyYAML's own constructor, and stricter.

What can be gone on from (a duplicate key, a tag, a bad number) is noted and the pass continues, so that a text's
problems are reported together; what can't (syntax, a limit) ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any, NamedTuple

from evalkit.errors import Location, Problem, SpecError, did_you_mean
from evalkit.yamlfile import events as ev
from evalkit.yamlfile import scalars, text
from evalkit.yamlfile.text import DEFAULT, Limits, expanded_size

_NO_KEY = object()  # in a mapping, the next node is a key
_DROPPED = object()  # the key was bad: its value is read and forgotten
_CONTAINER = object()  # the key is a mapping or a list, and bad: it is read to its end, then its value is dropped
_MERGE = object()  # the key was `<<`


def load(data: str | bytes, file: str, limits: Limits = DEFAULT) -> Any:
    """The value of the one document in `data`; None if it is empty. SpecError lists every problem with its place.

    Aliases give the same object twice: treat what comes back as immutable.
    """
    value, problems = read(data, file, limits)
    if problems:
        raise SpecError(problems)
    return value


class Read(NamedTuple):
    """What could be read of a text, and what is wrong with it. A text that breaks off gives None."""

    value: Any
    problems: tuple[Problem, ...]


def read(data: str | bytes, file: str, limits: Limits = DEFAULT) -> Read:
    """As `load`, but problems come beside the value: a caller can go on and find what else is wrong with the file."""
    try:
        builder = Builder(text.prepare(text.decode(data, file, limits.max_bytes)), file, limits)
    except SpecError as error:
        return Read(None, error.problems)
    return Read(builder.build(), tuple(builder.problems))


class _StopError(Exception):
    """A limit was passed; the problem is noted."""


class Builder:
    """One pass over one text."""

    def __init__(self, source: text.Source, file: str, limits: Limits) -> None:
        self.source = source
        self.file = file
        self.limits = limits
        self.problems: list[Problem] = []
        self.anchors: dict[str, Any] = {}
        self.merges: dict[int, list[Any]] = {}  # depth of an open mapping -> what its `<<` names
        self.nodes = 0

    def build(self) -> Any:
        return self.through(self._document)

    def through(self, work: Callable[[Callable[[], Any]], Any]) -> Any:
        """What `work` makes of the parser's events, which it gets one by one; None if the text breaks off."""
        try:
            parser = ev.open_parser(self.source.text)
        except (ev.YAMLError, UnicodeEncodeError) as error:
            self._broken(error)
            return None
        try:
            return work(parser.get_event if self.source.restore is None else self._restored(parser.get_event))
        except _StopError:
            return None
        except ev.YAMLError as error:
            self._broken(error)
            return None
        finally:
            parser.dispose()

    def _broken(self, error: Exception) -> None:
        from evalkit.yamlfile import syntax

        self.problems.append(syntax.explain(error, self.source.text, self.file))

    def _restored(self, get: Callable[[], Any]) -> Callable[[], Any]:
        table = self.source.restore or {}

        def next_event() -> Any:
            event = get()
            if event.__class__ is ev.ScalarEvent:
                event.value = event.value.translate(table)
            return event

        return next_event

    def _document(self, get: Callable[[], Any]) -> Any:
        get()  # the stream's start
        if get().__class__ is ev.StreamEndEvent:
            return None
        value = self.node(get)
        get()  # the document's end
        after = get()
        if after.__class__ is not ev.StreamEndEvent:
            self._note(after, "a second document begins here; a file holds one: remove '---' or split the file")
        return value

    def node(self, get: Callable[[], Any]) -> Any:
        """The value of the node whose events come next."""
        # One loop without calls on the common road: this is where the time of loading a suite goes.
        scalar, mapping_end, list_end = ev.ScalarEvent, ev.MappingEndEvent, ev.SequenceEndEvent
        mapping_start, constants, starts, dropped = (
            ev.MappingStartEvent,
            scalars.CONSTANTS,
            scalars.NUMBER_STARTS,
            _DROPPED,
        )
        max_nodes, max_depth = self.limits.max_nodes, self.limits.max_depth
        container: Any = None
        key: Any = _NO_KEY
        stack: list[tuple[Any, Any]] = []
        while True:
            event = get()
            kind = event.__class__
            if kind is scalar:
                value = event.value
                if event.tag is not None:
                    value = self._tagged(event)
                elif not event.style:
                    if value in constants:
                        value = constants[value]
                    elif value[0] in starts:
                        value = self._number(event)
                if event.anchor is not None:
                    self.anchors[event.anchor] = value
            elif kind is mapping_end or kind is list_end:
                nodes = len(container)
                self.nodes += nodes + nodes if kind is mapping_end else nodes
                if self.nodes > max_nodes:
                    self._too_many(event)
                if self.merges:
                    self._merge(container, len(stack))
                value = container
                container, key = stack.pop()
                if key is _CONTAINER:
                    key = dropped
                    continue
            elif kind is ev.AliasEvent:
                value = self._alias(event, stack, container)
            else:
                if key is _NO_KEY and container.__class__ is dict:
                    key = self._container_as_key(event)
                stack.append((container, key))
                key = _NO_KEY
                if event.tag is None and event.anchor is None and len(stack) <= max_depth:
                    container = {} if kind is mapping_start else []
                else:
                    container = self._opened(event, len(stack))
                continue
            if container.__class__ is list:
                container.append(value)
            elif container is None:
                return value
            elif key is _NO_KEY:
                plain = value.__class__ is str and value not in container and value != "<<"
                key = intern(value) if plain else self._odd_key(event, value, stack, container)
            else:
                if key.__class__ is str:
                    container[key] = value
                elif key is not dropped:
                    self._keep_merge(value, len(stack))
                key = _NO_KEY

    def _opened(self, event: Any, depth: int) -> Any:
        if depth > self.limits.max_depth:
            self._stop(event, f"nested more than {self.limits.max_depth} levels deep")
        is_mapping = event.__class__ is ev.MappingStartEvent
        container: Any = {} if is_mapping else []
        if event.tag not in (None, "!", "tag:yaml.org,2002:map" if is_mapping else "tag:yaml.org,2002:seq"):
            self._note(event, scalars.refused_tag(event.tag))
        if event.anchor is not None:
            self.anchors[event.anchor] = container
        return container

    def _too_many(self, event: Any) -> None:
        self._stop(event, f"more than {self.limits.max_nodes:,} keys and values up to here, aliases expanded")

    def _number(self, event: Any) -> int | float | str:
        try:
            return scalars.number(event.value)
        except scalars.ScalarError as error:
            self._note(event, str(error))
            return 0

    def _tagged(self, event: Any) -> Any:
        try:
            return scalars.tagged(event.tag, event.value)
        except scalars.ScalarError as error:
            self._note(event, str(error))
            return event.value

    def _alias(self, event: Any, stack: list[tuple[Any, Any]], container: Any) -> Any:
        name = event.anchor
        if name not in self.anchors:
            self._note(
                event,
                f"alias *{name} names no anchor above it{did_you_mean(name, self.anchors)}; "
                f"write &{name} where the value stands, or quote the text",
            )
            return None
        value = self.anchors[name]
        if value.__class__ in (dict, list) and any(value is it for it in (container, *(outer for outer, _ in stack))):
            self._note(event, f"alias *{name} stands inside the value that it names")
            return None
        size, depth = expanded_size(value, self.limits.max_nodes - self.nodes)
        self.nodes += size
        if self.nodes > self.limits.max_nodes:
            self._too_many(event)
        if len(stack) + depth > self.limits.max_depth:
            self._stop(event, f"nested more than {self.limits.max_depth} levels deep")
        return value

    def _container_as_key(self, event: Any) -> Any:
        index = event.start_mark.index
        if event.__class__ is ev.MappingStartEvent and index and self.source.text[index - 1 : index + 1] == "{{":
            self._note(event, "a text that begins with '{{' must be quoted", back=1)
        else:
            self._note(event, "a key must be text, not a mapping or a list")
        return _CONTAINER

    def _odd_key(self, event: Any, value: Any, stack: list[tuple[Any, Any]], container: dict[str, Any]) -> Any:
        if value.__class__ is not str:
            if event.__class__ is ev.ScalarEvent:
                shown = event.value or "''"
                self._note(event, f"a key must be text, and {shown} is {_kind(value)}; quote it: '{event.value}'")
            else:
                self._note(event, f"a key must be text, and *{event.anchor} is {_kind(value)}")
            return _DROPPED
        if value == "<<" and event.__class__ is ev.ScalarEvent and not event.style and value not in container:
            if len(stack) in self.merges:
                self._note(event, "duplicate key '<<'; to merge several mappings write <<: [*one, *other]")
                return _DROPPED
            self.merges[len(stack)] = [event]
            return _MERGE
        if value in container:
            self._note(event, self._duplicate(value, [*stack, (container, value)]))
            return _DROPPED
        return value

    def _duplicate(self, key: str, stack: list[tuple[Any, Any]]) -> str:
        path = tuple(len(outer) if step is _NO_KEY else step for outer, step in stack[1:])
        if any(not isinstance(step, (str, int)) for step in path):
            return f"duplicate key {key!r}"
        from evalkit.yamlfile.places import positions

        line, _ = positions(self.source.text).locate(path, key=True)
        return f"duplicate key {key!r}; it stands in line {line} already"

    def _keep_merge(self, value: Any, depth: int) -> None:
        event = self.merges[depth].pop()
        items = value if isinstance(value, list) else [value]
        self.merges[depth] = [item for item in items if isinstance(item, dict)]
        if len(self.merges[depth]) < len(items):
            self._note(event, "'<<' merges a mapping or a list of mappings, e.g. <<: *defaults")

    def _merge(self, container: Any, depth: int) -> None:
        for merged in self.merges.pop(depth, ()):
            for key, value in merged.items():
                container.setdefault(key, value)

    def _note(self, event: Any, message: str, *, back: int = 0) -> None:
        mark = event.start_mark
        self.problems.append(Problem(Location(self.file, mark.line + 1, mark.column + 1 - back), message))

    def _stop(self, event: Any, message: str) -> None:
        self._note(event, message)
        raise _StopError


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return "a boolean" if isinstance(value, bool) else "a number"
