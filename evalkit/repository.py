"""The commit and the branch of a project, read from git's files and from the environment of CI systems."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_HASH = r"[0-9a-f]{40}|[0-9a-f]{64}"
_BRANCH_VARIABLES = ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")
_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA")  # where the code was unpacked without its repository


def find_commit(root: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the commit that is checked out around `root`, else the one that the CI's environment names, else None."""
    try:
        if (folder := _find_repository(root)) is not None:
            return _read_head(folder)
    except OSError:  # the environment may know
        pass
    return next((environment[name] for name in _VARIABLES if environment.get(name)), None)


def find_branch(root: Path) -> str | None:
    """Return the branch that the CI's environment names, else the one that is checked out around `root`, else None."""
    named = next((os.environ[name] for name in _BRANCH_VARIABLES if os.environ.get(name)), None)
    if named is not None:
        return named
    try:
        folder = _find_repository(root)
        head = "" if folder is None else _read_text(folder / "HEAD")
    except OSError:
        return None
    return head.removeprefix("ref:").strip().removeprefix("refs/heads/") if head.startswith("ref:") else None


def _find_repository(root: Path) -> Path | None:
    """Find git's folder of the repository around `root`. A worktree and a submodule have a file that names it."""
    git = next((folder / ".git" for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    if git is None or git.is_dir():
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
