"""Confidence intervals of a pass rate, and how many runs it takes to show one."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

SMALL = 30  # trials below this are called small
_Z_95 = 1.9599639845400536  # the normal quantile of 95 %, which every gate asks for: no `statistics` for it alone
_EXACT_RUNS = 50_000  # up to so many runs a power of a fraction is compared exactly

Rate = float | Fraction | str


def parse_rate(value: Rate, name: str = "rate") -> Fraction:
    """A rate as the decimal that is written: 0.99 is 99/100. ValueError outside [0, 1]."""
    exact = Fraction(repr(value) if isinstance(value, float) else value)
    if not 0 <= exact <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")
    return exact


def check_counts(successes: int, trials: int) -> None:
    """ValueError unless 0 <= successes <= trials."""
    if not 0 <= successes <= trials:
        raise ValueError(f"0 <= successes <= trials must hold, got {successes} of {trials}")


def wilson(successes: int, trials: int, confidence: Rate = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a rate; (0, 1) without trials.

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
    """The exact interval of a rate, never narrower than its confidence; (0, 1) without trials.

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
    """Where a rising function on (0, 1) crosses zero, to the last bit, by halving."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return middle


def compute_tail(successes: int, trials: int, p: float) -> float:
    """P(X >= successes), X binomial with 0 < successes and 0 < p < 1: the regularised incomplete beta function.

    I_p(a, b) with a = successes and b = trials - successes + 1 (DLMF 8.17.5); its continued fraction DLMF 8.17.22.
    """
    a, b = successes, trials - successes + 1
    if p > (a + 1) / (a + b + 2):  # where the fraction converges fast
        return 1 - _compute_beta(b, a, 1 - p)
    return _compute_beta(a, b, p)


def _compute_beta(a: int, b: int, x: float) -> float:
    """I_x(a, b) by its continued fraction, evaluated by Lentz's method as modified by Thompson and Barnett (1986)."""
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    value, c, d, step = 1.0, 1.0, 0.0, 0
    while True:
        term = _compute_term(a, b, x, step)
        d = 1 / (1 + term * d)
        c = 1 + term / c
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            return math.exp(front) * (value - 1) / a
        step += 1


def _compute_term(a: int, b: int, x: float, step: int) -> float:
    half = step // 2
    if not step:
        return 1.0
    if step % 2:
        return -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
    return half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))


def clean_runs_needed(target: Rate, confidence: Rate = 0.95) -> int:
    """How many runs, all of them clean, show a pass rate above `target`: the least n with target^n <= 1 - confidence.

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
    """What few trials do not say, as a sentence for a report; "" from `SMALL` trials on.

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
