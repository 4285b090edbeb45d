"""What tests of features share with those of other rooms: a project that runs through pytest, cases
that code makes, verdicts."""

from __future__ import annotations

from tests.plugin.conftest import project
from tests.reports.conftest import swept_verdicts
from tests.ways_in.conftest import make_case, make_module

__all__ = ["make_case", "make_module", "project", "swept_verdicts"]
