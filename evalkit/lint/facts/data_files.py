"""JSON and YAML files of declarations: MCP's `tools/list`, OpenAI's `tools`, Gemini's `functionDeclarations`, lists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from evalkit.errors import Location
from evalkit.lint.facts import forms as shapes
from evalkit.lint.facts.records import DataPath, DeclaredFunction
from evalkit.lint.finding import Finding
from evalkit.yamlfile.parse import read
from evalkit.yamlfile.positions import Positions, read_positions

_MAY_DECLARE = re.compile(r'"(?:input_?[sS]chema|parameters(?:JsonSchema|_json_schema)?)"\s*:')
_MAY_DECLARE_YAML = re.compile(
    r"^[ \t-]*(?:input_?[sS]chema|parameters(?:JsonSchema|_json_schema)?)[ \t]*:", re.MULTILINE
)
YAML_ENDINGS = (".yaml", ".yml")
_LISTS = ("tools", "functions", "function_declarations", "functionDeclarations", "result", "available_functions")


def read_data_file(text: str, file: str) -> tuple[list[DeclaredFunction], list[Finding]]:
    """The declarations in a file that is made of them; nothing for other JSON and YAML."""
    if file.endswith(YAML_ENDINGS):
        return _read_yaml(text, file), []
    if not _MAY_DECLARE.search(text):
        return [], []
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        if getattr(error, "msg", "") == "Extra data":
            return list(_read_json_lines(text, file)), []
        at = Location(file, getattr(error, "lineno", 1), getattr(error, "colno", 1))
        message = f"not JSON: {getattr(error, 'msg', error)}"
        advice = "correct the file, or leave it out with `exclude`"
        return [], [Finding(name="unreadable", location=at, message=message, advice=advice)]
    places = _DataPlaces(text, file)
    return list(_find_declarations(data, (), places)), []


def _read_yaml(text: str, file: str) -> list[DeclaredFunction]:
    """Much YAML is in nobody's strict form (templates, several documents): it declares nothing that can be read."""
    if not _MAY_DECLARE_YAML.search(text):
        return []
    data, problems = read(text, file)
    return [] if problems else list(_find_declarations(data, (), _DataPlaces(text, file)))


def _read_json_lines(text: str, file: str) -> Iterator[DeclaredFunction]:
    """JSON Lines of declarations; other JSON Lines are data."""
    for number, line in enumerate(text.split("\n"), 1):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, Mapping) and shapes.find_form(data) is not None:
            function = shapes.read_declaration(
                data, _make_locator(Location(file, number, 1)), file=file, listed_in=file
            )
            if isinstance(function, DeclaredFunction):
                yield function


def _make_locator(place: Location) -> Callable[[DataPath], Location]:
    """One place for all that stands in a line."""
    return lambda path: place


class _DataPlaces:
    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self.file = file

    @cached_property
    def _table(self) -> Positions:
        return read_positions(self._text)

    def locate(self, path: DataPath) -> Location:
        return Location(self.file, *self._table.locate(path))


def _find_declarations(data: Any, path: DataPath, places: _DataPlaces) -> Iterator[DeclaredFunction]:
    if isinstance(data, list):
        for index, item in enumerate(data):
            if isinstance(item, Mapping):
                yield from _read_item(item, (*path, index), places, listed_in=(places.file, path))
    elif isinstance(data, Mapping):
        if shapes.find_form(data) is not None:
            yield from _read_item(data, path, places, listed_in=None)
            return
        for key in _LISTS:
            if key in data and len(path) < 4:
                yield from _find_declarations(data[key], (*path, key), places)
                yield from _find_by_name(data[key], (*path, key), places)


def _find_by_name(data: Any, path: DataPath, places: _DataPlaces) -> Iterator[DeclaredFunction]:
    """``tools: {search: {description: ..., parameters: ...}}``."""
    for name, item in data.items() if isinstance(data, Mapping) else ():
        if isinstance(name, str) and isinstance(item, Mapping) and "name" not in item:
            named = {"name": name, **item}
            if shapes.find_form(named) is not None:
                yield from _read_item(named, (*path, name), places, listed_in=None)


def _read_item(
    item: Mapping[str, Any], path: DataPath, places: _DataPlaces, *, listed_in: object
) -> Iterator[DeclaredFunction]:
    nested = [key for key in _LISTS[2:4] if key in item]
    if nested:  # Gemini's tools: [{"functionDeclarations": [...]}]
        yield from _find_declarations(item[nested[0]], (*path, nested[0]), places)
        return
    if shapes.is_server_tool(item):
        return
    function = shapes.read_declaration(
        item, lambda inner: places.locate((*path, *inner)), file=places.file, listed_in=listed_in
    )
    if isinstance(function, DeclaredFunction):
        yield function
