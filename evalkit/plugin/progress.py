"""One line that says how far a long run is, on a terminal: done, passed, rate, and the time that is left.

It is written past pytest's terminal writer, which could not take it back, and is gone before that one writes again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Generator
from typing import Any, TextIO

import pytest

from evalkit.reports.hostile import fit_to_encoding

_PAUSE_S = 0.1  # between two updates of the line


class ProgressLine:
    """Shows the line in place of the letters of cases; letters of other tests stay."""

    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream = stream
        self._total = total
        self._started = self._last_update = time.perf_counter()
        self._done = self._passed = self._width = 0
        self._report: object = None  # the one that is being told

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: object) -> Generator[None, Any, Any]:
        """Cases are counted as ever, and leave no letter."""
        status = yield
        return (status[0], "", status[2]) if report is self._report and status else status

    def count(self, report: object, *, passed: bool) -> None:
        """A case has its verdict, and `report` tells pytest of it."""
        self._report = report
        self._done += 1
        self._passed += passed
        now = time.perf_counter()
        if self._done == self._total:
            self._write("")
        elif now - self._last_update >= _PAUSE_S:
            self._last_update = now
            self._write(format_progress(self._done, self._passed, self._total, now - self._started))

    def _write(self, text: str) -> None:
        columns = shutil.get_terminal_size().columns  # a line that the terminal breaks could not be written over
        line = fit_to_encoding(text, getattr(self._stream, "encoding", None))[: columns - 1]
        self._stream.write("\r" + line.ljust(self._width) + ("" if line else "\r"))
        self._stream.flush()
        self._width = len(line)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._write("")  # the run may have ended early

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        self._write("")


def format_progress(done: int, passed: int, total: int, seconds: float) -> str:
    """``312 of 1,000 · 98.7 % passed · 45 per second · 15 s left``."""
    parts = [f"{done:,} of {total:,}", f"{1000 * passed // done / 10:g} % passed"]
    rate = done / seconds if seconds > 0 else 0.0
    if rate > 0:
        from evalkit.reports.trace import format_duration

        parts.append(f"{rate:.0f} per second" if rate >= 2 else f"{60 * rate:.0f} per minute")
        parts.append(f"{format_duration(1000 * (total - done) / rate)} left")
    return " · ".join(parts)
