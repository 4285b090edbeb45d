"""A cluster, and a folder whose cases run in processes of their own."""

from __future__ import annotations

from tests.modes.conftest import cluster, sandbox

__all__ = ["cluster", "sandbox"]
