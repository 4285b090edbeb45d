"""Which commit a run is of, so that runs of different ones are not taken for parts of one whole. git is not called."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_HASH = r"[0-9a-f]{40}|[0-9a-f]{64}"
_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA")  # where the code was unpacked without its repository


def find_commit(root: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the commit that is checked out around `root`, else the one that the CI's environment names, else None."""
    for folder in (root, *root.parents):
        git = folder / ".git"
        if git.exists():
            try:
                return _read_head(_locate_repository(git))
            except OSError:
                break
    return next((environment[name] for name in _VARIABLES if environment.get(name)), None)


def _locate_repository(git: Path) -> Path:
    """Return the repository's folder. A worktree and a submodule have a file that names it."""
    if git.is_dir():
        return git
    return git.parent / git.read_text("utf-8").removeprefix("gitdir:").strip()


def _read_head(folder: Path) -> str | None:
    head = _read_text(folder / "HEAD")
    if not head.startswith("ref:"):
        return head if re.fullmatch(_HASH, head) else None
    name = head.removeprefix("ref:").strip()
    common = folder / "commondir"
    shared = folder / common.read_text("utf-8").strip() if common.is_file() else folder
    for place in (folder, shared):
        if (place / name).is_file():
            return _read_text(place / name)
    file = shared / "packed-refs"
    if file.is_file():
        for line in _read_text(file).splitlines():
            commit, _, reference = line.partition(" ")
            if reference == name:
                return commit
    return None  # a repository without a commit, or one that keeps its references in another way


def _read_text(file: Path) -> str:
    return file.read_text("utf-8", "surrogateescape").strip()  # a branch may have any name
