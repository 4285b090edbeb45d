"""The parser behind this room: libyaml's where PyYAML has it, else PyYAML's own. Both give the same events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import yaml
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

YAMLError = yaml.YAMLError


class EventParser(Protocol):
    def get_event(self) -> Any: ...
    def dispose(self) -> None: ...


class PythonParser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """PyYAML's parser without libyaml: some twenty times slower."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


def select_parser(*, libyaml: bool) -> Callable[[str], EventParser]:
    """What makes a parser over a text."""
    if not libyaml:
        return PythonParser
    parser: Callable[[str], EventParser] = yaml.cyaml.CParser  # type: ignore[attr-defined]  # missing in its stub
    return parser


open_parser = select_parser(libyaml=yaml.__with_libyaml__)

__all__ = [
    "AliasEvent",
    "DocumentEndEvent",
    "DocumentStartEvent",
    "EventParser",
    "MappingEndEvent",
    "MappingStartEvent",
    "PythonParser",
    "ScalarEvent",
    "SequenceEndEvent",
    "SequenceStartEvent",
    "StreamEndEvent",
    "YAMLError",
    "open_parser",
    "select_parser",
]
