"""Numbers where looking beats reading: pass rates with their intervals, and how latency and cost are spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from evalkit import stats
from evalkit.model.run import Run
from evalkit.model.verdict import FAILED, PASSED, Verdict
from evalkit.reports.hostile import visible
from evalkit.reports.html.data import cost_usd, elapsed_ms
from evalkit.reports.trace import duration_text
from evalkit.reports.values import shortened

_MOST_CATEGORIES = 30
_BINS = 24


def charts(run: Run) -> dict[str, Any]:
    """`categories`: rows with rate and interval in percent; `spreads`: histograms of latency and cost.

    `width` leaves room for the counts at the end of the rows.
    """
    counted = [verdict for verdict in run.verdicts if verdict.quarantined is None]
    found = [
        _spread("Latency per case", counted, elapsed_ms, duration_text),
        _spread("Cost per case", counted, cost_usd, lambda usd: f"${usd:.4f}"),
    ]
    rows = _categories(counted)
    widest = max((len(f"{row['passed']} of {row['total']}") for row in rows), default=0)
    return {
        "categories": rows,
        "width": max(520, 450 + 9 * widest),
        "spreads": [spread for spread in found if spread is not None],
    }


def _categories(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    tallies: dict[str, list[int]] = {}
    for verdict in verdicts:
        if verdict.status in (PASSED, FAILED):
            tally = tallies.setdefault(verdict.category, [0, 0])
            tally[0] += verdict.status == PASSED
            tally[1] += 1
    worst = sorted(tallies.items(), key=lambda item: (item[1][0] / item[1][1], item[0]))
    return [_category(name, passed, total) for name, (passed, total) in worst[:_MOST_CATEGORIES]]


def _category(name: str, passed: int, total: int) -> dict[str, Any]:
    low, high = stats.wilson(passed, total)
    return {
        "name": shortened(visible(name), 22) or "(none)",
        "passed": passed,
        "total": total,
        "rate": 100 * passed / total,
        "low": 100 * low,
        "high": 100 * high,
    }


def _spread(
    title: str, verdicts: Sequence[Verdict], of: Callable[[Verdict], float | None], worded: Callable[[float], str]
) -> dict[str, Any] | None:
    """A histogram over equal steps, its last one up to the largest value; None if there is nothing to see."""
    values = sorted(value for verdict in verdicts if (value := of(verdict)) is not None)
    if not values or values[-1] <= 0:
        return None
    step = values[-1] / _BINS
    counts = [0] * _BINS
    for value in values:
        counts[min(int(value / step), _BINS - 1)] += 1
    middle, late = median(values), values[max(math.ceil(0.95 * len(values)) - 1, 0)]
    words = f"{len(values)} cases; median {worded(middle)}, 95 % below {worded(late)}, largest {worded(values[-1])}"
    return {
        "title": title,
        "bars": [
            {
                "share": 100 * count / max(counts),
                "words": f"{worded(i * step)} to {worded((i + 1) * step)}: {count} cases",
            }
            for i, count in enumerate(counts)
        ],
        "most": max(counts),
        "last": worded(values[-1]),
        "marks": [
            {"name": name, "at": 100 * at / values[-1], "words": worded(at)} for name, at in _marked(middle, late)
        ],
        "words": words,
    }


def _marked(middle: float, late: float) -> list[tuple[str, float]]:
    """The values with a line of their own; one line for both where they are one value."""
    return [("median and 95 %", middle)] if middle == late else [("median", middle), ("95 %", late)]
