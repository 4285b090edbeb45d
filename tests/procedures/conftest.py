"""The suite's cases, each run once, and what a run over a folder of them comes to."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from evalkit.records.verdict import Verdict
from evalkit.stats.accounting import Accounting, account
from tests.suites.suite import Suite, runner

FOLDERS = ("as_found", "migrating", "repaired")


@cache
def verdicts_of(folder: str) -> dict[str, Verdict]:
    """The verdicts of a folder's cases by their stems; all must pass."""
    suite = Suite(f"procedures/{folder}")
    run = runner(suite)
    return {stem: run(stem)[1] for stem in suite.stems}


@pytest.fixture
def verdicts() -> Callable[[str], dict[str, Verdict]]:
    return verdicts_of


@pytest.fixture
def accounting() -> Callable[[str], Accounting]:
    """What the runs of a folder used."""
    return lambda folder: account(verdicts_of(folder).values())
