"""Which files below some folders are cases, and which look like cases with a wrong name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from evalkit.errors import Location, Problem, UsageError
from evalkit.spec.case_names import CASE_ENDINGS, find_name_problem, is_case_name
from evalkit.spec.suites import SUITE_FILE, format_file_path

SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "cassettes"})  # cassettes bear the names of cases
_SUITE_NEAR_MISS = re.compile(r"suites?\.ya?ml", re.IGNORECASE)
_LOOKS_NUMBERED = re.compile(r"[\s_.-]?[0-9]+[a-z]?\Z")
_CASE_KEY = re.compile(rb"""(?m)(?:^|[{,])[ \t]*["']?(?:expected_output|scenario_id)["']?[ \t]*:""")
_PEEKED_BYTES = 100_000
_FOLDERS_ABOVE = 4


class FoundFile(Struct, frozen=True):
    """A case file (`problem` is None), or a file that looks like one and is not, with the reason."""

    path: Path
    problem: Problem | None = None


def drop_modules(paths: Iterable[str]) -> tuple[str, ...]:
    """Of a project's `paths` those of case files: the others are Python modules whose tests run cases."""
    return tuple(path for path in paths if not path.endswith(".py"))


def find_cases(paths: Iterable[str | Path], root: str | Path) -> Iterator[FoundFile]:
    """The case files in `paths`, files or folders, in the order of their names; each file once.

    Relative paths count from `root`. In a folder, YAML files with other names are left alone unless they hold a case,
    or nothing yet under nearly a case's name; a file named here is a case or a problem. Hidden folders, and folders of
    cassettes, are not entered. UsageError for a path that does not exist; it says if a folder above has it.
    """
    base = os.path.abspath(root)
    yielded: set[str] = set()
    entered: set[str] = set()
    for path in paths:
        start = os.path.normpath(os.path.join(base, path))
        if not os.path.exists(start):
            raise UsageError(f"{path}: no such file or folder{describe_folder_above(path, base)}")
        files = (
            _find_in_folder(start, base, entered) if os.path.isdir(start) else iter([_check_named_file(start, base)])
        )
        for file in files:
            if os.fspath(file.path) not in yielded:
                yielded.add(os.fspath(file.path))
                yield file


def describe_folder_above(path: str | Path, root: str | Path) -> str:
    """Where to start instead, if a folder around `root` has the relative `path`; "" if none has."""
    parents = () if os.path.isabs(path) else Path(root).parents[:_FOLDERS_ABOVE]
    above = next((folder for folder in parents if (folder / path).exists()), None)
    return f"; {above} has one: start there" if above is not None else ""


def _find_in_folder(folder: str, root: str, entered: set[str]) -> Iterator[FoundFile]:
    real = os.path.realpath(folder)
    if real in entered:
        return  # a link in a circle, or a folder that was named twice
    entered.add(real)
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        if entry.is_dir():
            if not entry.name.startswith(".") and entry.name not in SKIPPED_FOLDERS:
                yield from _find_in_folder(entry.path, root, entered)
        elif (file := check_file(entry.path, root)) is not None:
            yield file


def check_file(path: str | Path, root: str | Path) -> FoundFile | None:
    """A file in a folder of cases: a case, one that seems to be meant as a case (with the problem), or None."""
    name = os.path.basename(path)
    if is_case_name(name):
        return FoundFile(Path(path))
    message = _explain_near_miss(name, os.fspath(path))
    if message is None:
        return None
    return FoundFile(Path(path), Problem(Location(format_file_path(os.fspath(path), os.fspath(root))), message))


def _check_named_file(path: str, root: str) -> FoundFile:
    """A file that was named, so that it is meant as a case."""
    message = find_name_problem(os.path.basename(path))
    return FoundFile(Path(path), Problem(Location(format_file_path(path, root)), message) if message else None)


def _explain_near_miss(name: str, path: str) -> str | None:
    """Why a file in a folder of cases is not one, if it seems to be meant as one."""
    if name == SUITE_FILE or name.startswith("."):
        return None
    if _SUITE_NEAR_MISS.fullmatch(name):
        return f"this is not read: the file that a suite's cases share is named {SUITE_FILE}"
    stem, dot, ending = name.lower().rpartition(".")
    is_yaml = dot + ending in CASE_ENDINGS
    if not is_yaml and not _has_case_name(name):
        return None
    content = _read_beginning(path)
    if _CASE_KEY.search(content):
        return f"this is not run, although it holds a case: {find_name_problem(name)}"
    if is_yaml and _LOOKS_NUMBERED.search(stem) and _is_blank(content):
        return f"this is not run: {find_name_problem(name)}"
    return None


def _has_case_name(name: str) -> bool:
    """Whether `name` would be a case's but for its ending: `warranty_001.json`, `warranty_001.yaml.bak`."""
    return is_case_name(name.lower().partition(".")[0] + ".yaml")


def _is_blank(content: bytes) -> bool:
    return all(not line.strip() or line.lstrip().startswith(b"#") for line in content.splitlines())


def _read_beginning(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_PEEKED_BYTES)
    except OSError:
        return b""
