"""`$include: warranty/check_warranty.valid`: the file ``mocks/warranty/check_warranty.yaml``, its key ``valid``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalkit.errors import EvalkitError, did_you_mean
from evalkit.text.format import format_value
from evalkit.yamlfile.parse import load
from evalkit.yamlfile.positions import read_positions

_ENDINGS = (".yaml", ".yml", ".json")
_REFERENCE = r"(?P<file>(?:[\w-]+/)*[\w-]+)(?:\.(?P<key>.+))?"
_CACHE: dict[Path, tuple[tuple[int, int], Any]] = {}


class IncludeError(EvalkitError):
    """An `$include` that leads nowhere."""

    code = "invalid_case"


def open_mock_files(folder: Path) -> MockFiles:
    """Return the `include` callable of `parse_mocks` for a folder of mock files (YAML or JSON).

    It gives the data that a reference names, raises IncludeError where it names none, and SpecError where the file does
    not load. Files are read once per process and again when they change. No reference leads out of the folder.
    """
    return MockFiles(folder)


class MockFiles:
    """See `mock_files`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, reference: str) -> Any:
        path, key = self._resolve_reference(reference)
        data = _read_file(path, self._format_path(path))
        return data if key is None else _find_key(data, key, self._format_path(path))[0]

    def locate(self, reference: str, inner: tuple[str | int, ...], at_key: bool) -> str:
        """``mocks/warranty/check_warranty.yaml:4:9``, of what lies at `inner` below what `reference` names."""
        path, key = self._resolve_reference(reference)
        data = _read_file(path, self._format_path(path))
        steps = () if key is None else _find_key(data, key, self._format_path(path))[1]
        line, column = read_positions(path.read_bytes()).locate((*steps, *inner), key=at_key)
        return f"{self._format_path(path)}:{line}:{column}"

    def _resolve_reference(self, reference: str) -> tuple[Path, str | None]:
        match = re.fullmatch(_REFERENCE, reference)
        if match is None:
            raise IncludeError(f"{reference!r} names no mock file; write it as 'warranty/check_warranty.valid'")
        return _find_file(self._folder, match["file"]), match["key"]

    def _format_path(self, path: Path) -> str:
        return f"{self._folder.name}/{path.relative_to(self._folder).as_posix()}"


def _find_file(folder: Path, name: str) -> Path:
    for ending in _ENDINGS:
        path = folder / f"{name}{ending}"
        if path.is_file():
            return path
    names = sorted(
        {
            path.relative_to(folder).with_suffix("").as_posix()
            for ending in _ENDINGS
            for path in folder.glob(f"**/*{ending}")
        }
    )
    raise IncludeError(f"there is no file {folder.name}/{name}.yaml{did_you_mean(name, names)}")


def _read_file(path: Path, label: str) -> Any:
    status = path.stat()
    stamp = (status.st_mtime_ns, status.st_size)
    cached = _CACHE.get(path)
    if cached is not None and cached[0] == stamp:
        return cached[1]
    data = load(path.read_bytes(), label)
    _CACHE[path] = (stamp, data)
    return data


def _find_key(data: object, key: str, file: str) -> tuple[Any, tuple[str, ...]]:
    """Return the value under `key`, the key as it stands or a path of keys joined by dots; and that path."""
    if isinstance(data, Mapping) and key in data:
        return data[key], (key,)
    value = data
    for step in key.split("."):
        if not isinstance(value, Mapping):
            raise IncludeError(f"{file} has no '{key}': {format_value(value, 60)} has no keys")
        if step not in value:
            hint = "; leave the file's ending out" if f".{key}" in _ENDINGS else did_you_mean(step, map(str, value))
            raise IncludeError(f"{file} has no key '{step}'{hint}")
        value = value[step]
    return value, tuple(key.split("."))
