"""`extends`: a case that is another case, but for what it says itself.

The other case is named by its file: a sibling's name, with or without its ending, or a path from this case's folder or
from the root. What it says itself (and extends in turn) is merged as a suite would be, nearer than all suites; the
suites around the extending case apply, not those around the other one.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from evalkit.errors import Problem, did_you_mean
from evalkit.operators.shown import describe_type, format_value
from evalkit.spec.merging import merge_data, rename_old_mocks
from evalkit.spec.naming import CASE_ENDINGS, is_case_name
from evalkit.spec.source import EXTENDS, ExtendedCase, Layer, Source
from evalkit.spec.suites import format_file_path
from evalkit.yamlfile.builder import ParsedYaml, read

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
