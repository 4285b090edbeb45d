"""Every case of the reference suites passes offline, and its cassette holds what it replays and nothing else."""

from __future__ import annotations

import pytest

from tests.suites.suites import SUITES, every_case, passed

# What there is to be said of a case that passes all the same.
TOLD = {
    "cut_off_003": (
        'model turn 1: <function>{"name": "add_to_shopping_list", "parameters": {"items": ["1 l st was not made: '
        "it is not finished",
    ),
    "several_calls_003": (
        'model turn 1: <function>{"name": "order_groceries", "parameters": {"items": ["leeks"]}}</function> was not '
        "made: 'order_groceries' is not declared",
    ),
    "truncated_006": (
        "model turn 1 ended with 'length', and its whole calls were carried out: the reply ended inside a function "
        'call (finish reason \'length\'): scrape_webpage({"urls": ["https://shop.example/toa); the call was not made',
    ),
    "mixed_channels_002": ("model turn 1 called natively and wrote the same as text, which was left",),
    "mixed_channels_003": (
        "model turn 1 called natively and wrote others as text, which were not made: search_recipes",
    ),
}


@every_case
def test_the_case_passes_on_its_own(suite: str, stem: str) -> None:
    _, verdict = passed(suite)(stem)
    assert verdict.reasons == ()
    assert verdict.transcript.cassette == "hand-written"
    assert verdict.transcript.unused_mocks == ()
    assert verdict.transcript.warnings == TOLD.get(stem, ())


@every_case
def test_the_case_uses_every_turn_of_its_cassette(suite: str, stem: str) -> None:
    """A turn that is never replayed was written for another case."""
    _, verdict = passed(suite)(stem)
    assert len(verdict.transcript.turns) == len(SUITES[suite].cassette(stem)["turns"])


@pytest.mark.parametrize("suite", SUITES)
def test_every_cassette_belongs_to_a_case(suite: str) -> None:
    files = SUITES[suite].cassettes.iterdir()
    assert sorted({path.stem.removesuffix(".judge") for path in files}) == SUITES[suite].stems


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_has_at_least_fifteen_cases(suite: str) -> None:
    assert len(SUITES[suite].stems) >= 15
