"""`$include: warranty/check_warranty.valid`: the file ``mocks/warranty/check_warranty.yaml``, its key ``valid``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalkit.errors import EvalkitError, did_you_mean
from evalkit.operators.shown import shown

_ENDINGS = (".yaml", ".yml", ".json")
_REFERENCE = r"(?P<file>(?:[\w-]+/)*[\w-]+)(?:\.(?P<key>.+))?"
_READ: dict[Path, tuple[tuple[int, int], Any]] = {}


class IncludeError(EvalkitError):
    """An `$include` that leads nowhere."""

    code = "invalid_case"


def mock_files(folder: Path) -> MockFiles:
    """The `include` callable of `parse_mocks` for a folder of mock files (YAML or JSON).

    It gives the data that a reference names, raises IncludeError where it names none, and SpecError where the file does
    not load. Files are read once per process and again when they change. No reference leads out of the folder.
    """
    return MockFiles(folder)


class MockFiles:
    """See `mock_files`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, reference: str) -> Any:
        path, key = self._named(reference)
        data = _read(path, self._shown(path))
        return data if key is None else _at(data, key, self._shown(path))[0]

    def locate(self, reference: str, inner: tuple[str | int, ...], at_key: bool) -> str:
        """``mocks/warranty/check_warranty.yaml:4:9``, of what lies at `inner` below what `reference` names."""
        from evalkit.yamlfile.places import positions

        path, key = self._named(reference)
        data = _read(path, self._shown(path))
        steps = () if key is None else _at(data, key, self._shown(path))[1]
        line, column = positions(path.read_bytes()).locate((*steps, *inner), key=at_key)
        return f"{self._shown(path)}:{line}:{column}"

    def _named(self, reference: str) -> tuple[Path, str | None]:
        match = re.fullmatch(_REFERENCE, reference)
        if match is None:
            raise IncludeError(f"{reference!r} names no mock file; write it as 'warranty/check_warranty.valid'")
        return _find(self._folder, match["file"]), match["key"]

    def _shown(self, path: Path) -> str:
        return f"{self._folder.name}/{path.relative_to(self._folder).as_posix()}"


def _find(folder: Path, name: str) -> Path:
    for ending in _ENDINGS:
        path = folder / f"{name}{ending}"
        if path.is_file():
            return path
    known = sorted({_name(path, folder) for ending in _ENDINGS for path in folder.glob(f"**/*{ending}")})
    raise IncludeError(f"there is no file {folder.name}/{name}.yaml{did_you_mean(name, known)}")


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).with_suffix("").as_posix()


def _read(path: Path, shown_as: str) -> Any:
    from evalkit.yamlfile.builder import load

    status = path.stat()
    stamp = (status.st_mtime_ns, status.st_size)
    known = _READ.get(path)
    if known is not None and known[0] == stamp:
        return known[1]
    data = load(path.read_bytes(), shown_as)
    _READ[path] = (stamp, data)
    return data


def _at(data: Any, key: str, file: str) -> tuple[Any, tuple[str, ...]]:
    """The value under `key`, the key as it stands or a path of keys joined by dots; and that path."""
    if isinstance(data, Mapping) and key in data:
        return data[key], (key,)
    found = data
    for step in key.split("."):
        if not isinstance(found, Mapping):
            raise IncludeError(f"{file} has no '{key}': {shown(found, 60)} has no keys")
        if step not in found:
            hint = "; leave the file's ending out" if f".{key}" in _ENDINGS else did_you_mean(step, map(str, found))
            raise IncludeError(f"{file} has no key '{step}'{hint}")
        found = found[step]
    return found, tuple(key.split("."))
