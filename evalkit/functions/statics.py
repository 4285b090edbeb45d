"""JSON answers with templates: compiled at load, rendered once per call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from evalkit.errors import PathProblem
from evalkit.functions.jsondata import copy_json
from evalkit.functions.mocks import KeyPath, StaticAnswer
from evalkit.model.template import Reference, Template, TemplateError, parse_template, render_templates

Resolve = Callable[[Reference], Any]


def compile_static(value: Any, path: KeyPath, problems: list[PathProblem]) -> StaticAnswer:
    """`value` (JSON that nobody else holds) with its templates parsed and each ``{$literal: X}`` replaced by X."""
    if not must_compile(value):
        return StaticAnswer(value, False)
    templates: list[Template] = []
    return StaticAnswer(_compile_templates(value, path, problems, templates), bool(templates))


def must_compile(value: Any) -> bool:
    """Whether JSON data may hold a template or a `$literal`."""
    kind = type(value)
    if kind is str:
        return "{{" in value
    if kind is dict:
        return "$literal" in value or any(map(must_compile, value.values()))
    return kind is list and any(map(must_compile, value))


def _compile_templates(value: Any, path: KeyPath, problems: list[PathProblem], templates: list[Template]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$literal"}:
            return value["$literal"]
        return {key: _compile_templates(item, (*path, key), problems, templates) for key, item in value.items()}
    if isinstance(value, list):
        return [_compile_templates(item, (*path, index), problems, templates) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    try:
        parsed = parse_template(value)
    except TemplateError as error:
        problems.append(PathProblem(path, str(error)))
        return value
    if isinstance(parsed, Template):
        templates.append(parsed)
    return parsed


def find_references(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Reference]]:
    """Every reference in a compiled value, with the path of its string."""
    if isinstance(value, Template):
        yield from ((path, part) for part in value.parts if isinstance(part, Reference))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from find_references(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from find_references(item, (*path, index))


def render_answer(value: Any, resolve: Resolve) -> Any:
    """`value` with its templates filled in, as new JSON data. What was filled in is not looked at again."""
    if isinstance(value, Template):
        return copy_json(render_templates(value, resolve).value)
    if isinstance(value, dict):
        return {key: render_answer(item, resolve) for key, item in value.items()}
    if isinstance(value, list):
        return [render_answer(item, resolve) for item in value]
    return value
