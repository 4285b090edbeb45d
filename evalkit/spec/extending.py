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
from evalkit.operators.shown import shown, type_shown
from evalkit.spec.merging import merged, with_present_names
from evalkit.spec.naming import CASE_ENDINGS, is_case_name
from evalkit.spec.source import EXTENDS, Extended, Layer, Source
from evalkit.spec.suites import shown_file
from evalkit.yamlfile.builder import Read, read

# What is said of one case alone: its label, and that it is not to count for a while.
OWN_KEYS = frozenset({EXTENDS, "scenario_id", "created", "skip", "xfail", "until"})


def extended(data: dict[str, Any], layer: Layer, file: str | None, root: str) -> Extended:
    """`data`, which `layer` holds, with what it extends."""
    chain = _Chain(root)
    chain.follow(data, layer, file)
    whole: dict[str, Any] = {}
    for base in reversed(chain.bases):
        whole = merged(whole, {key: value for key, value in base.items() if key not in OWN_KEYS})
    own = {key: value for key, value in with_present_names(data).items() if key != EXTENDS}
    return Extended(_over(whole, own), tuple(chain.layers), tuple(chain.problems), tuple(chain.contents))


def _over(whole: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The merged case, which is merged with its suites in turn: a null is kept, to remove what they bring as well."""
    result = merged(whole, own)
    return {**result, **{key: None for key, value in own.items() if value is None}}


class _Chain:
    """The cases that a case extends, one after another."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.bases: list[dict[str, Any]] = []
        self.layers: list[Layer] = []
        self.problems: list[Problem] = []
        self.contents: list[bytes] = []

    def follow(self, data: dict[str, Any], layer: Layer, file: str | None) -> None:
        seen = [file]
        while EXTENDS in data:
            named = data[EXTENDS]
            base = self._find(named, layer, file)
            if base is None:
                return
            if base in seen:
                circle = " -> ".join(shown_file(one, self.root) for one in (*seen[seen.index(base) :], base) if one)
                self._problem(layer, f"'extends' goes round in a circle: {circle}")
                return
            seen.append(base)
            layer, file = Layer(shown_file(base, self.root), base), base
            self.layers.append(layer)
            found = self._read(base)
            self.problems.extend(found.problems)
            if not isinstance(found.value, dict):
                if not found.problems:
                    what = "is empty" if found.value is None else f"holds {type_shown(found.value)}"
                    self._problem(layer, f"another case extends this file, which {what} instead of a case")
                return
            data = with_present_names(found.value)
            self.bases.append(data)

    def _problem(self, layer: Layer, message: str) -> None:
        self.problems.append(Problem(Source((layer,)).locate((EXTENDS,)), message))

    def _find(self, named: Any, layer: Layer, file: str | None) -> str | None:
        """The file that `named` means, absolute; None, and a problem, if there is none."""
        if not isinstance(named, str) or not named.strip():
            self._problem(layer, f"'extends' names another case, such as valid_warranty_001, got {shown(named)}")
            return None
        if file is None:
            self._problem(layer, "'extends' needs a file: data without a path has no cases beside it")
            return None
        folder = os.path.dirname(file)
        for start in (folder, self.root):
            for ending in ("", *CASE_ENDINGS):
                path = os.path.normpath(os.path.join(start, named + ending))
                if is_case_name(os.path.basename(path)) and os.path.isfile(path):
                    return path
        near = did_you_mean(named, _siblings(folder, file)) or "; name a case beside this one, or a path to one"
        self._problem(layer, f"'extends' names {shown(named)}, and there is no such case{near}")
        return None

    def _read(self, path: str) -> Read:
        status = os.stat(path)
        content, found = _file(path, status.st_mtime_ns, status.st_size, shown_file(path, self.root))
        self.contents.append(content)
        return found


def _siblings(folder: str, file: str) -> list[str]:
    if not os.path.isdir(folder):
        return []
    own = os.path.basename(file)
    return sorted(name.partition(".")[0] for name in os.listdir(folder) if is_case_name(name) and name != own)


@lru_cache(maxsize=256)
def _file(path: str, mtime_ns: int, size: int, shown_as: str) -> tuple[bytes, Read]:
    with open(path, "rb") as opened:
        content = opened.read()
    return content, read(content, shown_as)
