"""What the tests of providers share: a local server, and readers of the recorded exchanges."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.replay import Answer, ReplayServer


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


@pytest.fixture
def answer() -> type[Answer]:
    return Answer
