"""Recorded exchanges of public repositories, where they lie beside the checkout."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CORPORA = Path(__file__).parents[3] / "shared" / "corpora"


@pytest.fixture(scope="session")
def corpus() -> Callable[[str], list[dict[str, Any]]]:
    def rows(name: str) -> list[dict[str, Any]]:
        path = CORPORA / f"{name}.jsonl.gz"
        if not path.exists():
            pytest.skip(f"the recorded exchanges ({path.name}) are not on this machine")
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    return rows
