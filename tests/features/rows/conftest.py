from __future__ import annotations

from tests.spec.conftest import project

__all__ = ["project"]
