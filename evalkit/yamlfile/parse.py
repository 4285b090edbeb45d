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
from evalkit.yamlfile import events as text
from evalkit.yamlfile import scalars
from evalkit.yamlfile.events import DEFAULT_LIMITS, Limits, count_expanded

_NO_KEY = object()  # in a mapping, the next node is a key
_DROPPED = object()  # the key was bad: its value is read and forgotten
_CONTAINER = object()  # the key is a mapping or a list, and bad: it is read to its end, then its value is dropped
_MERGE = object()  # the key was `<<`


def load(data: str | bytes, file: str, limits: Limits = DEFAULT_LIMITS) -> Any:
    """The value of the one document in `data`; None if it is empty. SpecError lists every problem with its place.

    Aliases give the same object twice: treat what comes back as immutable.
    """
    value, problems = read(data, file, limits)
    if problems:
        raise SpecError(problems)
    return value


class ParsedYaml(NamedTuple):
    """What could be read of a text, and what is wrong with it. A text that breaks off gives None."""

    value: Any
    problems: tuple[Problem, ...]


def read(data: str | bytes, file: str, limits: Limits = DEFAULT_LIMITS) -> ParsedYaml:
    """As `load`, but problems come beside the value: a caller can go on and find what else is wrong with the file."""
    try:
        builder = ValueBuilder(text.prepare(text.decode(data, file, limits.max_bytes)), file, limits)
    except SpecError as error:
        return ParsedYaml(None, error.problems)
    return ParsedYaml(builder.build(), tuple(builder.problems))


class _StopError(Exception):
    """A limit was passed; the problem is noted."""


class ValueBuilder:
    """One pass over one text."""

    def __init__(self, source: text.SourceText, file: str, limits: Limits) -> None:
        self.source = source
        self.file = file
        self.limits = limits
        self.problems: list[Problem] = []
        self.anchors: dict[str, Any] = {}
        self.merges: dict[int, list[Any]] = {}  # depth of an open mapping -> what its `<<` names
        self.nodes = 0

    def build(self) -> Any:
        return self.parse_events(self._read_document)

    def parse_events(self, work: Callable[[Callable[[], Any]], Any]) -> Any:
        """What `work` makes of the parser's events, which it gets one by one; None if the text breaks off."""
        try:
            parser = ev.open_parser(self.source.text)
        except (ev.YAMLError, UnicodeEncodeError) as error:
            self._add_syntax_problem(error)
            return None
        try:
            return work(parser.get_event if self.source.restore is None else self._restore_characters(parser.get_event))
        except _StopError:
            return None
        except ev.YAMLError as error:
            self._add_syntax_problem(error)
            return None
        finally:
            parser.dispose()

    def _add_syntax_problem(self, error: Exception) -> None:
        from evalkit.yamlfile import problems as syntax

        self.problems.append(syntax.explain_syntax_error(error, self.source.text, self.file))

    def _restore_characters(self, get: Callable[[], Any]) -> Callable[[], Any]:
        table = self.source.restore or {}

        def get_next_event() -> Any:
            event = get()
            if event.__class__ is ev.ScalarEvent:
                event.value = event.value.translate(table)
            return event

        return get_next_event

    def _read_document(self, get: Callable[[], Any]) -> Any:
        get()  # the stream's start
        if get().__class__ is ev.StreamEndEvent:
            return None
        value = self.read_node(get)
        get()  # the document's end
        after = get()
        if after.__class__ is not ev.StreamEndEvent:
            self._add_problem(after, "a second document begins here; a file holds one: remove '---' or split the file")
        return value

    def read_node(self, get: Callable[[], Any]) -> Any:
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
                    value = self._read_tagged(event)
                elif not event.style:
                    if value in constants:
                        value = constants[value]
                    elif value[0] in starts:
                        value = self._read_number(event)
                if event.anchor is not None:
                    self.anchors[event.anchor] = value
            elif kind is mapping_end or kind is list_end:
                nodes = len(container)
                self.nodes += nodes + nodes if kind is mapping_end else nodes
                if self.nodes > max_nodes:
                    self._stop_too_many(event)
                if self.merges:
                    self._merge(container, len(stack))
                value = container
                container, key = stack.pop()
                if key is _CONTAINER:
                    key = dropped
                    continue
            elif kind is ev.AliasEvent:
                value = self._resolve_alias(event, stack, container)
            else:
                if key is _NO_KEY and container.__class__ is dict:
                    key = self._refuse_container_key(event)
                stack.append((container, key))
                key = _NO_KEY
                if event.tag is None and event.anchor is None and len(stack) <= max_depth:
                    container = {} if kind is mapping_start else []
                else:
                    container = self._open_container(event, len(stack))
                continue
            if container.__class__ is list:
                container.append(value)
            elif container is None:
                return value
            elif key is _NO_KEY:
                plain = value.__class__ is str and value not in container and value != "<<"
                key = intern(value) if plain else self._check_odd_key(event, value, stack, container)
            else:
                if key.__class__ is str:
                    container[key] = value
                elif key is not dropped:
                    self._keep_merge(value, len(stack))
                key = _NO_KEY

    def _open_container(self, event: Any, depth: int) -> Any:
        if depth > self.limits.max_depth:
            self._stop(event, f"nested more than {self.limits.max_depth} levels deep")
        is_mapping = event.__class__ is ev.MappingStartEvent
        container: Any = {} if is_mapping else []
        if event.tag not in (None, "!", "tag:yaml.org,2002:map" if is_mapping else "tag:yaml.org,2002:seq"):
            self._add_problem(event, scalars.describe_refused_tag(event.tag))
        if event.anchor is not None:
            self.anchors[event.anchor] = container
        return container

    def _stop_too_many(self, event: Any) -> None:
        self._stop(event, f"more than {self.limits.max_nodes:,} keys and values up to here, aliases expanded")

    def _read_number(self, event: Any) -> int | float | str:
        try:
            return scalars.read_number(event.value)
        except scalars.ScalarError as error:
            self._add_problem(event, str(error))
            return 0

    def _read_tagged(self, event: Any) -> Any:
        try:
            return scalars.read_tagged(event.tag, event.value)
        except scalars.ScalarError as error:
            self._add_problem(event, str(error))
            return event.value

    def _resolve_alias(self, event: Any, stack: list[tuple[Any, Any]], container: Any) -> Any:
        name = event.anchor
        if name not in self.anchors:
            self._add_problem(
                event,
                f"alias *{name} names no anchor above it{did_you_mean(name, self.anchors)}; "
                f"write &{name} where the value stands, or quote the text",
            )
            return None
        value = self.anchors[name]
        if value.__class__ in (dict, list) and any(
            value is inner for inner in (container, *(outer for outer, _ in stack))
        ):
            self._add_problem(event, f"alias *{name} stands inside the value that it names")
            return None
        size, depth = count_expanded(value, self.limits.max_nodes - self.nodes)
        self.nodes += size
        if self.nodes > self.limits.max_nodes:
            self._stop_too_many(event)
        if len(stack) + depth > self.limits.max_depth:
            self._stop(event, f"nested more than {self.limits.max_depth} levels deep")
        return value

    def _refuse_container_key(self, event: Any) -> Any:
        index = event.start_mark.index
        if event.__class__ is ev.MappingStartEvent and index and self.source.text[index - 1 : index + 1] == "{{":
            self._add_problem(event, "a text that begins with '{{' must be quoted", back=1)
        else:
            self._add_problem(event, "a key must be text, not a mapping or a list")
        return _CONTAINER

    def _check_odd_key(self, event: Any, value: Any, stack: list[tuple[Any, Any]], container: dict[str, Any]) -> Any:
        if value.__class__ is not str:
            if event.__class__ is ev.ScalarEvent:
                key_text = event.value or "''"
                self._add_problem(
                    event, f"a key must be text, and {key_text} is {_describe_kind(value)}; quote it: '{event.value}'"
                )
            else:
                self._add_problem(event, f"a key must be text, and *{event.anchor} is {_describe_kind(value)}")
            return _DROPPED
        if value == "<<" and event.__class__ is ev.ScalarEvent and not event.style and value not in container:
            if len(stack) in self.merges:
                self._add_problem(event, "duplicate key '<<'; to merge several mappings write <<: [*one, *other]")
                return _DROPPED
            self.merges[len(stack)] = [event]
            return _MERGE
        if value in container:
            self._add_problem(event, self._describe_duplicate(value, [*stack, (container, value)]))
            return _DROPPED
        return value

    def _describe_duplicate(self, key: str, stack: list[tuple[Any, Any]]) -> str:
        path = tuple(len(outer) if step is _NO_KEY else step for outer, step in stack[1:])
        if any(not isinstance(step, (str, int)) for step in path):
            return f"duplicate key {key!r}"
        from evalkit.yamlfile.positions import read_positions

        line, _ = read_positions(self.source.text).locate(path, key=True)
        return f"duplicate key {key!r}; it stands in line {line} already"

    def _keep_merge(self, value: Any, depth: int) -> None:
        event = self.merges[depth].pop()
        items = value if isinstance(value, list) else [value]
        self.merges[depth] = [item for item in items if isinstance(item, dict)]
        if len(self.merges[depth]) < len(items):
            self._add_problem(event, "'<<' merges a mapping or a list of mappings, e.g. <<: *defaults")

    def _merge(self, container: Any, depth: int) -> None:
        for merged in self.merges.pop(depth, ()):
            for key, value in merged.items():
                container.setdefault(key, value)

    def _add_problem(self, event: Any, message: str, *, back: int = 0) -> None:
        mark = event.start_mark
        self.problems.append(Problem(Location(self.file, mark.line + 1, mark.column + 1 - back), message))

    def _stop(self, event: Any, message: str) -> None:
        self._add_problem(event, message)
        raise _StopError


def _describe_kind(value: Any) -> str:
    if value is None:
        return "null"
    return "a boolean" if isinstance(value, bool) else "a number"


# One key of a text's top mapping, without building the rest: collecting many files asks for little of each.

ABSENT = object()
_NEEDS_WHOLE_TEXT = object()  # only the whole text tells


def read_key(data: bytes, key: str, limits: Limits = DEFAULT_LIMITS) -> Any:
    """The value under `key` in the mapping that `data` holds; ABSENT if there is none, or if it can't be read.

    Of a text with problems any answer may come: whoever reads it as a whole is told of them.
    """
    try:
        builder = ValueBuilder(text.prepare(text.decode(data, "", limits.max_bytes)), "", limits)
    except SpecError:
        return ABSENT
    value = builder.parse_events(lambda get: _find_value(get, key, builder))
    if value is _NEEDS_WHOLE_TEXT or builder.problems:
        document = read(data, "", limits).value
        return document.get(key, ABSENT) if isinstance(document, dict) else ABSENT
    return value


def _find_value(get: Callable[[], Any], key: str, builder: ValueBuilder) -> Any:
    get()  # the stream's start
    if get().__class__ is ev.StreamEndEvent or get().__class__ is not ev.MappingStartEvent:
        return ABSENT
    while True:
        event = get()
        if event.__class__ is ev.MappingEndEvent:
            return ABSENT
        if event.__class__ is not ev.ScalarEvent or event.value == "<<" or event.anchor is not None:
            return _NEEDS_WHOLE_TEXT  # an alias, a merged mapping: what they stand for is not known here
        if event.value == key:
            return builder.read_node(get)
        _skip(get)


def _skip(get: Callable[[], Any]) -> None:
    """Pass over one node."""
    depth = 0
    while True:
        kind = get().__class__
        if kind is ev.MappingStartEvent or kind is ev.SequenceStartEvent:
            depth += 1
        elif kind is ev.MappingEndEvent or kind is ev.SequenceEndEvent:
            depth -= 1
        if depth == 0:
            return
