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
    """The hook that leaves folders out if they hold no file that pytest takes for tests."""

    def __init__(self, folders: Sequence[Path], config: pytest.Config) -> None:
        self._folders = frozenset(folders)
        self._patterns = [*config.getini("python_files"), *config.getoption("doctestglob", [])]

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out these folders; others are for other plugins to decide. Their files are listed only here: most runs
        do not come to them."""
        is_left_out = collection_path in self._folders and not _holds_tests(collection_path, self._patterns)
        return True if is_left_out else None


def find_unnamed_folders(config: pytest.Config) -> list[Path]:
    """Find the folders of cases that the command line does not name."""
    if config.getoption("doctestmodules", False):
        return []
    named = [config.invocation_params.dir / str(argument).partition("::")[0] for argument in config.args]
    folders = [config.rootpath / path for path in get_option(config, "paths") or ("scenarios",)]
    return [
        folder
        for folder in folders
        if folder.is_dir() and not any(path == folder or folder in path.parents for path in named)
    ]


def _holds_tests(folder: Path, patterns: Sequence[str]) -> bool:
    files = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return any(fnmatch(os.path.basename(file), os.path.basename(pattern)) for file in files for pattern in patterns)
