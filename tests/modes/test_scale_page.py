"""The plan on the page of scale adds up."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from evalkit import stats

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text("utf-8")


def test_the_program_prints_what_stands_below_it() -> None:
    match = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(match[1], {})
    assert printed.getvalue() == match[2]


@pytest.mark.parametrize(("runs", "points"), [(10**5, "0.12"), (10**6, "0.04"), (10**7, "0.012")])
def test_the_intervals_are_as_wide_as_the_page_says(runs: int, points: str) -> None:
    low, high = stats.wilson(runs * 99 // 100, runs)
    assert f"{100 * (high - low):.{len(points) - 2}f}" == points
    assert points in PAGE


def test_the_script_that_it_names_is_there() -> None:
    assert (Path(__file__).parents[2] / "benchmarks" / "bench_scale.py").is_file()
