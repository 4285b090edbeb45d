"""suite.yaml files: found from the root down to a case, read once per process, merged."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from evalkit.errors import Location, Problem
from evalkit.spec.keys import CASE_KEYS, INPUT_KEYS
from evalkit.spec.merging import merged, with_present_names
from evalkit.spec.source import Layer, Source
from evalkit.yamlfile.builder import read

SUITE_FILE = "suite.yaml"

_Stamp = tuple[str, int, int]


class Suite(Struct, frozen=True):
    """The suites in force in a folder, merged. `layers` are nearest first, `folders` outermost first."""

    data: dict[str, Any] = field(default_factory=dict)
    layers: tuple[Layer, ...] = ()
    folders: tuple[Path, ...] = ()
    problems: tuple[Problem, ...] = ()


_FILES: dict[_Stamp, tuple[dict[str, Any], tuple[Problem, ...]]] = {}
_CHAINS: dict[tuple[_Stamp, ...], Suite] = {}
_REMEMBERED = 1_000


def suites_of(folder: str, root: str) -> Suite:
    """The suites from `root` down to `folder`; of a folder outside of the root, its own alone."""
    stamps = tuple([stamp for path in _places(folder, root) if (stamp := _stamp(path)) is not None])
    known = _CHAINS.get(stamps)
    if known is None:
        if len(_CHAINS) >= _REMEMBERED:
            _CHAINS.clear()
            _FILES.clear()
        known = _CHAINS[stamps] = _chain(stamps, root)
    return known


@lru_cache(maxsize=256)
def _places(folder: str, root: str) -> tuple[str, ...]:
    """Where suites of a case in `folder` may stand, outermost first."""
    found = [os.path.join(folder, SUITE_FILE)]
    while folder != root and folder.startswith(root.rstrip(os.sep) + os.sep):
        folder = os.path.dirname(folder)
        found.append(os.path.join(folder, SUITE_FILE))
    return tuple(found[::-1])


def _stamp(path: str) -> _Stamp | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return path, status.st_mtime_ns, status.st_size


def _chain(stamps: tuple[_Stamp, ...], root: str) -> Suite:
    suite = Suite()
    for stamp in stamps:
        layer = Layer(shown_file(stamp[0], root), stamp[0])
        if stamp not in _FILES:
            _FILES[stamp] = _read(layer)
        data, problems = _FILES[stamp]
        suite = Suite(
            merged(suite.data, data),
            (layer, *suite.layers),
            (*suite.folders, Path(stamp[0]).parent),
            (*suite.problems, *problems),
        )
    return suite


def shown_file(path: str, root: str) -> str:
    """`path` as messages and identities show it: from the root, with slashes; as it is if it lies elsewhere."""
    base = root.rstrip(os.sep) + os.sep
    return (path[len(base) :] if path.startswith(base) else path).replace(os.sep, "/")


def _read(layer: Layer) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    try:
        with open(layer.path or "", "rb") as file:
            content = file.read()
    except OSError as error:
        return {}, (Problem(Location(layer.file), f"can't be read: {error.strerror}"),)
    found = read(content, layer.file)
    if found.value is None:
        return {}, found.problems
    if not isinstance(found.value, dict):
        wrong = Problem(Location(layer.file, 1, 1), "a suite is a mapping of keys that its cases share")
        return {}, (*found.problems, wrong)
    problems = (*found.problems, *_misplaced(found.value, layer))
    return _shareable(with_present_names(found.value)), problems


def _shareable(data: dict[str, Any]) -> dict[str, Any]:
    """`data` without what only a case can have: the suite's problem is not each of its cases' as well."""
    given = data.get("input")
    kept = {key: value for key, value in data.items() if key not in CASE_KEYS or CASE_KEYS[key].in_suite}
    if isinstance(given, dict):
        inner = {key: value for key, value in given.items() if key not in INPUT_KEYS or INPUT_KEYS[key].in_suite}
        kept["input"] = inner
    return kept


def _misplaced(data: dict[str, Any], layer: Layer) -> list[Problem]:
    """Keys that only a case can have. Unknown keys are reported with the merged case."""
    source = Source((layer,))
    given = data.get("input")
    paths = [(key,) for key in data if key in CASE_KEYS and not CASE_KEYS[key].in_suite]
    inner = (
        [key for key in given if key in INPUT_KEYS and not INPUT_KEYS[key].in_suite] if isinstance(given, dict) else []
    )
    shared = "; a suite holds what its cases share"
    return [
        Problem(source.locate(path, key=True), f"'{'.'.join(path)}' belongs in a case{shared}")
        for path in [*paths, *(("input", key) for key in inner)]
    ]
