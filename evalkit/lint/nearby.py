"""Which declarations concern a file: those in its own folder, else in the nearest folder around it that has any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from evalkit.lint.facts import SUITE, Declared
from evalkit.lint.pythonfile import closeness

T = TypeVar("T")


class Nearby:
    """Finds declarations by place. Those of suites and cases are left out: they are held against the others."""

    def __init__(self, declared: Iterable[Declared]) -> None:
        self._below: dict[str, list[Declared]] = {}
        self._around: dict[str, tuple[Declared, ...]] = {}
        for function in declared:
            if function.form != SUITE:
                for folder in folders_of(function.file):
                    self._below.setdefault(folder, []).append(function)

    def around(self, file: str) -> tuple[Declared, ...]:
        """All declarations in the nearest folder around `file` that has any below it; none if the project has none."""
        own = folders_of(file)
        found = self._around.get(own[0])
        if found is None:
            nearest = next((folder for folder in own if folder in self._below), None)
            found = self._around[own[0]] = tuple(self._below[nearest]) if nearest is not None else ()
        return found


def folders_of(file: str) -> list[str]:
    """The folders of a path from the root, the innermost first; the root itself is the empty text."""
    parts = file.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(len(parts), -1, -1)]


def is_near(file: str, other: str) -> bool:
    """Whether two files share at least half of the folders around the first, and one of them if there are any."""
    depth = file.count("/")
    first, second = file.split("/")[:-1], other.split("/")[:-1]
    shared = next((i for i, (one, two) in enumerate(zip(first, second, strict=False)) if one != two), None)
    shared = min(len(first), len(second)) if shared is None else shared
    return shared >= (depth + 1) // 2


def is_beside(file: str, other: str) -> bool:
    """Whether the other file lies in or below the folder of the first, or the one around that."""
    folders = file.split("/")[:-1]
    return other.split("/")[: max(0, len(folders) - 1)] == folders[:-1]


def closest(candidates: Sequence[T], file: str, file_of: Sequence[str]) -> list[T]:
    """The candidates that lie nearest to `file`; `file_of` says where each lies."""
    if not candidates:
        return []
    near = [closeness(file, other) for other in file_of]
    return [candidate for candidate, found in zip(candidates, near, strict=True) if found == max(near)]
