"""suite.yaml files: found from the root down to a case, read once per process, merged."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from evalkit.errors import Location, Problem, did_you_mean
from evalkit.spec.case_keys import CASE_KEYS, INPUT_KEYS
from evalkit.spec.case_names import CASE_ENDINGS, is_case_name
from evalkit.spec.source import EXTENDS, ExtendedCase, Layer, Source, merge_data, rename_old_mocks
from evalkit.text.format import describe_type, format_value
from evalkit.yamlfile.parse import ParsedYaml, read

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


# `extends`: a case that is another case, but for what it says itself.
#
# The other case is named by its file: a sibling's name, with or without its ending, or a path from this case's folder or  # noqa: E501
# from the root. What it says itself (and extends in turn) is merged as a suite would be, nearer than all suites; the
# suites around the extending case apply, not those around the other one.

# What is said of one case alone: its label, and that it is not to count for a while.
OWN_KEYS = frozenset({EXTENDS, "scenario_id", "created", "skip", "xfail", "until"})


def extend_case(data: dict[str, Any], layer: Layer, file: str | None, root: str) -> ExtendedCase:
    """`data`, which `layer` holds, with what it extends."""
    chain = _ExtendsChain(root)
    chain.follow(data, layer, file)
    inherited: dict[str, Any] = {}
    for base in reversed(chain.bases):
        inherited = merge_data(inherited, {key: value for key, value in base.items() if key not in OWN_KEYS})
    own_data = {key: value for key, value in rename_old_mocks(data).items() if key != EXTENDS}
    return ExtendedCase(
        _merge_over(inherited, own_data), tuple(chain.layers), tuple(chain.problems), tuple(chain.contents)
    )


def _merge_over(inherited: dict[str, Any], own_data: dict[str, Any]) -> dict[str, Any]:
    """The merged case, which is merged with its suites in turn: a null is kept, to remove what they bring as well."""
    result = merge_data(inherited, own_data)
    return {**result, **{key: None for key, value in own_data.items() if value is None}}


class _ExtendsChain:
    """The cases that a case extends, one after another."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.bases: list[dict[str, Any]] = []
        self.layers: list[Layer] = []
        self.problems: list[Problem] = []
        self.contents: list[bytes] = []

    def follow(self, data: dict[str, Any], layer: Layer, file: str | None) -> None:
        visited = [file]
        while EXTENDS in data:
            target = data[EXTENDS]
            base = self._find(target, layer, file)
            if base is None:
                return
            if base in visited:
                circle = " -> ".join(
                    format_file_path(path, self.root) for path in (*visited[visited.index(base) :], base) if path
                )
                self._add_problem(layer, f"'extends' goes round in a circle: {circle}")
                return
            visited.append(base)
            layer, file = Layer(format_file_path(base, self.root), base), base
            self.layers.append(layer)
            parsed = self._read_base(base)
            self.problems.extend(parsed.problems)
            if not isinstance(parsed.value, dict):
                if not parsed.problems:
                    state = "is empty" if parsed.value is None else f"holds {describe_type(parsed.value)}"
                    self._add_problem(layer, f"another case extends this file, which {state} instead of a case")
                return
            data = rename_old_mocks(parsed.value)
            self.bases.append(data)

    def _add_problem(self, layer: Layer, message: str) -> None:
        self.problems.append(Problem(Source((layer,)).locate((EXTENDS,)), message))

    def _find(self, target: Any, layer: Layer, file: str | None) -> str | None:
        """The file that `named` means, absolute; None, and a problem, if there is none."""
        if not isinstance(target, str) or not target.strip():
            self._add_problem(
                layer, f"'extends' names another case, such as valid_warranty_001, got {format_value(target)}"
            )
            return None
        if file is None:
            self._add_problem(layer, "'extends' needs a file: data without a path has no cases beside it")
            return None
        folder = os.path.dirname(file)
        for start in (folder, self.root):
            for ending in ("", *CASE_ENDINGS):
                path = os.path.normpath(os.path.join(start, target + ending))
                if is_case_name(os.path.basename(path)) and os.path.isfile(path):
                    return path
        hint = did_you_mean(target, _list_siblings(folder, file)) or "; name a case beside this one, or a path to one"
        self._add_problem(layer, f"'extends' names {format_value(target)}, and there is no such case{hint}")
        return None

    def _read_base(self, path: str) -> ParsedYaml:
        status = os.stat(path)
        content, parsed = _read_file(path, status.st_mtime_ns, status.st_size, format_file_path(path, self.root))
        self.contents.append(content)
        return parsed


def _list_siblings(folder: str, file: str) -> list[str]:
    if not os.path.isdir(folder):
        return []
    own_name = os.path.basename(file)
    return sorted(name.partition(".")[0] for name in os.listdir(folder) if is_case_name(name) and name != own_name)


@lru_cache(maxsize=256)
def _read_file(path: str, mtime_ns: int, size: int, shown_as: str) -> tuple[bytes, ParsedYaml]:
    with open(path, "rb") as opened:
        content = opened.read()
    return content, read(content, shown_as)
