"""Registers the agents that are Python functions, and skips the cases whose language or package is not installed."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

import pytest

from scenarios.ways_in import desks  # noqa: F401  (importing it registers its agents)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("node") and shutil.which("node") is None:
        pytest.skip("node is not installed")
    if item.get_closest_marker("mcp") and find_spec("mcp") is None:
        pytest.skip("the extra is not installed: pip install 'pytest-evalkit[mcp]'")
