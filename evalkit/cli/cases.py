"""The cases that a command is about, and the settings they run under."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalkit.errors import Problem, SpecError
from evalkit.model.case import Case
from evalkit.model.settings import Settings
from evalkit.project import project_table, read_value
from evalkit.spec.discovery import find_cases, without_modules
from evalkit.spec.loading import load_case

_SETTINGS = ("deadline_s", "max_iterations", "temperature", "seed", "strict_mocks")
_FOLDERS = ("cassettes", "mocks")


class Loaded(Struct, frozen=True):
    """A case file: the case, or what is wrong with the file."""

    id: str
    case: Case | None
    problems: tuple[Problem, ...] = ()


class Project:
    """The project around the current folder, by its [tool.evalkit]. Offline: no model is ever asked."""

    def __init__(self) -> None:
        self.root = Path.cwd()
        table = project_table(self.root)
        told = {name: read_value(name, table[name], f"tool.evalkit.{name}") for name in table}
        self.paths = without_modules(told.get("paths", ("scenarios",)))
        self.agent: str | None = told.get("agent")
        values: dict[str, Any] = {name: told[name] for name in _SETTINGS if name in told}
        values |= {name: Path(told[name]) for name in _FOLDERS if name in told}
        self.settings = Settings(root=self.root, **values)

    def cases(self, paths: Sequence[str]) -> Iterator[Loaded]:
        """The cases in `paths`, by default in the project's. UsageError for a path that does not exist."""
        for found in find_cases(paths or self.paths, self.root):
            name = found.path.relative_to(self.root) if found.path.is_relative_to(self.root) else found.path
            if found.problem is not None:
                yield Loaded(name.as_posix(), None, (found.problem,))
                continue
            try:
                yield Loaded(name.as_posix(), load_case(found.path, root=self.root, settings=self.settings))
            except SpecError as error:
                yield Loaded(name.as_posix(), None, error.problems)
