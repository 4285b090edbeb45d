"""Folders of cases in a pytest run without ``--evalkit``: pytest need not look into those that hold no tests.

It would import their conftest.py files, which may need what only a run of cases has.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest

from evalkit.plugin.options import get_option


class IgnoredFolders:
    """The hook that leaves folders out."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = frozenset(folders)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out these folders; others are for other plugins to decide."""
        return True if collection_path in self._folders else None


def find_ignorable_folders(config: pytest.Config) -> list[Path]:
    """Find the folders of cases without a file that pytest takes for tests, and that the command line does not name."""
    if config.getoption("doctestmodules", False):
        return []
    patterns = [*config.getini("python_files"), *config.getoption("doctestglob", [])]
    named = [config.invocation_params.dir / str(argument).partition("::")[0] for argument in config.args]
    folders = [config.rootpath / path for path in get_option(config, "paths") or ("scenarios",)]
    return [
        folder
        for folder in folders
        if folder.is_dir()
        and not any(path == folder or folder in path.parents for path in named)
        and not _holds_tests(folder, patterns)
    ]


def _holds_tests(folder: Path, patterns: Sequence[str]) -> bool:
    files = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return any(fnmatch(os.path.basename(file), os.path.basename(pattern)) for file in files for pattern in patterns)
