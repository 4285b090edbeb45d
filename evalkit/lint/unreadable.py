"""Python files that this Python can't parse: one finding each, or one for a project that is written for a newer one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from evalkit.errors import Location
from evalkit.lint.finding import Finding
from evalkit.lint.nearby import list_folders

_REQUIRES = re.compile(r"""^requires-python\s*=\s*["'][^"']*?(?:>=|~=|==)\s*3\.(\d+)""", re.MULTILINE)
_EACH = "correct the file, lint with the Python that it is written for, or leave it out with `exclude`"
_ALL = "lint with the Python that the project is written for"


def report_unreadable(problems: Iterable[tuple[Location, str]], root: Path) -> Iterator[Finding]:
    """The findings for files that could not be parsed, `root` being the folder that they are told from."""
    newer: dict[Location, list[Location]] = {}
    for at, message in problems:
        place = _find_newer_python(at.file, root)
        if place is None:
            yield Finding(name="unreadable", location=at, message=message, advice=_EACH)
        else:
            newer.setdefault(place, []).append(at)
    for place, files in newer.items():
        rest = f" and {len(files) - 1} more files" if len(files) > 1 else ""
        yield Finding(
            name="unreadable",
            location=place,
            message=f"the project requires a newer Python than {sys.version_info.major}.{sys.version_info.minor}, "
            f"by which {files[0].file}{rest} can't be read",
            advice=_ALL,
            related=files[0],
        )


def _find_newer_python(file: str, root: Path) -> Location | None:
    """Where the nearest pyproject.toml around a file demands more than the Python that runs here."""
    for folder in list_folders(file):
        path = root / folder / "pyproject.toml"
        if path.is_file():
            text = path.read_text("utf-8", "replace")
            match = _REQUIRES.search(text)
            if match is None or int(match[1]) <= sys.version_info.minor:
                return None
            return Location(
                f"{folder}/pyproject.toml" if folder else "pyproject.toml", text.count("\n", 0, match.start()) + 1, 1
            )
    return None
