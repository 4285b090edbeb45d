"""Files of mocks, read for `$include`.

`$include: warranty/check_warranty.valid` is the file ``mocks/warranty/check_warranty.yaml``, its key ``valid``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalkit.errors import EvalkitError, did_you_mean
from evalkit.functions.permissions import explain_path
from evalkit.lazy import LazyModule
from evalkit.records.case import Permissions
from evalkit.text.format import format_value
from evalkit.yamlfile.events import read_file
from evalkit.yamlfile.parse import load

if TYPE_CHECKING:
    from evalkit.yamlfile import positions
else:
    positions = LazyModule("evalkit.yamlfile.positions")

_ENDINGS = (".yaml", ".yml", ".json")
_REFERENCE = r"(?P<file>(?:[\w-]+/)*[\w-]+)(?:\.(?P<key>.+))?"
_CACHE: dict[Path, tuple[tuple[int, int], object]] = {}


class IncludeError(EvalkitError):
    """An `$include` that leads nowhere."""

    code = "invalid_case"


class MockFiles(Struct, frozen=True):
    """The `include` of `parse_mocks` for a folder of mock files (YAML or JSON).

    It gives the data that a reference names, raises IncludeError where it names none, and SpecError where the file does
    not load. Files are read once per process and again when they change. No reference leads out of the folder.
    `fill` fills the templates of a row into what is included. Links lead where `permissions` allow it.
    """

    folder: str | Path
    fill: Callable[[Any], object] | None = None
    permissions: Permissions | None = None

    def __call__(self, reference: str) -> object:
        data = self._find(reference)[2]
        return data if self.fill is None else self.fill(data)

    def locate(self, reference: str, inner: tuple[str | int, ...], at_key: bool) -> str:
        """``mocks/warranty/check_warranty.yaml:4:9``, of what lies at `inner` below what `reference` names."""
        path, steps, _ = self._find(reference)
        line, column = positions.read_positions(path.read_bytes()).locate((*steps, *inner), key=at_key)
        return f"{self._format_path(path)}:{line}:{column}"

    def _find(self, reference: str) -> tuple[Path, tuple[str, ...], object]:
        """Return the file that a reference names, the keys to go down in it, and the data there."""
        match = re.fullmatch(_REFERENCE, reference)
        if match is None:
            raise IncludeError(f"{reference!r} names no mock file; write it as 'warranty/check_warranty.valid'")
        folder, name, key = Path(self.folder), match["file"], match["key"]
        candidates = (folder / f"{name}{ending}" for ending in _ENDINGS)
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is None:
            files = (file for ending in _ENDINGS for file in folder.glob(f"**/*{ending}"))
            names = sorted({file.relative_to(folder).with_suffix("").as_posix() for file in files})
            raise IncludeError(f"there is no file {folder.name}/{name}.yaml{did_you_mean(name, names)}")
        if reason := explain_path(path, self.permissions, folder=folder):
            raise IncludeError(f"{self._format_path(path)} is refused: {reason}")
        data = _read_file(path, self._format_path(path))
        if key is None:
            return path, (), data
        value, steps = _find_key(data, key, self._format_path(path))
        return path, steps, value

    def _format_path(self, path: Path) -> str:
        return path.relative_to(Path(self.folder).parent).as_posix()


def _read_file(path: Path, label: str) -> object:
    status = path.stat()
    stamp = (status.st_mtime_ns, status.st_size)
    cached = _CACHE.get(path)
    if cached is not None and cached[0] == stamp:
        return cached[1]
    try:
        content = read_file(path)
    except OSError as error:
        raise IncludeError(f"{label} can't be read: {error.strerror}") from None
    data = load(content, label)
    _CACHE[path] = (stamp, data)
    return data


def _find_key(data: object, key: str, file: str) -> tuple[object, tuple[str, ...]]:
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
