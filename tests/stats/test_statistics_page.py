"""The numbers on the page of statistics are what the functions give."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from evalkit.features.compare.judging import count_needed
from evalkit.spec.case_reader import SEQUENTIAL_TEST
from evalkit.stats.comparison import fisher_worse, mcnemar
from evalkit.stats.pass_rates import SequentialTest, clean_runs_needed, wilson
from tests.stats.characteristic import compute_characteristic

PUBLIC = (
    "Accounting",
    "Channels",
    "MeanChange",
    "Multiplier",
    "PairedChange",
    "SequentialTest",
    "Tally",
    "TallyChange",
    "account",
    "classify",
    "clean_runs_needed",
    "compare_cases",
    "compare_means",
    "compare_tallies",
    "cost_multiplier",
    "fisher_worse",
    "holm",
    "mcnemar",
    "nearest_rank",
    "pass_at_k",
    "pass_power_k",
    "settled",
    "state",
    "wilson",
)
PAGE = " ".join((Path(__file__).parents[2] / "docs" / "statistics.md").read_text(encoding="utf-8").split())


def test_every_public_function_is_explained() -> None:
    results = {"MeanChange", "Multiplier", "PairedChange", "TallyChange", "fisher_worse"}
    assert [name for name in PUBLIC if name not in results and not re.search(rf"\b{name}\b", PAGE)] == []


@pytest.mark.parametrize(
    "claim",
    [
        "true rates from {} % to {} % would".format(*(round(100 * bound, 1) for bound in wilson(118, 120))),
        f"(`clean_runs_needed(0.99)` is {clean_runs_needed(0.99)}.)",
        f"(p = {mcnemar(5, 0)}); six are ({mcnemar(6, 0)})",
        f"show anything (p = {fisher_worse(1, 1, 0, 1)})",
        f"five failures do ({fisher_worse(5, 5, 0, 5)})",
        f"all one way, are more than luck (p = {float(mcnemar(6, 0)):.3f}), 5 are not",
        f"of 20 that differ it takes 15 against 5 (p = {float(mcnemar(5, 15)):.3f})",
        f"With three variants {count_needed(2)} cases must differ one way, with ten {count_needed(9)}.",
    ],
)
def test_a_number_on_the_page_is_right(claim: str) -> None:
    assert claim in PAGE


def test_fourteen_of_twenty_would_not_be_enough() -> None:
    assert mcnemar(6, 14) > Fraction(1, 20) >= mcnemar(5, 15)


def test_the_sequential_example_is_right() -> None:
    test = SequentialTest(good=0.95, bad=0.8)
    assert "a flawless agent is through after 18 runs" in PAGE
    assert (test.decide(17, 0), test.decide(18, 0)) == (None, "passed")


def test_the_clean_runs_are_explained_rightly() -> None:
    assert Fraction(99, 100) ** 298 > Fraction(5, 100) > Fraction(99, 100) ** 299


def test_the_sequential_test_of_a_case_errs_as_the_page_says() -> None:
    test = SequentialTest(**SEQUENTIAL_TEST, max_runs=60)
    good, bad, worse = (compute_characteristic(test, rate) for rate in (0.95, 0.8, 0.6))
    assert (
        f"fails in {100 * (1 - good.pass_probability):.1f} % of the cases and takes {good.expected_runs:.1f} runs on "
        f"average, a bad one (80 %) passes in {100 * bad.pass_probability:.1f} % and takes {bad.expected_runs:.1f}, "
        f"one at 60 % takes {worse.expected_runs:.1f}"
    ) in PAGE
