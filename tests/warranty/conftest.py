"""What the tests of the warranty suite share: its cases, each run once."""

from __future__ import annotations

import pytest

import evalkit
from evalkit.pipeline import run_case
from evalkit.spec import load_case
from tests.warranty.suite import ROOT, SUITE, Passed


@pytest.fixture(scope="session")
def settings() -> evalkit.Settings:
    """Offline, with the suite's own mocks and cassettes."""
    return evalkit.Settings(root=ROOT)


@pytest.fixture(scope="session")
def passed(settings: evalkit.Settings) -> Passed:
    """A case by its stem, and the verdict of one run of it, which must have passed. Each case runs once."""
    ran: dict[str, tuple[evalkit.Case, evalkit.Verdict]] = {}

    def run(stem: str) -> tuple[evalkit.Case, evalkit.Verdict]:
        if stem not in ran:
            case = load_case(SUITE / f"{stem}.yaml", root=ROOT)
            ran[stem] = case, run_case(case, settings=settings)
        case, verdict = ran[stem]
        assert verdict.status == "passed", [str(reason) for reason in verdict.reasons]
        return case, verdict

    return run
