"""Log files in an empty folder, and commands in a project."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import desk

__all__ = ["desk"]

WriteLog = Callable[..., Path]


@pytest.fixture
def log(tmp_path: Path) -> WriteLog:
    """Writes records as ``log.jsonl``, a line each."""

    def write(*records: Any) -> Path:
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
        return path

    return write
