"""What a sequential test really does: its error rates, computed over every path."""

from __future__ import annotations

from msgspec import Struct

from evalkit.stats.pass_rates import PASSED, Rate, SequentialTest, parse_rate


class Characteristic(Struct, frozen=True):
    """Behaviour of a sequential test on an agent with a given true rate. Probabilities in [0, 1]."""

    pass_probability: float
    expected_runs: float
    truncated_probability: float  # that it runs into `max_runs` and decides by what is likelier


def compute_characteristic(test: SequentialTest, true_rate: Rate) -> Characteristic:
    """Compute how often an agent with this true rate passes, and after how many runs, over every path."""
    p = float(parse_rate(true_rate, "true_rate"))
    open_paths, passing, expected, truncated = {0: 1.0}, 0.0, 0.0, 0.0  # passed so far: probability
    for run in range(1, test.max_runs + 1):
        after: dict[int, float] = {}
        for passed, probability in open_paths.items():
            expected += probability
            after[passed + 1] = after.get(passed + 1, 0.0) + probability * p
            after[passed] = after.get(passed, 0.0) + probability * (1 - p)
        outcomes = {passed: test.decide(passed, run - passed) for passed in after}
        passing += sum(after[passed] for passed, outcome in outcomes.items() if outcome == PASSED)
        if run == test.max_runs:
            longer = test.limit_to(run + 1)
            truncated = sum(after[passed] for passed in after if longer.decide(passed, run - passed) is None)
        open_paths = {passed: after[passed] for passed, outcome in outcomes.items() if outcome is None}
    return Characteristic(passing, expected, truncated)
