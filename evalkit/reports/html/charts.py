"""Numbers where looking beats reading: pass rates with their intervals, and how latency and cost are spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from evalkit import stats
from evalkit.model.verdict import FAILED, PASSED
from evalkit.reports.html.data import Row
from evalkit.reports.trace import format_duration
from evalkit.reports.values import cut_at_word

_MOST_CATEGORIES = 30
_BINS = 24


def build_charts(rows: Iterable[Row]) -> dict[str, Any]:
    """Of the cases that count: `categories`, rows with rate and interval in percent; `spreads`, histograms of latency
    and cost. `rows` are those of the list of cases; `width` leaves room for the counts at the end of the rows.
    """
    counted = [row for row in rows if row["status"] != "quarantined"]
    spreads = [
        _build_spread("Latency per case", counted, "ms", format_duration),
        _build_spread("Cost per case", counted, "cost", lambda usd: f"${usd:.4f}"),
    ]
    categories = _build_categories(counted)
    widest = max((len(f"{category['passed']} of {category['total']}") for category in categories), default=0)
    return {
        "categories": categories,
        "width": max(520, 450 + 9 * widest),
        "spreads": [spread for spread in spreads if spread is not None],
    }


def _build_categories(counted: Sequence[Row]) -> list[dict[str, Any]]:
    tallies: dict[str, list[int]] = {}
    for row in counted:
        if row["status"] in (PASSED, FAILED):
            tally = tallies.setdefault(row["category"], [0, 0])
            tally[0] += row["status"] == PASSED
            tally[1] += 1
    worst = sorted(tallies.items(), key=lambda item: (item[1][0] / item[1][1], item[0]))
    return [_build_category(name, passed, total) for name, (passed, total) in worst[:_MOST_CATEGORIES]]


def _build_category(name: str, passed: int, total: int) -> dict[str, Any]:
    low, high = stats.wilson(passed, total)
    return {
        "name": cut_at_word(name, 22) or "(none)",
        "passed": passed,
        "total": total,
        "rate": 100 * passed / total,
        "low": 100 * low,
        "high": 100 * high,
    }


def _build_spread(title: str, rows: Sequence[Row], key: str, to_words: Callable[[float], str]) -> dict[str, Any] | None:
    """A histogram over equal steps, its last one up to the largest value; None if there is nothing to see."""
    values = sorted(row[key] for row in rows if row[key] is not None)
    if not values or values[-1] <= 0:
        return None
    step = values[-1] / _BINS
    counts = [0] * _BINS
    for value in values:
        counts[min(int(value / step), _BINS - 1)] += 1
    middle, late = median(values), values[max(math.ceil(0.95 * len(values)) - 1, 0)]
    words = (
        f"{len(values)} cases; median {to_words(middle)}, 95 % below {to_words(late)}, largest {to_words(values[-1])}"
    )
    return {
        "title": title,
        "bars": [
            {
                "share": 100 * count / max(counts),
                "words": f"{to_words(i * step)} to {to_words((i + 1) * step)}: {count} cases",
            }
            for i, count in enumerate(counts)
        ],
        "most": max(counts),
        "last": to_words(values[-1]),
        "marks": [
            {"name": name, "at": 100 * at / values[-1], "words": to_words(at)} for name, at in _list_marks(middle, late)
        ],
        "words": words,
    }


def _list_marks(middle: float, late: float) -> list[tuple[str, float]]:
    """The values with a line of their own; one line for both where they are one value."""
    return [("median and 95 %", middle)] if middle == late else [("median", middle), ("95 %", late)]
