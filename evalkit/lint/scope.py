"""Which declarations concern a file: those in its own folder, else in the nearest folder around it that has any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from evalkit.lint.facts.python_files import measure_closeness
from evalkit.lint.facts.records import SUITE, DeclaredFunction

T = TypeVar("T")


class DeclarationScope:
    """Finds declarations by place. Those of suites and cases are left out: they are held against the others."""

    def __init__(self, declared: Iterable[DeclaredFunction]) -> None:
        self._below: dict[str, list[DeclaredFunction]] = {}
        self._by_folder: dict[str, tuple[DeclaredFunction, ...]] = {}
        for function in declared:
            if function.form != SUITE:
                for folder in list_folders(function.file):
                    self._below.setdefault(folder, []).append(function)

    def find_around(self, file: str) -> tuple[DeclaredFunction, ...]:
        """Return the declarations in the nearest folder around `file` that has any below it."""
        folders = list_folders(file)
        functions = self._by_folder.get(folders[0])
        if functions is None:
            nearest = next((folder for folder in folders if folder in self._below), None)
            functions = self._by_folder[folders[0]] = tuple(self._below[nearest]) if nearest is not None else ()
        return functions


def list_folders(file: str) -> list[str]:
    """Return the folders of a path from the root, the innermost first; the root itself is the empty text."""
    parts = file.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(len(parts), -1, -1)]


def is_near(file: str, other_file: str) -> bool:
    """Return whether two files share half of the folders around the first, at least, and one if there are any."""
    depth = file.count("/")
    first, second = file.split("/")[:-1], other_file.split("/")[:-1]
    shared = next((i for i, (mine, theirs) in enumerate(zip(first, second, strict=False)) if mine != theirs), None)
    shared = min(len(first), len(second)) if shared is None else shared
    return shared >= (depth + 1) // 2


def is_beside(file: str, other_file: str) -> bool:
    """Return whether the other file lies in or below the folder of the first, or the one around that."""
    folders = file.split("/")[:-1]
    return other_file.split("/")[: max(0, len(folders) - 1)] == folders[:-1]


def select_closest(candidates: Sequence[T], file: str, file_of: Sequence[str]) -> list[T]:
    """Return the candidates that lie nearest to `file`; `file_of` has the file of each."""
    if not candidates:
        return []
    scores = [measure_closeness(file, other_file) for other_file in file_of]
    return [candidate for candidate, score in zip(candidates, scores, strict=True) if score == max(scores)]
