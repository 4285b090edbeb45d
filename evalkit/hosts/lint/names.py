"""Names that are probably one (other case, an affix such as `tool_`, a slip of a key), and files that are near another.

The declarations that concern a file are those in its own folder, else in the nearest folder around it that has any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import TypeVar

from evalkit.hosts.lint.facts.python_files import measure_closeness
from evalkit.hosts.lint.facts.records import SUITE, DeclaredFunction
from evalkit.records.registry import CONFTEST

T = TypeVar("T")

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Words that people put before or after a function's name when they wrap, version or group it.
_AFFIXES_WORDS = """tool tools function functions func fn call api handler handle handlers run exec execute do impl
    implementation action cmd command async sync wrapper wrapped execution mcp svc service v"""
_AFFIXES = frozenset(_AFFIXES_WORDS.split())
_SPACES = re.compile(r"__|[.:/]")
_ALIKE = 0.85
_SHORTEST = 3  # letters of a name that may have an affix


@lru_cache(maxsize=8192)
def split_words(name: str) -> tuple[str, ...]:
    """Return ``("search", "procedure")`` for ``searchProcedure``, ``search-procedure`` and ``SEARCH_PROCEDURE``."""
    return tuple(word.lower() for word in _WORD.findall(name))


def has_same_words(first: str, second: str) -> bool:
    """Return whether two different names are spelt with the same words."""
    return first != second and bool(split_words(first)) and split_words(first) == split_words(second)


def find_affix(long: str, short: str) -> str | None:
    """Return what `long` has before or after `short`, if that is usual or a namespace: ``tool_``, ``mcp__crm__``."""
    inner, outer = split_words(short), split_words(long)
    extra = len(outer) - len(inner)
    if extra <= 0 or len("".join(inner)) < _SHORTEST or all(word in _AFFIXES for word in inner):
        return None  # of "call" and "call_tool" none is the other with an affix, nor of "f" and "f1"
    parts = _SPACES.split(long)
    for rest, core in ((outer[:extra], outer[extra:]), (outer[-extra:], outer[:-extra])):
        is_usual = all(word in _AFFIXES or word.isdigit() for word in rest)
        if core == inner and (is_usual or (len(parts) > 1 and split_words(parts[-1]) == inner)):
            return _extract_affix(long, short)
    return None


def _extract_affix(long: str, short: str) -> str:
    at = long.lower().find(short.lower())
    if at < 0:
        return "_".join(word for word in split_words(long) if word not in split_words(short))
    return long[:at] or long[at + len(short) :]


def is_related(first: str, second: str) -> bool:
    """Return whether two different names are one but for spelling or an affix."""
    return (
        has_same_words(first, second) or find_affix(first, second) is not None or find_affix(second, first) is not None
    )


def is_handoff(name: str) -> bool:
    """Return whether a function that hands over to another agent is named so by frameworks: ``transfer_to_billing``."""
    return re.match(r"(?:transfer|hand_?off|delegate)_(?:back_)?to_", name) is not None


def is_part(first: str, second: str) -> bool:
    """Return whether a name of two words or more begins or ends the other, as in ``slack_list_channels``."""
    short, long = sorted((split_words(first), split_words(second)), key=len)
    return 1 < len(short) < len(long) and short in (long[: len(short)], long[-len(short) :])


def is_alike(first: str, second: str) -> bool:
    """Return whether two different names are related, or a slip of a key apart."""
    if first == second:
        return False
    return is_related(first, second) or (
        min(len(first), len(second)) > 4 and SequenceMatcher(None, first.lower(), second.lower()).ratio() >= _ALIKE
    )


def find_relative(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is related to `name`; None if there is none, or several that are equally near."""
    related_names = [candidate for candidate in dict.fromkeys(candidates) if is_related(name, candidate)]
    same = [candidate for candidate in related_names if has_same_words(name, candidate)]
    chosen = same or related_names
    return chosen[0] if len(chosen) == 1 else None


def describe_difference(name: str, other_name: str) -> str:
    """Say how two names differ: ``the prefix 'tool_' differs``."""
    if has_same_words(name, other_name):
        return "the spelling differs"
    for long, short in ((name, other_name), (other_name, name)):
        extra = find_affix(long, short)
        if extra is not None:
            return f"the {'prefix' if long.startswith(extra) else 'suffix'} '{extra}' differs"
    if is_part(name, other_name):
        long, short = sorted((name, other_name), key=len, reverse=True)
        kind = "suffix" if split_words(long)[: len(split_words(short))] == split_words(short) else "prefix"
        return f"the {kind} '{_extract_affix(long, short)}' differs"
    return "a few letters differ"


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


def is_conftest(file: str) -> bool:
    """Return whether a file is one of those that pytest imports for their folder."""
    return file.rpartition("/")[2] == CONFTEST


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
