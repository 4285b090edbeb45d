"""The files that a case is made of: how they merge, and from a path in the merged case back to file and line.

Mappings merge key by key, lists and scalars replace, null removes.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from msgspec import Struct

from evalkit.errors import KeyPath, Location
from evalkit.yamlfile.positions import Positions, read_positions

SUITE_FILE = "suite.yaml"
EXTENDS = "extends"  # the key that names another case, which this one is but for what it says itself
OLD_MOCKS, MOCKS = "mock_responses", "mock_function_responses"
# `temperature: null` is a value of its own: the model's own temperature.
_NULL_IS_A_VALUE: frozenset[KeyPath] = frozenset({("settings", "temperature")})


def format_file_path(path: str, root: str) -> str:
    """Format `path` for messages and identities: from the root, with slashes; unchanged if it lies elsewhere."""
    base = root.rstrip(os.sep) + os.sep
    return (path[len(base) :] if path.startswith(base) else path).replace(os.sep, "/")


def merge_data(outer: dict[str, Any], inner: dict[str, Any], path: KeyPath = ()) -> dict[str, Any]:
    """Merge `inner` over `outer` into new data. A null that has nothing to remove stays null.

    A mapping of `$` keys, a directive or an operator, is one value: it replaces and is replaced as a whole.
    """
    result = dict(outer)
    for key, value in inner.items():
        if value is None and key in outer and (*path, key) not in _NULL_IS_A_VALUE:
            del result[key]
            continue
        old = outer.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            is_one_value = any(data and all(key.startswith("$") for key in data) for data in (value, old))
            result[key] = value if is_one_value else merge_data(old, value, (*path, key))
        else:
            result[key] = value
    return result


def rename_old_mocks(data: dict[str, Any]) -> dict[str, Any]:
    """Replace the older name of the mocks in `data`, so that layers merge under one name.

    With both names in one layer nothing is replaced; the loader reports it.
    """
    case_input = data.get("input")
    if not isinstance(case_input, dict) or OLD_MOCKS not in case_input or MOCKS in case_input:
        return data
    renamed = {MOCKS if key == OLD_MOCKS else key: value for key, value in case_input.items()}
    return {**data, "input": renamed}


class Layer(Struct, frozen=True):
    """A file of a merged case: its name in messages, and the path from which positions are read.

    A layer of parsed data has `data` instead of a path.
    """

    file: str
    path: str | None = None
    data: Any = None

    def find(self, path: KeyPath, *, key: bool) -> Location | None:
        """Find the place of the value at `path` (`key`: of its key); None if this file does not define it."""
        spellings = [path]
        if path[:2] == ("input", MOCKS):
            spellings.append(("input", OLD_MOCKS, *path[2:]))
        for spelling in spellings:
            if self.path is None:
                if _has_path(self.data, spelling):
                    return Location(self.file)
                continue
            positions = _load_positions(self.path)
            if positions is not None and (positions.has(spelling) or not spelling):
                return Location(self.file, *positions.locate(spelling, key=key))
            if positions is None and not spelling:
                return Location(self.file)
        return None


class Source(Struct, frozen=True):
    """The files of one case, the nearest first. Files are read when a place is asked for."""

    layers: tuple[Layer, ...]

    def locate(self, path: KeyPath, *, key: bool = False) -> Location:
        """Find the place of the value at `path` (`key`: of its key), else of its nearest ancestor in a file."""
        for length in range(len(path), -1, -1):
            for layer in self.layers:
                location = layer.find(path[:length], key=key and length == len(path))
                if location is not None:
                    return location
        return Location(self.layers[0].file)


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
    with open(path, "rb") as file:
        return read_positions(file.read())
