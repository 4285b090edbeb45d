"""Every case of the reference suites passes offline, and its cassette holds what it replays and nothing else."""

from __future__ import annotations

import pytest

from tests.suites.suites import SUITES, every_case, passed


@every_case
def test_the_case_passes_on_its_own(suite: str, stem: str) -> None:
    _, verdict = passed(suite)(stem)
    assert verdict.reasons == ()
    assert verdict.transcript.cassette == "hand-written"
    assert verdict.transcript.unused_mocks == ()
    assert verdict.transcript.warnings == ()


@every_case
def test_the_case_uses_every_turn_of_its_cassette(suite: str, stem: str) -> None:
    """A turn that is never replayed was written for another case."""
    _, verdict = passed(suite)(stem)
    assert len(verdict.transcript.turns) == len(SUITES[suite].cassette(stem)["turns"])


@pytest.mark.parametrize("suite", SUITES)
def test_every_cassette_belongs_to_a_case(suite: str) -> None:
    assert sorted(path.stem for path in SUITES[suite].cassettes.iterdir()) == SUITES[suite].stems


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_has_at_least_fifteen_cases(suite: str) -> None:
    assert len(SUITES[suite].stems) >= 15
