"""What tests of graders share with those of checks."""

from __future__ import annotations

from tests.checks.conftest import compiled, judged, problems

__all__ = ["compiled", "judged", "problems"]
