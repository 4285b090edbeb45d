"""Projects as texts: one file holds the files of a small project, each under a line ``=== path``, and what is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evalkit.cli.lint import load_lint_options
from evalkit.hosts.lint.report import LintReport, as_text, check_project

EXPECTED = "expected"


@dataclass(frozen=True)
class Project:
    """A project in an empty folder."""

    root: Path

    def write(self, files: dict[str, str]) -> None:
        """A text that begins with ``(latin-1) `` is written in that encoding."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("(latin-1) "):
                path.write_text(text.removeprefix("(latin-1) "), "latin-1")
            else:
                path.write_text(text, "utf-8")

    def lint(self, files: dict[str, str] | None = None, **told: Any) -> LintReport:
        self.write(files or {})
        return check_project(load_lint_options(self.root, **told))

    def found(self, files: dict[str, str] | None = None, **told: Any) -> list[str]:
        """Code and message of each finding."""
        return [f"{finding.rule.code} {finding.message}" for finding in self.lint(files, **told).findings]

    def text(self, files: dict[str, str] | None = None, **told: Any) -> str:
        """The findings as people read them, without the summary."""
        return "\n".join(as_text(self.lint(files, **told)).split("\n")[:-1])

    def read(self, name: str) -> str:
        return (self.root / name).read_text("utf-8")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def unbundled() -> Callable[[Path], dict[str, str]]:
    """Reads a bundle of files."""
    return read_bundle


def read_bundle(bundle: Path) -> dict[str, str]:
    files: dict[str, str] = {}
    for part in bundle.read_text("utf-8").split("=== ")[1:]:
        name, _, text = part.partition("\n")
        files[name] = text
    return files
