"""The cases that a command is about, and the settings they run under."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from evalkit.config import read_project_table, read_value
from evalkit.errors import Problem, SpecError
from evalkit.model.case import Case
from evalkit.model.settings import Settings
from evalkit.spec.files import drop_modules, find_cases
from evalkit.spec.load import load_case
from evalkit.text.redact import Redactor, find_secrets

_SETTINGS = ("deadline_s", "max_iterations", "temperature", "seed", "strict_mocks")
_FOLDERS = ("cassettes", "mocks")


class LoadedFile(Struct, frozen=True):
    """A case file: the case, or the problems of the file."""

    id: str
    case: Case | None
    problems: tuple[Problem, ...] = ()


class Project:
    """The project around the current folder, by its [tool.evalkit]. It is offline: no model is called."""

    def __init__(self) -> None:
        self.root = Path.cwd()
        table = read_project_table(self.root)
        options = {name: read_value(name, table[name], f"tool.evalkit.{name}") for name in table}
        self.paths = drop_modules(options.get("paths", ("scenarios",)))
        self.agent: str | None = options.get("agent")
        values: dict[str, Any] = {name: options[name] for name in _SETTINGS if name in options}
        values |= {name: Path(options[name]) for name in _FOLDERS if name in options}
        self.settings = Settings(root=self.root, **values)

    def load_cases(self, paths: Sequence[str]) -> Iterator[LoadedFile]:
        """Yield the cases in `paths`, by default in the project's. Raise UsageError for a path that does not exist."""
        for file in find_cases(paths or self.paths, self.root):
            name = file.path.relative_to(self.root) if file.path.is_relative_to(self.root) else file.path
            if file.problem is not None:
                yield LoadedFile(name.as_posix(), None, (file.problem,))
                continue
            try:
                yield LoadedFile(name.as_posix(), load_case(file.path, root=self.root, settings=self.settings))
            except SpecError as error:
                yield LoadedFile(name.as_posix(), None, error.problems)


# What a command must not show or write: the secrets of the environment, and what the project calls one.


def build_redactor(root: Path) -> Redactor:
    """Return a redactor of secret variables, known shapes of tokens, and the `secret_keys` of the project at `root`."""
    table = read_project_table(root)
    keys = read_value("secret_keys", table["secret_keys"], "tool.evalkit.secret_keys") if "secret_keys" in table else ()
    return Redactor(find_secrets(os.environ), keys)


# Arguments and options that several commands take.


def write_output(path: Path, text: str) -> None:
    """Write the file that `-o` names, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", "utf-8")


OUTPUT = click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
