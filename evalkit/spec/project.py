"""Where a project's root is, for calls that don't say."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Lock

_PROJECT_MARKERS = ("pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg", ".git")
_EVALKIT_MARKERS = ("suite.yaml", "mocks")
_lock = Lock()


def find_project_root(file: str | None, root: str | Path | None) -> str:
    """`root`; else the current directory if `file` lies below it; else the folder around it that looks like a root.

    That is the nearest with a project's configuration, or the outermost with a suite.yaml or a mocks folder.
    """
    if root is not None:
        return os.path.abspath(root)
    here = os.getcwd()
    if file is None or file.startswith(here.rstrip(os.sep) + os.sep):
        return here
    folders = [os.fspath(parent) for parent in Path(file).parents]
    for folder in folders:
        if _has_any(folder, _PROJECT_MARKERS):
            return folder
    ours = [folder for folder in folders if _has_any(folder, _EVALKIT_MARKERS)]
    return ours[-1] if ours else folders[0]


def _has_any(folder: str, names: tuple[str, ...]) -> bool:
    return any(os.path.exists(os.path.join(folder, name)) for name in names)


def make_importable(root: str) -> None:
    """Put `root` first on ``sys.path``, unless it is on it: mocks and patches name the project's own Python code."""
    with _lock:
        if root not in sys.path:
            sys.path.insert(0, root)
