"""Confidence intervals of a pass rate, and how many runs it takes to show one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

SMALL = 30  # trials below this are called small
_Z_95 = 1.9599639845400536  # the normal quantile of 95 %, which every gate asks for: no `statistics` for it alone
_EXACT_RUNS = 50_000  # up to so many runs a power of a fraction is compared exactly

Rate = float | Fraction | str


def parse_rate(value: Rate, name: str = "rate") -> Fraction:
    """Return a rate as the decimal that is written: 0.99 is 99/100. ValueError outside [0, 1]."""
    exact = Fraction(repr(value) if isinstance(value, float) else value)
    if not 0 <= exact <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")
    return exact


def check_counts(successes: int, trials: int) -> None:
    """Raise ValueError unless 0 <= successes <= trials."""
    if not 0 <= successes <= trials:
        raise ValueError(f"0 <= successes <= trials must hold, got {successes} of {trials}")


def wilson(successes: int, trials: int, confidence: Rate = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a rate; (0, 1) without trials.

    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927). Recommended for
    small numbers by Brown, Cai and DasGupta, "Interval estimation for a binomial proportion", Statistical
    Science 16 (2001).
    """
    check_counts(successes, trials)
    if not trials:
        return 0.0, 1.0
    z = _Z_95 if confidence == 0.95 else _compute_quantile(confidence)
    observed, square = successes / trials, z * z / trials
    centre = (observed + square / 2) / (1 + square)
    reach = z * math.sqrt(observed * (1 - observed) / trials + square / (4 * trials)) / (1 + square)
    # At the edges the formula gives 0 and 1 exactly, which rounding would miss.
    return (max(0.0, centre - reach) if successes else 0.0), (min(1.0, centre + reach) if successes < trials else 1.0)


def clopper_pearson(successes: int, trials: int, confidence: Rate = 0.95) -> tuple[float, float]:
    """Return the exact interval of a rate, never narrower than its confidence; (0, 1) without trials.

    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
    Biometrika 26 (1934).
    """
    check_counts(successes, trials)
    tail = float(1 - _parse_confidence(confidence)) / 2
    low, high = 0.0, 1.0
    if successes:
        low = _find_root(lambda p: compute_tail(successes, trials, p) - tail)
    if successes < trials:
        high = _find_root(lambda p: compute_tail(successes + 1, trials, p) - (1 - tail))
    return low, high


def _compute_quantile(confidence: Rate) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + float(_parse_confidence(confidence))) / 2)


def _parse_confidence(value: Rate) -> Fraction:
    exact = parse_rate(value, "confidence")
    if exact in (0, 1):
        raise ValueError(f"confidence must be above 0 and below 1, got {value}")
    return exact


def _find_root(rising: Callable[[float], float]) -> float:
    """Find where a rising function on (0, 1) crosses zero, to the last bit, by halving."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return middle


def compute_tail(successes: int, trials: int, p: float) -> float:
    """Return P(X >= successes), X binomial with 0 < successes and 0 < p < 1: the regularised incomplete beta function.

    I_p(a, b) with a = successes and b = trials - successes + 1 (DLMF 8.17.5); its continued fraction DLMF 8.17.22.
    """
    a, b = successes, trials - successes + 1
    if p > (a + 1) / (a + b + 2):  # where the fraction converges fast
        return 1 - _compute_beta(b, a, 1 - p)
    return _compute_beta(a, b, p)


def _compute_beta(a: int, b: int, x: float) -> float:
    """Compute I_x(a, b) by its continued fraction: Lentz's method as modified by Thompson and Barnett (1986)."""
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    value, c, d, step = 1.0, 1.0, 0.0, 0
    while True:
        half = step // 2
        if not step:
            term = 1.0
        elif step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        d = 1 / (1 + term * d)
        c = 1 + term / c
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            return math.exp(front) * (value - 1) / a
        step += 1


def clean_runs_needed(target: Rate, confidence: Rate = 0.95) -> int:
    """Return how many clean runs show a pass rate above `target`: the least n with target^n <= 1 - confidence.

    A true rate of `target` or less would give so many clean runs with a probability of at most 1 - confidence. 299 for
    99 % at 95 %. For 95 % about 3 / (1 - target): the "rule of three" (Hanley and Lippman-Hand, JAMA 249, 1983).
    ValueError for a target of 1, which no number of runs shows.
    """
    exact_target, doubt = parse_rate(target, "target"), 1 - _parse_confidence(confidence)
    if exact_target == 1:
        raise ValueError("no number of clean runs shows a rate of 1: choose a target below it")
    if exact_target == 0:
        return 1
    needed = math.ceil(math.log(doubt) / math.log(exact_target))
    if needed > _EXACT_RUNS:
        return needed
    # The quotient of logarithms may be off by rounding where it is nearly whole; powers of fractions are not.
    while exact_target**needed > doubt:
        needed += 1
    while needed > 1 and exact_target ** (needed - 1) <= doubt:
        needed -= 1
    return needed


def small_numbers(successes: int, trials: int, noun: str = "run") -> str:
    """Return a sentence for a report on how little few trials say; "" from `SMALL` trials on.

    ``only 5 runs: 5 passed is compatible with true rates from 56.6 % to 100 % (95 % Wilson interval)``
    """
    check_counts(successes, trials)
    if trials >= SMALL:
        return ""
    if not trials:
        return f"no {noun}s: nothing is known of the rate"
    low, high = (f"{100 * bound:.3g} %" for bound in wilson(successes, trials))
    many = f"{trials} {noun}{'s' if trials > 1 else ''}"
    return f"only {many}: {successes} passed is compatible with true rates from {low} to {high} (95 % Wilson interval)"


# Repeated runs of a case: pass@k, pass^k, and when to stop repeating.

PASSED, FAILED = "passed", "failed"


def pass_at_k(runs: int, passed: int, k: int) -> Fraction:
    """Return the probability that at least one of k runs passes, estimated from `passed` of `runs`, without bias.

    1 - C(runs - passed, k) / C(runs, k): Chen et al., "Evaluating large language models trained on code",
    arXiv:2107.03374 (2021), equation 1. ValueError for more than `runs`: fewer runs say nothing unbiased of k.
    """
    _check(runs, passed, k)
    return 1 - Fraction(math.comb(runs - passed, k), math.comb(runs, k))


def pass_power_k(runs: int, passed: int, k: int) -> Fraction:
    """Return pass^k, the probability that all of k runs pass, estimated from `passed` of `runs`, without bias.

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
    """Return pass@k of a suite: the mean over its cases, as (runs, passed).

    None without cases, and if one ran less often than k times: those that stop early are not like the others, and the
    mean over the others would be biased.
    """
    return _compute_mean(pass_at_k, tallies, k)


def mean_pass_power_k(tallies: Iterable[tuple[int, int]], k: int) -> Fraction | None:
    """Return pass^k of a suite, like `mean_pass_at_k`."""
    return _compute_mean(pass_power_k, tallies, k)


def _compute_mean(
    estimate: Callable[[int, int, int], Fraction], tallies: Iterable[tuple[int, int]], k: int
) -> Fraction | None:
    cases = list(tallies)
    if not cases or any(runs < k for runs, _ in cases):
        return None
    return sum((estimate(runs, passed, k) for runs, passed in cases), Fraction(0)) / len(cases)


def settled(runs: int, min_pass: int, passed: int, failed: int) -> str | None:
    """Return `passed` or `failed` as soon as no further run can change it, else None: curtailed sampling.

    Its error rate against running all of them is zero: a run that is left out could not have changed the outcome.
    """
    if passed >= min_pass:
        return PASSED
    return FAILED if failed > runs - min_pass else None


def early_rate(runs: int, min_pass: int, passed: int, failed: int) -> Fraction | None:
    """Return the pass rate, estimated without bias from runs that stopped as soon as they were `settled`.

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
    """Behaviour of a sequential test on an agent with a given true rate. Probabilities in [0, 1]."""

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
        """Return `passed` or `failed` if the runs so far tell the rates apart, None if another run is needed."""
        good, bad = (p**passed * (1 - p) ** failed for p in map(parse_rate, (self.good, self.bad)))
        alpha, beta = parse_rate(self.alpha), parse_rate(self.beta)
        if bad * alpha >= good * (1 - beta):
            return FAILED
        if bad * (1 - alpha) <= good * beta:
            return PASSED
        if passed + failed < self.max_runs:
            return None
        return PASSED if good >= bad else FAILED

    def limit_to(self, runs: int) -> SequentialTest:
        """Return the test with `runs` as its `max_runs`."""
        return replace(self, max_runs=runs)

    @property
    def min_pass(self) -> int:
        """How many of `max_runs` must pass, where no run decides earlier: from there on the good rate is likelier."""
        good, bad = float(parse_rate(self.good)), float(parse_rate(self.bad))
        if not bad:
            return 1
        if good == 1:
            return self.max_runs
        lost = math.log((1 - bad) / (1 - good))  # by a failure, in the logarithm of the ratio of likelihoods
        return math.ceil(self.max_runs * lost / (lost + math.log(good / bad)))

    def characteristic(self, true_rate: Rate) -> Characteristic:
        """Compute how often an agent with this true rate passes, and after how many runs, over every path."""
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
                longer = self.limit_to(run + 1)
                truncated = sum(after[passed] for passed in after if longer.decide(passed, run - passed) is None)
            open_paths = {passed: after[passed] for passed, outcome in outcomes.items() if outcome is None}
        return Characteristic(passing, expected, truncated)
