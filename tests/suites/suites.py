"""The reference suites that are held to what every suite must show, and their cases."""

from __future__ import annotations

from functools import cache

import pytest

from tests.suites.suite import Passed, Suite, runner

SUITES = {name: Suite(name) for name in ("warranty", "recipes", "navigation", "scraping")}
CASES = [(suite.name, stem) for suite in SUITES.values() for stem in suite.stems]

every_case = pytest.mark.parametrize(("suite", "stem"), CASES, ids=[stem for _, stem in CASES])


@cache
def passed(suite: str) -> Passed:
    """The runner of a suite's cases; each runs once in a process."""
    return runner(SUITES[suite])
