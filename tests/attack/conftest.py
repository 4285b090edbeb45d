"""The attack suite uses the projects of tests/plugin."""

from __future__ import annotations

from tests.plugin.conftest import project

__all__ = ["project"]
