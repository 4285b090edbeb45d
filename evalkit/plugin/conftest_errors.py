"""A conftest.py that can't be imported, in a line and not as a traceback of pytest's import.

Agents are registered there. Errors that arise further away, in modules that it imports, keep pytest's traceback.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator
from pathlib import Path

import pytest

import evalkit
from evalkit.errors import UsageError, did_you_mean, format_file_path
from evalkit.plugin.terminal import Crash, set_longrepr
from evalkit.text.format import escape_lines

_PACKAGE = os.path.dirname(evalkit.__file__)


class ConftestError:
    """The line as pytest's longrepr."""

    def __init__(self, place: str, message: str, source: str) -> None:
        path, _, line = place.rpartition(":")
        self._text = escape_lines(f"{place}: {message}" + (f"\n    {source}" if source else ""))
        self.reprcrash = Crash(path, escape_lines(f"{place}: {message}"), int(line))

    def __str__(self) -> str:
        return self._text

    def toterminal(self, tw: pytest.TerminalReporter) -> None:
        """Called by pytest with its terminal writer."""
        tw.write(f"{self}\n")


class ConftestErrors:
    """The hook that shortens the report of a folder whose conftest.py can't be imported."""

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        excinfo = getattr(getattr(report, "call", None), "excinfo", None)
        cause = getattr(excinfo and excinfo.value, "cause", None)
        if report.failed and excinfo is not None and isinstance(cause, BaseException):
            path = Path(getattr(excinfo.value, "path", ""))
            explanation = explain(cause, path, collector.config.rootpath)
            if explanation is not None:
                set_longrepr(report, explanation)
        return report


def explain(cause: BaseException, path: Path, root: Path) -> ConftestError | None:
    """Return the line on what went wrong in the conftest.py at `path`; None if it went wrong elsewhere."""
    name = format_file_path(path, root)
    if isinstance(cause, SyntaxError) and cause.filename == str(path):
        return ConftestError(f"{name}:{cause.lineno or 1}", f"SyntaxError: {cause.msg}", (cause.text or "").strip())
    frames = traceback.extract_tb(cause.__traceback__)
    place = next((index for index in reversed(range(len(frames))) if frames[index].filename == str(path)), None)
    if place is None or not all(frame.filename.startswith(_PACKAGE) for frame in frames[place + 1 :]):
        return None
    message = f"{cause}" if isinstance(cause, UsageError) else f"{type(cause).__name__}: {cause}"
    if isinstance(cause, ModuleNotFoundError) and cause.name:
        modules = [entry.stem for entry in root.iterdir() if entry.is_dir() or entry.suffix == ".py"]
        message += f"; it is neither in {root} nor installed{did_you_mean(cause.name, modules)}"
    return ConftestError(f"{name}:{frames[place].lineno or 1}", message, frames[place].line or "")
