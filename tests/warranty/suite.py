"""Where the warranty suite lies, and its files as they are written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import evalkit
from evalkit import yamlfile

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "scenarios" / "warranty"
CASSETTES = ROOT / "mocks" / "cassettes" / "scenarios" / "warranty"
STEMS = sorted(path.stem for path in SUITE.glob("*_[0-9]*.yaml"))
GROUPS = ("in_order", "any_order", "in_parallel")  # the keys of groups of expected calls

# A case by its stem, and the verdict of the run that it passed.
Passed = Callable[[str], tuple[evalkit.Case, evalkit.Verdict]]


def load(path: Path) -> dict[str, Any]:
    """A case file or cassette as plain data."""
    data: dict[str, Any] = yamlfile.load(path.read_bytes(), path.name)
    return data


def load_stem(stem: str) -> dict[str, Any]:
    """A case file as plain data, not merged with its suite."""
    return load(SUITE / f"{stem}.yaml")
