"""A project made of a dict of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from evalkit.errors import SpecError
from evalkit.records.case import Case
from evalkit.records.registry import CHECKS
from evalkit.spec.load import load_case


@dataclass(frozen=True)
class Project:
    root: Path

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def load(self, name: str, files: dict[str, str] | None = None) -> Case:
        self.write(files or {})
        return load_case(self.root / name, root=self.root)

    def problems(self, name: str, files: dict[str, str] | None = None) -> list[str]:
        with pytest.raises(SpecError) as caught:
            self.load(name, files)
        return [str(problem) for problem in caught.value.problems]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    return Project(tmp_path)


@pytest.fixture
def own_checks() -> Iterator[Callable[[str], None]]:
    """Registers checks for one test."""
    names: list[str] = []

    def register(name: str) -> None:
        CHECKS.add_unread(name, __file__, None)
        names.append(name)

    yield register
    for name in names:
        CHECKS.remove(name)
