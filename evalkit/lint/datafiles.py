"""JSON files of declarations: MCP's `tools/list`, OpenAI's `tools`, Gemini's `functionDeclarations`, plain lists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from evalkit.errors import Location
from evalkit.lint import shapes
from evalkit.lint.facts import Declared, Path
from evalkit.lint.finding import Finding
from evalkit.yamlfile import Positions, positions

_MAY_DECLARE = re.compile(r'"(?:input_?[sS]chema|parameters(?:JsonSchema|_json_schema)?)"\s*:')
_LISTS = ("tools", "functions", "function_declarations", "functionDeclarations", "result", "available_functions")


def read_data_file(text: str, file: str) -> tuple[list[Declared], list[Finding]]:
    """The declarations in a JSON file that is made of them; nothing for other JSON."""
    if not _MAY_DECLARE.search(text):
        return [], []
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        if getattr(error, "msg", "") == "Extra data":
            return list(_declared_by_line(text, file)), []
        at = Location(file, getattr(error, "lineno", 1), getattr(error, "colno", 1))
        message = f"not JSON: {getattr(error, 'msg', error)}"
        advice = "correct the file, or leave it out with `exclude`"
        return [], [Finding(name="unreadable", location=at, message=message, advice=advice)]
    places = _Places(text, file)
    return list(_declared(data, (), places)), []


def _declared_by_line(text: str, file: str) -> Iterator[Declared]:
    """JSON Lines of declarations; other JSON Lines are data."""
    for number, line in enumerate(text.split("\n"), 1):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, Mapping) and shapes.form_of(data) is not None:
            found = shapes.declared(data, _at(Location(file, number, 1)), file=file, listed_in=file)
            if isinstance(found, Declared):
                yield found


def _at(place: Location) -> Callable[[Path], Location]:
    """One place for all that stands in a line."""
    return lambda path: place


class _Places:
    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self.file = file

    @cached_property
    def _table(self) -> Positions:
        return positions(self._text)

    def locate(self, path: Path) -> Location:
        return Location(self.file, *self._table.locate(path))


def _declared(data: Any, path: Path, places: _Places) -> Iterator[Declared]:
    if isinstance(data, list):
        for index, item in enumerate(data):
            if isinstance(item, Mapping):
                yield from _one(item, (*path, index), places, listed_in=(places.file, path))
    elif isinstance(data, Mapping):
        if shapes.form_of(data) is not None:
            yield from _one(data, path, places, listed_in=None)
            return
        for key in _LISTS:
            if key in data and len(path) < 4:
                yield from _declared(data[key], (*path, key), places)


def _one(item: Mapping[str, Any], path: Path, places: _Places, *, listed_in: object) -> Iterator[Declared]:
    nested = [key for key in _LISTS[2:4] if key in item]
    if nested:  # Gemini's tools: [{"functionDeclarations": [...]}]
        yield from _declared(item[nested[0]], (*path, nested[0]), places)
        return
    if shapes.is_server_tool(item):
        return
    found = shapes.declared(item, lambda inner: places.locate((*path, *inner)), file=places.file, listed_in=listed_in)
    if isinstance(found, Declared):
        yield found
