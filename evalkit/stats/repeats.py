"""Repeated runs of a case: pass@k, pass^k, and when to stop repeating."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from msgspec import Struct

from evalkit.stats.intervals import Rate, check_counts, parse_rate

PASSED, FAILED = "passed", "failed"


def pass_at_k(runs: int, passed: int, k: int) -> Fraction:
    """The probability that at least one of k runs passes, estimated from `passed` of `runs`, without bias.

    1 - C(runs - passed, k) / C(runs, k): Chen et al., "Evaluating large language models trained on code",
    arXiv:2107.03374 (2021), equation 1. ValueError for more than `runs`: fewer runs say nothing unbiased of k.
    """
    _check(runs, passed, k)
    return 1 - Fraction(math.comb(runs - passed, k), math.comb(runs, k))


def pass_power_k(runs: int, passed: int, k: int) -> Fraction:
    """pass^k, the probability that all of k runs pass, estimated from `passed` of `runs`, without bias.

    C(passed, k) / C(runs, k): Yao et al., "tau-bench: a benchmark for tool-agent-user interaction in real-world
    domains", arXiv:2406.12045 (2024). ValueError for more than `runs`.
    """
    _check(runs, passed, k)
    return Fraction(math.comb(passed, k), math.comb(runs, k))


def _check(runs: int, passed: int, k: int) -> None:
    check_counts(passed, runs)
    if not 1 <= k <= runs:
        raise ValueError(f"k must be between 1 and the number of runs, got k = {k} with {runs} runs")


def mean_pass_at_k(tallies: Iterable[tuple[int, int]], k: int) -> Fraction | None:
    """pass@k of a suite: the mean over the cases, as (runs, passed), that ran k times or more; None if none did."""
    return _compute_mean([pass_at_k(runs, passed, k) for runs, passed in tallies if runs >= k])


def mean_pass_power_k(tallies: Iterable[tuple[int, int]], k: int) -> Fraction | None:
    """pass^k of a suite, as `mean_pass_at_k`."""
    return _compute_mean([pass_power_k(runs, passed, k) for runs, passed in tallies if runs >= k])


def _compute_mean(values: list[Fraction]) -> Fraction | None:
    return sum(values, Fraction(0)) / len(values) if values else None


def settled(runs: int, min_pass: int, passed: int, failed: int) -> str | None:
    """`passed` or `failed` as soon as no further run can change it, else None: curtailed sampling.

    Its error rate against running all of them is zero: a run that is left out could not have changed the outcome.
    """
    if passed >= min_pass:
        return PASSED
    return FAILED if failed > runs - min_pass else None


def early_rate(runs: int, min_pass: int, passed: int, failed: int) -> Fraction | None:
    """The pass rate, estimated without bias from runs that stopped as soon as they were `settled`.

    passed / (passed + failed) is biased then, because the last run is always the one that settles it. That run is
    left out on both sides: Girshick, Mosteller and Savage, "Unbiased estimates for certain binomial sampling
    problems", Annals of Mathematical Statistics 17 (1946). None for runs that have not settled it.
    """
    outcome, total = settled(runs, min_pass, passed, failed), passed + failed
    if outcome is None or not total:
        return None
    if total == 1:
        return Fraction(passed)
    return Fraction(passed - (outcome == PASSED), total - 1)


class Characteristic(Struct, frozen=True):
    """What a sequential test does to an agent with a given true rate. Probabilities in [0, 1]."""

    pass_probability: float
    expected_runs: float
    truncated_probability: float  # that it runs into `max_runs` and decides by what is likelier


class SequentialTest(Struct, frozen=True):
    """Wald's sequential probability ratio test: run on only while it is open whether the agent is good or bad.

    `good` and `bad` are true pass rates that must be told apart, `alpha` the accepted probability of failing a good
    agent, `beta` that of passing a bad one. Wald, "Sequential tests of statistical hypotheses", Annals of
    Mathematical Statistics 16 (1945): the true error rates are at most alpha / (1 - beta) and beta / (1 - alpha), and
    together at most alpha + beta. `max_runs` cuts it off; then the likelier of both is taken, which adds to the
    errors. `characteristic` computes what they really are. A rate between `bad` and `good` may go either way.
    """

    good: Rate
    bad: Rate
    alpha: Rate = 0.05
    beta: Rate = 0.05
    max_runs: int = 100

    def __post_init__(self) -> None:
        if not parse_rate(self.bad, "bad") < parse_rate(self.good, "good"):
            raise ValueError(f"the bad rate must be below the good one, got {self.bad} and {self.good}")
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0 < parse_rate(value, name) < Fraction(1, 2):
                raise ValueError(f"{name} must be above 0 and below 0.5, got {value}")
        if self.max_runs < 1:
            raise ValueError(f"max_runs must be at least 1, got {self.max_runs}")

    def decide(self, passed: int, failed: int) -> str | None:
        """`passed` or `failed` as soon as the runs so far tell the rates apart, else None: one more run."""
        good, bad = (_compute_likelihood(parse_rate(value), passed, failed) for value in (self.good, self.bad))
        alpha, beta = parse_rate(self.alpha), parse_rate(self.beta)
        if bad * alpha >= good * (1 - beta):
            return FAILED
        if bad * (1 - alpha) <= good * beta:
            return PASSED
        if passed + failed < self.max_runs:
            return None
        return PASSED if good >= bad else FAILED

    def characteristic(self, true_rate: Rate) -> Characteristic:
        """How often an agent with this true rate passes, and after how many runs: by following every path."""
        p = float(parse_rate(true_rate, "true_rate"))
        open_paths, passing, expected, truncated = {0: 1.0}, 0.0, 0.0, 0.0  # passed so far: probability
        for run in range(1, self.max_runs + 1):
            after: dict[int, float] = {}
            for passed, probability in open_paths.items():
                expected += probability
                after[passed + 1] = after.get(passed + 1, 0.0) + probability * p
                after[passed] = after.get(passed, 0.0) + probability * (1 - p)
            outcomes = {passed: self.decide(passed, run - passed) for passed in after}
            passing += sum(after[passed] for passed, outcome in outcomes.items() if outcome == PASSED)
            if run == self.max_runs:
                longer = SequentialTest(self.good, self.bad, self.alpha, self.beta, run + 1)
                truncated = sum(after[passed] for passed in after if longer.decide(passed, run - passed) is None)
            open_paths = {passed: after[passed] for passed, outcome in outcomes.items() if outcome is None}
        return Characteristic(passing, expected, truncated)


def _compute_likelihood(p: Fraction, passed: int, failed: int) -> Fraction:
    return p**passed * (1 - p) ** failed
