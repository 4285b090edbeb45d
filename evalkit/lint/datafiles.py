"""JSON and YAML files of declarations: MCP's `tools/list`, OpenAI's `tools`, Gemini's `functionDeclarations`, lists."""

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
from evalkit.yamlfile.builder import read
from evalkit.yamlfile.places import Positions, positions

_MAY_DECLARE = re.compile(r'"(?:input_?[sS]chema|parameters(?:JsonSchema|_json_schema)?)"\s*:')
_MAY_DECLARE_YAML = re.compile(
    r"^[ \t-]*(?:input_?[sS]chema|parameters(?:JsonSchema|_json_schema)?)[ \t]*:", re.MULTILINE
)
YAML_ENDINGS = (".yaml", ".yml")
_LISTS = ("tools", "functions", "function_declarations", "functionDeclarations", "result", "available_functions")


def read_data_file(text: str, file: str) -> tuple[list[Declared], list[Finding]]:
    """The declarations in a file that is made of them; nothing for other JSON and YAML."""
    if file.endswith(YAML_ENDINGS):
        return _in_yaml(text, file), []
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


def _in_yaml(text: str, file: str) -> list[Declared]:
    """Much YAML is in nobody's strict form (templates, several documents): it declares nothing that can be read."""
    if not _MAY_DECLARE_YAML.search(text):
        return []
    data, problems = read(text, file)
    return [] if problems else list(_declared(data, (), _Places(text, file)))


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
                yield from _by_name(data[key], (*path, key), places)


def _by_name(data: Any, path: Path, places: _Places) -> Iterator[Declared]:
    """``tools: {search: {description: ..., parameters: ...}}``."""
    for name, item in data.items() if isinstance(data, Mapping) else ():
        if isinstance(name, str) and isinstance(item, Mapping) and "name" not in item:
            named = {"name": name, **item}
            if shapes.form_of(named) is not None:
                yield from _one(named, (*path, name), places, listed_in=None)


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
