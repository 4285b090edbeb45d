"""The sections that features add to the page: escaped, and their charts drawn."""

from __future__ import annotations

from evalkit.hosts.reports.api import CaseList, PageSection, Series
from evalkit.jsonvalue import JsonDict
from evalkit.text.format import escape_controls

_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 505, 18, 110  # of a chart's area, in the units of its picture


def build_section(name: str, section: PageSection) -> JsonDict:
    """Return what the template shows of the section of the feature `name`. No text holds control characters."""
    runs = [escape_controls(run) for run in section.runs]
    charts = [_draw_chart(series, runs) for series in section.charts]
    return {
        "name": name.replace("_", " "),
        "id": f"section-{name}",
        "title": escape_controls(section.title),
        "runs": runs,
        "charts": [chart for chart in charts if chart is not None],
        "lists": [_build_list(cases) for cases in section.lists],
        "strips": {escape_controls(case_id): strip for case_id, strip in section.strips.items()},
    }


def _build_list(listed: CaseList) -> JsonDict:
    return {
        "title": escape_controls(listed.title),
        "note": escape_controls(listed.note),
        "cases": [(escape_controls(case_id), escape_controls(text, keep="\n")) for case_id, text in listed.cases],
        "is_folded": listed.is_folded,
        "rest": listed.rest,
    }


def _draw_chart(series: Series, runs: list[str]) -> JsonDict | None:
    """Return the points and lines of one chart; None where fewer than two runs have the value.

    A run without it breaks the line. The axis begins at the smallest value, so that small changes are seen.
    """
    values, title = series.values, escape_controls(series.title)
    numbers = [value for value in values if value is not None]
    if len(numbers) < 2:
        return None
    low, high = min(numbers), max(numbers)
    step = (_RIGHT - _LEFT) / (len(values) - 1)
    points: list[JsonDict] = []
    path, pen = "", "M"
    for number, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        x = _LEFT + step * number
        y = _BOTTOM - (_BOTTOM - _TOP) * ((value - low) / (high - low) if high > low else 0.5)
        path, pen = f"{path}{pen}{x:.1f} {y:.1f}", "L"
        points.append({"x": f"{x:.1f}", "y": f"{y:.1f}", "words": f"{runs[number]}: {_format(series, value)}"})
    middle = (_TOP + _BOTTOM) // 2
    least, most, last = _format(series, low), _format(series, high), _format(series, numbers[-1])
    axis = [(_TOP, most), (_BOTTOM, least)] if high > low else [(middle, least)]
    extent = f"between {least} and {most}" if high > low else "the same in each"
    return {
        "title": f"{title}: {last}",
        "words": f"{title} over {len(numbers)} runs, {extent}; in the last {last}",
        "points": points,
        "path": path,
        "axis": axis,
    }


def _format(series: Series, value: float) -> str:
    return escape_controls(series.format(value))
