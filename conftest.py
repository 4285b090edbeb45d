"""The project's own conftest: pytest's tool for testing plugins, for tests/plugin and tests/cli."""

from __future__ import annotations

pytest_plugins = ["pytester"]
