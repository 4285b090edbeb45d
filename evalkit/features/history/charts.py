"""The history in the HTML report: charts over runs, cases that changed, and the last verdicts of each case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

from evalkit.features.history.history import HistoryRun, describe_span, find_trends, group_changes, propose_quarantines
from evalkit.hosts.reports.api import Redact, format_duration
from evalkit.jsonvalue import JsonDict
from evalkit.records.verdict import ERROR, FAILED, NOT_RUN, PASSED
from evalkit.text.format import cut_at_word, escape_controls, format_case_count, format_dollars

RECENT = 5  # runs that are compared with those before them
_MOST_CASES = 50  # under one heading
_LETTERS = {PASSED: "p", FAILED: "f", ERROR: "e", NOT_RUN: "n"}
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 505, 18, 110  # of a chart's area, in the units of its picture


def build_history(runs: Sequence[HistoryRun], redact: Redact | None = None) -> JsonDict | None:
    """Return what the page says of `runs`, the oldest first; None if there are none.

    `strips` has the last verdicts of each case of the last run, one letter a run, the newest last.
    """
    if not runs:
        return None
    labels = [_build_label(run, redact) for run in runs]
    trends = find_trends(runs, RECENT)
    changes = [
        {
            "title": f"{title[0].upper()}{title[1:]}: {format_case_count(len(group))}",
            "cases": [(escape_controls(trend.case_id), trend.describe()) for trend in group[:_MOST_CASES]],
            "rest": max(len(group) - _MOST_CASES, 0),
        }
        for title, group in group_changes(trends).items()
    ]
    try:
        quarantines = propose_quarantines(trends, runs, date.fromisoformat(runs[-1].started[:10]), RECENT)
    except ValueError:  # a damaged history
        quarantines = {}
    charts = [
        _build_chart("Pass rate", runs, labels, _read_rate, lambda rate: f"{rate:.4g} %"),
        _build_chart("Time of all cases", runs, labels, HistoryRun.sum_elapsed_ms, format_duration),
        _build_chart("Cost", runs, labels, HistoryRun.sum_cost_usd, format_dollars),
    ]
    return {
        "title": f"History: the last {len(runs)} runs" if len(runs) > 1 else "History: its first run",
        "span": describe_span(len(runs), RECENT),
        "charts": [chart for chart in charts if chart is not None],
        "changes": changes,
        "quarantines": [(escape_controls(case_id), lines) for case_id, lines in quarantines.items()][:_MOST_CASES],
        "labels": labels,
        "strips": {escape_controls(case_id): _build_strip(runs, case_id) for case_id in runs[-1].cases},
    }


def _build_label(run: HistoryRun, redact: Redact | None) -> str:
    """Return a run's time, commit and branch, whose name is redacted before it is cut."""
    branch = run.branch or ""
    branch = cut_at_word(branch if redact is None else redact(branch), 40)
    label = " ".join(filter(None, (run.started[:16].replace("T", " "), (run.commit or "")[:8], branch)))
    return escape_controls(label if redact is None else redact(label))


def _read_rate(run: HistoryRun) -> float | None:
    rate = run.compute_rate()
    return None if rate is None else float(rate)


def _build_strip(runs: Sequence[HistoryRun], case_id: str) -> str:
    records = (run.cases.get(case_id) for run in runs)
    return "".join("-" if r is None else "q" if r.quarantined else _LETTERS.get(r.status, "n") for r in records)


def _build_chart(
    title: str,
    runs: Sequence[HistoryRun],
    labels: Sequence[str],
    measure: Callable[[HistoryRun], float | None],
    to_words: Callable[[float], str],
) -> JsonDict | None:
    """Return the points and lines of one chart; None where fewer than two runs have the value.

    A run without it breaks the line. The axis begins at the smallest value, so that small changes are seen.
    """
    values = [measure(run) for run in runs]
    numbers = [value for value in values if value is not None]
    if len(numbers) < 2:
        return None
    low, high = min(numbers), max(numbers)
    step = (_RIGHT - _LEFT) / (len(runs) - 1)
    points: list[JsonDict] = []
    path, pen = "", "M"
    for number, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        x = _LEFT + step * number
        y = _BOTTOM - (_BOTTOM - _TOP) * ((value - low) / (high - low) if high > low else 0.5)
        path, pen = f"{path}{pen}{x:.1f} {y:.1f}", "L"
        points.append({"x": f"{x:.1f}", "y": f"{y:.1f}", "words": f"{labels[number]}: {to_words(value)}"})
    middle = (_TOP + _BOTTOM) // 2
    axis = [(_TOP, to_words(high)), (_BOTTOM, to_words(low))] if high > low else [(middle, to_words(low))]
    last = to_words(numbers[-1])
    extent = f"between {to_words(low)} and {to_words(high)}" if high > low else "the same in each"
    return {
        "title": f"{title}: {last}",
        "words": f"{title} over {len(numbers)} runs, {extent}; in the last {last}",
        "points": points,
        "path": path,
        "axis": axis,
    }
