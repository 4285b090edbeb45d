"""Cases that overlap, in one process, in workers, and on machines that share a suite: the projects of tests/plugin."""

from __future__ import annotations

from tests.plugin.conftest import project

__all__ = ["project"]
