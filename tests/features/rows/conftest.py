from __future__ import annotations

from tests.plugin.conftest import project as running_project
from tests.spec.conftest import project

__all__ = ["project", "running_project"]
