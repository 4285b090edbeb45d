"""JSON answers with templates: compiled at load, rendered once per call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from evalkit.errors import PathProblem
from evalkit.functions.jsondata import copied
from evalkit.functions.mocks import Path, Static
from evalkit.model.template import Reference, Template, TemplateError, parse, render

Resolve = Callable[[Reference], Any]


def compile_static(value: Any, path: Path, problems: list[PathProblem]) -> Static:
    """`value` (JSON that nobody else holds) with its templates parsed and each ``{$literal: X}`` replaced by X."""
    if not needs_compiling(value):
        return Static(value, False)
    found: list[Template] = []
    return Static(_compiled(value, path, problems, found), bool(found))


def needs_compiling(value: Any) -> bool:
    """Whether JSON data may hold a template or a `$literal`."""
    kind = type(value)
    if kind is str:
        return "{{" in value
    if kind is dict:
        return "$literal" in value or any(map(needs_compiling, value.values()))
    return kind is list and any(map(needs_compiling, value))


def _compiled(value: Any, path: Path, problems: list[PathProblem], found: list[Template]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$literal"}:
            return value["$literal"]
        return {key: _compiled(item, (*path, key), problems, found) for key, item in value.items()}
    if isinstance(value, list):
        return [_compiled(item, (*path, index), problems, found) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    try:
        parsed = parse(value)
    except TemplateError as error:
        problems.append(PathProblem(path, str(error)))
        return value
    if isinstance(parsed, Template):
        found.append(parsed)
    return parsed


def references(value: Any, path: Path = ()) -> Iterator[tuple[Path, Reference]]:
    """Every reference in a compiled value, with the path of its string."""
    if isinstance(value, Template):
        yield from ((path, part) for part in value.parts if isinstance(part, Reference))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from references(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from references(item, (*path, index))


def rendered(value: Any, resolve: Resolve) -> Any:
    """`value` with its templates filled in, as new JSON data. What was filled in is not looked at again."""
    if isinstance(value, Template):
        return copied(render(value, resolve).value)
    if isinstance(value, dict):
        return {key: rendered(item, resolve) for key, item in value.items()}
    if isinstance(value, list):
        return [rendered(item, resolve) for item in value]
    return value
