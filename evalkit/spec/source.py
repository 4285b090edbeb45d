"""From a path in a merged case back to the file and line that define it."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalkit.errors import KeyPath, Location, Problem

if TYPE_CHECKING:
    from evalkit.yamlfile.positions import Positions


# How a case inherits: mappings merge key by key, lists and scalars replace, null removes.


# `temperature: null` is a value of its own: the model's own temperature.
_NULL_IS_A_VALUE: frozenset[KeyPath] = frozenset({("settings", "temperature")})
OLD_MOCKS, MOCKS = "mock_responses", "mock_function_responses"


def merge_data(outer: dict[str, Any], inner: dict[str, Any], path: KeyPath = ()) -> dict[str, Any]:
    """`inner` over `outer`, neither of them changed. A null that has nothing to remove stays what it is.

    A mapping of `$` keys, a directive or an operator, is one value: it replaces and is replaced as a whole.
    """
    result = dict(outer)
    for key, value in inner.items():
        if value is None and key in outer and (*path, key) not in _NULL_IS_A_VALUE:
            del result[key]
        elif isinstance(value, dict) and isinstance(outer.get(key), dict) and not _is_single_value(value, outer[key]):
            result[key] = merge_data(outer[key], value, (*path, key))
        else:
            result[key] = value
    return result


def _is_single_value(*mappings: dict[str, Any]) -> bool:
    return any(mapping and all(key.startswith("$") for key in mapping) for mapping in mappings)


def rename_old_mocks(data: dict[str, Any]) -> dict[str, Any]:
    """`data` with the older name of the mocks replaced, so that layers merge under one name.

    With both names in one layer nothing is replaced; the loader reports it.
    """
    case_input = data.get("input")
    if not isinstance(case_input, dict) or OLD_MOCKS not in case_input or MOCKS in case_input:
        return data
    renamed = {MOCKS if key == OLD_MOCKS else key: value for key, value in case_input.items()}
    return {**data, "input": renamed}


EXTENDS = "extends"  # the key that names another case, which this one is but for what it says itself


class Layer(Struct, frozen=True):
    """One file of a merged case: its name in messages, and where it is read again. Parsed data has `data` instead."""

    file: str
    path: str | None = None
    data: Any = None

    def find(self, path: KeyPath, *, key: bool) -> Location | None:
        """The place of what stands at `path`; None if this file does not define it."""
        for spelling in _list_spellings(path):
            location = self._find(spelling, key)
            if location is not None:
                return location
        return None

    def _find(self, path: KeyPath, key: bool) -> Location | None:
        if self.path is None:
            return Location(self.file) if _has_path(self.data, path) else None
        table = _load_positions(self.path)
        if table is None:
            return None if path else Location(self.file)
        return Location(self.file, *table.locate(path, key=key)) if table.has(path) or not path else None


class Source(Struct, frozen=True):
    """The files of one case, the nearest first. Picklable; files are read only when a place is asked for."""

    layers: tuple[Layer, ...]

    def locate(self, path: KeyPath, *, key: bool = False) -> Location:
        """The place of the value at `path` (`key`: of its key), else of its nearest ancestor that a file defines."""
        for length in range(len(path), -1, -1):
            for layer in self.layers:
                location = layer.find(path[:length], key=key and length == len(path))
                if location is not None:
                    return location
        return Location(self.layers[0].file)


class ExtendedCase(Struct, frozen=True):
    """A case's own data over that of the cases it extends. `layers` are those cases' files, the nearest first."""

    data: dict[str, Any]
    layers: tuple[Layer, ...] = ()
    problems: tuple[Problem, ...] = ()
    contents: tuple[bytes, ...] = ()


def _list_spellings(path: KeyPath) -> tuple[KeyPath, ...]:
    if path[:2] == ("input", MOCKS):
        return (path, ("input", OLD_MOCKS, *path[2:]))
    return (path,)


def _has_path(data: Any, path: KeyPath) -> bool:
    for step in path:
        in_list = isinstance(data, list) and isinstance(step, int) and 0 <= step < len(data)
        if not in_list and not (isinstance(data, dict) and step in data):
            return False
        data = data[step]
    return True


def _load_positions(path: str) -> Positions | None:
    try:
        status = os.stat(path)
        return _read_file_positions(path, status.st_mtime_ns, status.st_size)
    except OSError:
        return None


@lru_cache(maxsize=16)
def _read_file_positions(path: str, mtime_ns: int, size: int) -> Positions:
    from evalkit.yamlfile.positions import read_positions

    with open(path, "rb") as file:
        return read_positions(file.read())
