"""Data from Python code as the plain JSON data that a file would have given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalkit.errors import PathProblem
from evalkit.operators.shown import format_value
from evalkit.yamlfile.text import Limits

KeyPath = tuple[str | int, ...]
_MAX_DEPTH = Limits().max_depth


def to_plain_data(data: Any) -> tuple[Any, list[PathProblem]]:
    """`data` copied into dicts and lists, tuples as lists; and what in it a file could not have held."""
    problems: list[PathProblem] = []
    return _convert(data, (), problems), problems


def _convert(value: Any, path: KeyPath, problems: list[PathProblem]) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if len(path) > _MAX_DEPTH:
        problems.append(PathProblem(path[:3], f"nested more than {_MAX_DEPTH} levels deep"))
        return None
    if isinstance(value, Mapping):
        return {
            key: _convert(item, (*path, key), problems) for key, item in value.items() if _is_key(key, path, problems)
        }
    if isinstance(value, (list, tuple)):
        return [_convert(item, (*path, index), problems) for index, item in enumerate(value)]
    if isinstance(value, float) and value - value == 0:
        return value
    problems.append(PathProblem(path, f"{format_value(value)} is not JSON data"))
    return None


def _is_key(key: Any, path: KeyPath, problems: list[PathProblem]) -> bool:
    if isinstance(key, str):
        return True
    problems.append(PathProblem(path, f"a key must be text, and {key!r} is {type(key).__name__}"))
    return False
