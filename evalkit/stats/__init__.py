"""Intervals, repeats and comparisons: what numbers of passed and failed runs allow one to say.

Standard library only. Decisions (p-values against a level, likelihood ratios against a bound, numbers of runs) are
made in integers and fractions; intervals are floats. Rates are between 0 and 1. Every formula names its source.
Each name is imported when first used: a gate on a pass rate needs no test of significance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.lazily import imported_on_use

if TYPE_CHECKING:
    from evalkit.stats.accounting import Accounting as Accounting
    from evalkit.stats.accounting import Channels as Channels
    from evalkit.stats.accounting import Multiplier as Multiplier
    from evalkit.stats.accounting import Tally as Tally
    from evalkit.stats.accounting import account as account
    from evalkit.stats.accounting import cost_multiplier as cost_multiplier
    from evalkit.stats.accounting import nearest_rank as nearest_rank
    from evalkit.stats.comparison import MeanChange as MeanChange
    from evalkit.stats.comparison import PairedChange as PairedChange
    from evalkit.stats.comparison import TallyChange as TallyChange
    from evalkit.stats.comparison import classify as classify
    from evalkit.stats.comparison import compare_cases as compare_cases
    from evalkit.stats.comparison import compare_means as compare_means
    from evalkit.stats.comparison import compare_tallies as compare_tallies
    from evalkit.stats.comparison import fisher_worse as fisher_worse
    from evalkit.stats.comparison import holm as holm
    from evalkit.stats.comparison import mcnemar as mcnemar
    from evalkit.stats.comparison import state as state
    from evalkit.stats.intervals import clean_runs_needed as clean_runs_needed
    from evalkit.stats.intervals import clopper_pearson as clopper_pearson
    from evalkit.stats.intervals import small_numbers as small_numbers
    from evalkit.stats.intervals import wilson as wilson
    from evalkit.stats.repeats import Characteristic as Characteristic
    from evalkit.stats.repeats import SequentialTest as SequentialTest
    from evalkit.stats.repeats import early_rate as early_rate
    from evalkit.stats.repeats import mean_pass_at_k as mean_pass_at_k
    from evalkit.stats.repeats import mean_pass_power_k as mean_pass_power_k
    from evalkit.stats.repeats import pass_at_k as pass_at_k
    from evalkit.stats.repeats import pass_power_k as pass_power_k
    from evalkit.stats.repeats import settled as settled

_HOMES = {
    "Accounting": "accounting",
    "Channels": "accounting",
    "Characteristic": "repeats",
    "MeanChange": "comparison",
    "Multiplier": "accounting",
    "PairedChange": "comparison",
    "SequentialTest": "repeats",
    "Tally": "accounting",
    "TallyChange": "comparison",
    "account": "accounting",
    "classify": "comparison",
    "clean_runs_needed": "intervals",
    "clopper_pearson": "intervals",
    "compare_cases": "comparison",
    "compare_means": "comparison",
    "compare_tallies": "comparison",
    "cost_multiplier": "accounting",
    "early_rate": "repeats",
    "fisher_worse": "comparison",
    "holm": "comparison",
    "mcnemar": "comparison",
    "mean_pass_at_k": "repeats",
    "mean_pass_power_k": "repeats",
    "nearest_rank": "accounting",
    "pass_at_k": "repeats",
    "pass_power_k": "repeats",
    "settled": "repeats",
    "small_numbers": "intervals",
    "state": "comparison",
    "wilson": "intervals",
}

__all__ = [*_HOMES]

__getattr__ = imported_on_use(__name__, _HOMES)
