"""What the tests of providers share: a local server, and readers of the recorded exchanges."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.replay import Answer, ReplayServer

CORPORA = Path(__file__).parents[2].parent / "shared" / "corpora"


@pytest.fixture(scope="module")
def server() -> Iterator[ReplayServer]:
    running = ReplayServer()
    yield running
    running.close()


@pytest.fixture
def replay(server: ReplayServer) -> ReplayServer:
    server.answers.clear()
    server.received.clear()
    return server


@pytest.fixture(scope="session")
def corpus() -> Callable[[str], list[dict[str, Any]]]:
    def rows(name: str) -> list[dict[str, Any]]:
        path = CORPORA / f"{name}.jsonl.gz"
        if not path.exists():
            pytest.skip(f"the recorded exchanges ({path.name}) are not on this machine")
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    return rows


@pytest.fixture
def answer() -> type[Answer]:
    return Answer
