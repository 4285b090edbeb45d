"""Intervals of a pass rate, against scipy and published values."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
from scipy import stats as scipy_stats

from evalkit.stats.pass_rates import clean_runs_needed, wilson

TALLIES = [(0, 1), (1, 1), (0, 5), (5, 5), (1, 10), (5, 10), (9, 10), (99, 100), (118, 120), (500, 1000), (3, 10**6)]


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
@pytest.mark.parametrize(("passed", "runs"), TALLIES)
def test_intervals_agree_with_scipy(passed: int, runs: int, confidence: float) -> None:
    test = scipy_stats.binomtest(passed, runs)
    theirs = test.proportion_ci(confidence, "wilson")
    assert wilson(passed, runs, confidence) == pytest.approx((theirs.low, theirs.high), rel=1e-9, abs=1e-12)


def test_the_usual_confidence_is_computed_as_any_other() -> None:
    for tally in [(0, 7), (3, 7), (7, 7), (990, 1000)]:
        assert wilson(*tally) == pytest.approx(wilson(*tally, confidence=Fraction(19, 20)), rel=1e-14)


def test_wilson_gives_the_published_values() -> None:
    # Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998), table I,
    # method 3.
    assert [
        tuple(round(bound, 4) for bound in wilson(*tally)) for tally in [(81, 263), (15, 148), (0, 20), (1, 29)]
    ] == [
        (0.2553, 0.3662),
        (0.0624, 0.1605),
        (0.0, 0.1611),
        (0.0061, 0.1718),
    ]


def test_the_edges_are_exact_and_nothing_is_known_without_trials() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    for trials in range(1, 100):
        assert wilson(0, trials)[0] == 0.0
        assert wilson(trials, trials)[1] == 1.0
    assert wilson(3, 7) == wilson(3, 7, Fraction(19, 20)) == wilson(3, 7, "0.95")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((5, 4), "0 <= successes <= trials must hold, got 5 of 4"),
        ((-1, 4), "0 <= successes <= trials must hold, got -1 of 4"),
        ((1, 4, 95), "confidence must be between 0 and 1, got 95"),
        ((1, 4, 1), "confidence must be above 0 and below 1, got 1"),
        ((1, 4, 0.0), "confidence must be above 0 and below 1, got 0.0"),
    ],
)
def test_impossible_numbers_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        wilson(*arguments)


NEEDED: list[tuple[Any, Any, int]] = [
    (0.99, 0.95, 299),
    ("0.99", "0.95", 299),
    (0.95, 0.95, 59),
    (0.9, 0.95, 29),
    (0.999, 0.95, 2995),
    (0.99, 0.99, 459),
    (0.5, 0.75, 2),
    (0.1, 0.9, 1),
    (Fraction(1, 10), Fraction(99, 100), 2),
    (0, 0.95, 1),
    (0.1, 0.99999, 5),  # a quotient of logarithms says 6
    (Fraction(1, 2), Fraction(3, 4) + Fraction(1, 10**30), 3),  # and here 2
    (0.999999, 0.95, 2_995_731),
]


@pytest.mark.parametrize(("target", "confidence", "runs"), NEEDED)
def test_so_many_clean_runs_show_a_target_and_one_less_does_not(target: Any, confidence: Any, runs: int) -> None:
    assert clean_runs_needed(target, confidence) == runs
    if runs < 1000 and target:
        exact, doubt = Fraction(str(target)), 1 - Fraction(str(confidence))
        assert exact**runs <= doubt
        assert runs == 1 or exact ** (runs - 1) > doubt


def test_no_number_of_runs_shows_a_rate_of_one() -> None:
    with pytest.raises(ValueError, match="no number of clean runs shows a rate of 1: choose a target below it"):
        clean_runs_needed(1)
    with pytest.raises(ValueError, match="target must be between 0 and 1, got 99"):
        clean_runs_needed(99)
