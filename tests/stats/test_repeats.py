"""Repeated runs: pass@k and pass^k without bias, and stopping early without a lie."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.stats.pass_rates import SequentialTest, pass_at_k, pass_power_k, settled
from tests.stats.characteristic import compute_characteristic


@pytest.mark.parametrize(("runs", "passed"), [(5, 0), (5, 1), (5, 3), (5, 5), (6, 4), (1, 1)])
def test_pass_at_k_and_pass_power_k_count_the_draws_of_k_runs(runs: int, passed: int) -> None:
    outcomes = [True] * passed + [False] * (runs - passed)
    for k in range(1, runs + 1):
        draws = list(combinations(outcomes, k))
        assert pass_at_k(runs, passed, k) == Fraction(sum(map(any, draws)), len(draws))
        assert pass_power_k(runs, passed, k) == Fraction(sum(map(all, draws)), len(draws))


def test_pass_at_k_gives_the_published_values() -> None:
    # The worked case of Chen et al. (2021): 1 - prod(1 - k / arange(n - c + 1, n + 1)).
    for n, c, k in [(200, 20, 1), (200, 20, 10), (200, 20, 100), (10, 3, 5)]:
        published = 1 - math.prod(1 - k / i for i in range(n - c + 1, n + 1))
        assert float(pass_at_k(n, c, k)) == pytest.approx(published, rel=1e-12)
    assert pass_power_k(8, 6, 4) == Fraction(15, 70)


@pytest.mark.parametrize("true_rate", [Fraction(1, 10), Fraction(1, 2), Fraction(4, 5)])
def test_both_estimators_are_unbiased(true_rate: Fraction) -> None:
    runs = 6
    for k in (1, 2, 4, 6):
        weights = [math.comb(runs, c) * true_rate**c * (1 - true_rate) ** (runs - c) for c in range(runs + 1)]
        at_least_one = sum(w * pass_at_k(runs, c, k) for c, w in enumerate(weights))
        every_one = sum(w * pass_power_k(runs, c, k) for c, w in enumerate(weights))
        assert at_least_one == 1 - (1 - true_rate) ** k
        assert every_one == true_rate**k


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 2, 4), "k must be between 1 and the number of runs, got k = 4 with 3 runs"),
        ((3, 2, 0), "k must be between 1 and the number of runs, got k = 0 with 3 runs"),
        ((3, 4, 1), "0 <= successes <= trials must hold, got 4 of 3"),
    ],
)
def test_more_draws_than_runs_are_refused(arguments: Any, message: str) -> None:
    for estimator in (pass_at_k, pass_power_k):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            estimator(*arguments)


@pytest.mark.parametrize(("runs", "min_pass"), [(1, 1), (5, 4), (5, 5), (5, 1), (4, 2)])
def test_stopping_when_settled_never_changes_the_outcome(runs: int, min_pass: int) -> None:
    for outcomes in product([True, False], repeat=runs):
        full = "passed" if sum(outcomes) >= min_pass else "failed"
        early = next(
            found
            for made in range(1, runs + 1)
            if (found := settled(runs, min_pass, sum(outcomes[:made]), made - sum(outcomes[:made])))
        )
        assert early == full


def test_the_sequential_test_stops_where_wald_says() -> None:
    test = SequentialTest(good=0.95, bad=0.8)
    assert next(n for n in range(1, 100) if test.decide(n, 0)) == math.ceil(
        math.log(0.05 / 0.95) / math.log(0.8 / 0.95)
    )
    assert test.decide(18, 0) == "passed"
    assert test.decide(17, 0) is None
    assert test.decide(0, 2) is None
    assert test.decide(0, 3) == "failed"


@pytest.mark.parametrize(("alpha", "beta"), [(0.05, 0.05), (0.4, 0.1), (0.1, 0.4), (0.01, 0.3)])
def test_walds_bounds_follow_from_both_error_rates(alpha: float, beta: float) -> None:
    test = SequentialTest(good=0.9, bad=0.6, alpha=alpha, beta=beta)
    passes = math.log(beta / (1 - alpha)) / math.log(0.6 / 0.9)
    failures = math.log((1 - beta) / alpha) / math.log(0.4 / 0.1)
    assert next(n for n in range(100) if test.decide(n, 0)) == math.ceil(passes)
    assert next(n for n in range(100) if test.decide(0, n)) == math.ceil(failures)


def test_a_bound_that_is_reached_exactly_decides() -> None:
    assert SequentialTest(good=0.8, bad=0.4, alpha=0.2, beta=0.4).decide(1, 0) == "passed"
    assert SequentialTest(good=0.8, bad=0.4, alpha=0.2, beta=0.4).decide(0, 1) == "failed"


def test_at_the_last_run_the_likelier_rate_decides() -> None:
    test = SequentialTest(good=0.8, bad=0.2, alpha=0.01, beta=0.01, max_runs=2)
    assert [test.decide(*tally) for tally in [(1, 0), (2, 0), (1, 1), (0, 2)]] == [None, "passed", "passed", "failed"]
    assert SequentialTest(good=0.8, bad=0.2, alpha=0.01, beta=0.01, max_runs=1).decide(0, 1) == "failed"


@pytest.mark.parametrize(("good", "bad"), [(0.95, 0.8), (0.99, 0.9), (1, 0.9), (0.5, 0)])
def test_the_error_rates_are_within_walds_bounds(good: float, bad: float) -> None:
    test = SequentialTest(good=good, bad=bad, alpha=0.05, beta=0.1, max_runs=400)
    wrongly_failed = 1 - compute_characteristic(test, good).pass_probability
    wrongly_passed = compute_characteristic(test, bad).pass_probability
    assert wrongly_failed <= 0.05 / 0.9
    assert wrongly_passed <= 0.1 / 0.95
    assert wrongly_failed + wrongly_passed <= 0.15
    assert compute_characteristic(test, good).expected_runs < 100
    assert compute_characteristic(test, good).truncated_probability < 1e-3


def test_the_characteristic_follows_every_path() -> None:
    test = SequentialTest(good=0.9, bad=0.5, alpha=0.1, beta=0.1, max_runs=6)
    passing, runs_made, truncated = 0.0, 0.0, 0.0
    p = 0.7
    for outcomes in product([True, False], repeat=6):
        weight = math.prod(p if outcome else 1 - p for outcome in outcomes)
        for made in range(1, 7):
            passed = sum(outcomes[:made])
            if outcome := test.decide(passed, made - passed):
                passing += weight * (outcome == "passed")
                runs_made += weight * made
                longer = SequentialTest(good=0.9, bad=0.5, alpha=0.1, beta=0.1, max_runs=7)
                truncated += weight * (made == 6 and longer.decide(passed, made - passed) is None)
                break
    found = compute_characteristic(test, p)
    assert (found.pass_probability, found.expected_runs) == pytest.approx((passing, runs_made))
    assert found.truncated_probability == pytest.approx(truncated)
    assert truncated > 0.1


@given(st.integers(0, 60), st.integers(0, 60))
def test_one_more_pass_never_turns_passed_into_failed(passed: int, failed: int) -> None:
    order = {"failed": 0, None: 1, "passed": 2}
    test = SequentialTest(good="0.95", bad="0.8", max_runs=10**6)
    assert order[test.decide(passed + 1, failed)] >= order[test.decide(passed, failed)]
    assert order[test.decide(passed, failed + 1)] <= order[test.decide(passed, failed)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"good": 0.8, "bad": 0.8}, "the bad rate must be below the good one, got 0.8 and 0.8"),
        ({"good": 95, "bad": 0.8}, "good must be between 0 and 1, got 95"),
        ({"good": 0.9, "bad": 0.8, "alpha": 0}, "alpha must be above 0 and below 0.5, got 0"),
        ({"good": 0.9, "bad": 0.8, "beta": 0.5}, "beta must be above 0 and below 0.5, got 0.5"),
        ({"good": 0.9, "bad": 0.8, "max_runs": 0}, "max_runs must be at least 1, got 0"),
    ],
)
def test_a_test_that_could_not_decide_is_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        SequentialTest(**options)


@settings(deadline=None)
@given(st.integers(1, 60), st.sampled_from([(0.95, 0.8), (0.99, 0.5), (1, 0.9), (0.5, 0)]))
def test_min_pass_is_what_decides_at_the_last_run(max_runs: int, rates: tuple[float, float]) -> None:
    test = SequentialTest(*rates, alpha=1e-30, beta=1e-30, max_runs=max_runs)
    enough = [passed for passed in range(max_runs + 1) if test.decide(passed, max_runs - passed) == "passed"]
    assert enough == list(range(test.min_pass, max_runs + 1))
