"""suite.yaml files: found from the root down to a case, read once per process, merged."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from evalkit.errors import Location, Problem
from evalkit.spec.keys import CASE_KEYS, INPUT_KEYS
from evalkit.spec.merging import merge_data, rename_old_mocks
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
_CACHE_SIZE = 1_000


def load_suites(folder: str, root: str) -> Suite:
    """The suites from `root` down to `folder`; of a folder outside of the root, its own alone."""
    stamps = tuple([stamp for path in _list_places(folder, root) if (stamp := _get_stamp(path)) is not None])
    suite = _CHAINS.get(stamps)
    if suite is None:
        if len(_CHAINS) >= _CACHE_SIZE:
            _CHAINS.clear()
            _FILES.clear()
        suite = _CHAINS[stamps] = _merge_chain(stamps, root)
    return suite


@lru_cache(maxsize=256)
def _list_places(folder: str, root: str) -> tuple[str, ...]:
    """Where suites of a case in `folder` may stand, outermost first."""
    paths = [os.path.join(folder, SUITE_FILE)]
    while folder != root and folder.startswith(root.rstrip(os.sep) + os.sep):
        folder = os.path.dirname(folder)
        paths.append(os.path.join(folder, SUITE_FILE))
    return tuple(paths[::-1])


def _get_stamp(path: str) -> _Stamp | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return path, status.st_mtime_ns, status.st_size


def _merge_chain(stamps: tuple[_Stamp, ...], root: str) -> Suite:
    suite = Suite()
    for stamp in stamps:
        layer = Layer(format_file_path(stamp[0], root), stamp[0])
        if stamp not in _FILES:
            _FILES[stamp] = _read_suite(layer)
        data, problems = _FILES[stamp]
        suite = Suite(
            merge_data(suite.data, data),
            (layer, *suite.layers),
            (*suite.folders, Path(stamp[0]).parent),
            (*suite.problems, *problems),
        )
    return suite


def format_file_path(path: str, root: str) -> str:
    """`path` as messages and identities show it: from the root, with slashes; as it is if it lies elsewhere."""
    base = root.rstrip(os.sep) + os.sep
    return (path[len(base) :] if path.startswith(base) else path).replace(os.sep, "/")


def _read_suite(layer: Layer) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    try:
        with open(layer.path or "", "rb") as file:
            content = file.read()
    except OSError as error:
        return {}, (Problem(Location(layer.file), f"can't be read: {error.strerror}"),)
    parsed = read(content, layer.file)
    if parsed.value is None:
        return {}, parsed.problems
    if not isinstance(parsed.value, dict):
        wrong = Problem(Location(layer.file, 1, 1), "a suite is a mapping of keys that its cases share")
        return {}, (*parsed.problems, wrong)
    problems = (*parsed.problems, *_find_misplaced(parsed.value, layer))
    return _keep_shareable(rename_old_mocks(parsed.value)), problems


def _keep_shareable(data: dict[str, Any]) -> dict[str, Any]:
    """`data` without what only a case can have: the suite's problem is not each of its cases' as well."""
    case_input = data.get("input")
    shared = {key: value for key, value in data.items() if key not in CASE_KEYS or CASE_KEYS[key].in_suite}
    if isinstance(case_input, dict):
        inner = {key: value for key, value in case_input.items() if key not in INPUT_KEYS or INPUT_KEYS[key].in_suite}
        shared["input"] = inner
    return shared


def _find_misplaced(data: dict[str, Any], layer: Layer) -> list[Problem]:
    """Keys that only a case can have. Unknown keys are reported with the merged case."""
    source = Source((layer,))
    case_input = data.get("input")
    paths = [(key,) for key in data if key in CASE_KEYS and not CASE_KEYS[key].in_suite]
    inner = (
        [key for key in case_input if key in INPUT_KEYS and not INPUT_KEYS[key].in_suite]
        if isinstance(case_input, dict)
        else []
    )
    shared = "; a suite holds what its cases share"
    return [
        Problem(source.locate(path, key=True), f"'{'.'.join(path)}' belongs in a case{shared}")
        for path in [*paths, *(("input", key) for key in inner)]
    ]
