"""A project, opened in one way for the command line and the API, as pytest opens it.

Its options are those of [tool.evalkit] and of pytest's configuration (`evalkit_*`), pytest's `pythonpath` and its root
stand on `sys.path`, and the conftest.py files that belong to a case, which register agents, checks and operators, are
imported before the case is loaded. Under pytest, pytest itself has done that by then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.agents.registry import import_conftests
from evalkit.bounds import Bounds, set_bounds
from evalkit.config import build_permissions, read_options, read_python_path
from evalkit.errors import Problem, SpecError, UnknownAgentError, UsageError, format_file_path
from evalkit.records.case import Case, Permissions
from evalkit.records.settings import REQUEST_SETTINGS, Settings
from evalkit.spec.expansion import list_case_files
from evalkit.spec.files import DEFAULT_PATHS, drop_modules, find_cases
from evalkit.spec.load import find_project_root
from evalkit.spec.load import load_case as load_case_file

_SETTINGS = ("deadline_s", "max_iterations", *REQUEST_SETTINGS, "strict_mocks")
_FOLDERS = ("cassettes", "mocks")


class LoadedFile(Struct, frozen=True):
    """A case file, or a row of one: the case, or its problems."""

    id: str
    case: Case | None
    problems: tuple[Problem, ...] = ()


class Project:
    """The project in the folder `root`, offline. `untrusted`: no code runs that data names."""

    def __init__(self, root: Path, *, untrusted: bool = False) -> None:
        self.root = root
        self.python_path = read_python_path(root)
        options = read_options(root)
        set_bounds(options.get("bounds", Bounds()))
        self.paths = drop_modules(options.get("paths", DEFAULT_PATHS))
        self.agent: str | None = options.get("agent")
        values: dict[str, Any] = {name: options[name] for name in _SETTINGS if name in options}
        values |= {name: Path(options[name]) for name in _FOLDERS if name in options}
        permissions = build_permissions(options, root, self.python_path, untrusted=untrusted)
        self.settings = Settings(root=root, permissions=permissions, **values)

    def load_cases(self, paths: Sequence[str]) -> Iterator[LoadedFile]:
        """Yield the cases in `paths`, by default in the project's. Raise UsageError for a path that does not exist."""
        for file in find_cases(paths or self.paths, self.root):
            if file.problem is not None:
                yield LoadedFile(format_file_path(file.path, self.root), None, (file.problem,))
                continue
            for path in list_case_files(os.fspath(file.path), os.fspath(self.root)):
                name = format_file_path(path, self.root)
                try:
                    yield LoadedFile(name, self.load_case(path))
                except SpecError as error:
                    yield LoadedFile(name, None, error.problems)

    def load_case(self, path: str | Path) -> Case:
        """Load a case with what its conftest.py files register. Raise UsageError for one that can't be imported."""
        self.import_conftests(Path(os.path.abspath(path)).parent)
        return load_case_file(path, root=self.root, settings=self.settings)

    def import_conftests(self, folder: Path) -> None:
        """Import the conftest.py files of `folder` and those above it, as pytest would."""
        put_on_path(self.python_path, self.root)
        try:
            import_conftests(folder, self.root)
        except UnknownAgentError as error:
            raise UsageError(str(error)) from error.__cause__

    def import_all_conftests(self) -> None:
        """Import the conftest.py files of all folders of cases."""
        paths = [path for path in self.paths if (self.root / path).exists()]
        for folder in dict.fromkeys([self.root, *(file.path.parent for file in find_cases(paths, self.root))]):
            self.import_conftests(folder)


def put_on_path(python_path: Sequence[Path], root: Path) -> None:
    """Put pytest's `pythonpath` and the project's root first on `sys.path`, unless they are on it."""
    entries = [os.fspath(path) for path in (*python_path, root)]
    sys.path[:0] = [entry for entry in entries if entry not in sys.path]


def load_case(path: str | Path, *, root: str | Path | None = None, settings: Settings | None = None) -> Case:
    """Load the case in the file at `path`, merged with the suite.yaml files from `root` down to it, as pytest loads it.

    `root` is the project's root, from which identities, mocks and suites count: by default `settings.root`, else the
    current directory if the file lies below it, else the folder around the file that looks like a project. The
    project's settings hold where `settings` is not given; its conftest.py files are imported. Raises SpecError with
    every problem of the file and of what it inherits or includes, each with its place.
    """
    given_root = root or (settings.root if settings else None)
    project = Project(Path(find_project_root(os.path.abspath(path), given_root)))
    project.import_conftests(Path(os.path.abspath(path)).parent)
    if settings is None:
        settings = replace(project.settings, root=None)
    elif settings.permissions == Permissions():
        settings = replace(settings, permissions=project.settings.permissions)
    return load_case_file(path, root=given_root, settings=settings)
