"""Intervals, repeats and comparisons: what numbers of passed and failed runs allow one to say.

Standard library only. Decisions (p-values against a level, likelihood ratios against a bound, numbers of runs) are
made in integers and fractions; intervals are floats. Rates are between 0 and 1. Every formula names its source.
"""

from __future__ import annotations

from evalkit.stats.comparison import (
    MeanChange,
    PairedChange,
    TallyChange,
    classify,
    compare_cases,
    compare_means,
    compare_tallies,
    fisher_worse,
    holm,
    mcnemar,
    state,
)
from evalkit.stats.intervals import clean_runs_needed, clopper_pearson, small_numbers, wilson
from evalkit.stats.repeats import (
    Characteristic,
    SequentialTest,
    early_rate,
    mean_pass_at_k,
    mean_pass_power_k,
    pass_at_k,
    pass_power_k,
    settled,
)

__all__ = [
    "Characteristic",
    "MeanChange",
    "PairedChange",
    "SequentialTest",
    "TallyChange",
    "classify",
    "clean_runs_needed",
    "clopper_pearson",
    "compare_cases",
    "compare_means",
    "compare_tallies",
    "early_rate",
    "fisher_worse",
    "holm",
    "mcnemar",
    "mean_pass_at_k",
    "mean_pass_power_k",
    "pass_at_k",
    "pass_power_k",
    "settled",
    "small_numbers",
    "state",
    "wilson",
]
