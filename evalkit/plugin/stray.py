"""Output that can't be told to be one case's: what came past Python's streams while several cases ran.

What is written to file descriptors, by child processes and by code without a context, is captured by pytest for the
item that is in its protocol, though any case that is under way may have written it. It is the run's, and is shown at
its end. A case that runs alone keeps such output, as any test does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from evalkit.plugin.collection import CaseItem
from evalkit.reports.hostile import escape_lines, fit_to_encoding

UNATTRIBUTED_ATTRIBUTE = "evalkit_stray"  # the attribute of a report that carries it: pairs of stream and text
MAX_CHARACTERS = 200_000  # characters of a stream; of more it is the end that is kept
_STREAMS = {
    f"Captured {stream} {phase}": stream
    for stream in ("stdout", "stderr", "log")
    for phase in ("setup", "call", "teardown")
}

Section = tuple[str, str]


class UnattributedOutputFilter:
    """Takes such output out of the reports of cases, in the process that runs them."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._item: pytest.Item | None = None
        self._sections: list[Section] = []  # sections of the item that were looked at
        self._unattributed: list[Section] = []  # those of them that are not its own

    def filter_report(self, item: CaseItem, report: pytest.TestReport, *, overlaps: bool) -> None:
        """Each report of an item has the sections of the ones before it too."""
        if item is not self._item or report.when == "setup":
            self._item, self._sections, self._unattributed = item, [], []
        new = [section for section in report.sections if section not in self._sections]
        self._sections += new
        if overlaps:
            unattributed = [each for each in new if each[0] in _STREAMS and each not in item.output_sections]
            self._unattributed += unattributed
            if unattributed:
                texts = [(_STREAMS[title], escape_lines(self._redact(text))) for title, text in unattributed]
                setattr(report, UNATTRIBUTED_ATTRIBUTE, texts)
        if self._unattributed:
            report.sections = [section for section in report.sections if section not in self._unattributed]


class UnattributedOutput:
    """Shows it, in the process that keeps the results."""

    def __init__(self, config: pytest.Config) -> None:
        self._showcapture = config.getoption("showcapture", "all")
        self._chars = str(config.getoption("reportchars", ""))
        self._texts: dict[str, deque[str]] = {}
        self._lengths: dict[str, int] = {}

    def collect(self, report: pytest.TestReport) -> None:
        for stream, text in report.__dict__.pop(UNATTRIBUTED_ATTRIBUTE):
            if self._showcapture not in (stream, "all"):
                continue
            texts = self._texts.setdefault(stream, deque())
            texts.append(text[-MAX_CHARACTERS:])
            length = self._lengths.get(stream, 0) + len(texts[-1])
            while length > MAX_CHARACTERS and len(texts) > 1:
                length -= len(texts.popleft())
            self._lengths[stream] = length

    def show(self, reporter: Any) -> None:
        """If there is anything to find out: a test that did not pass, or who asks for output with -rP or -rA."""
        failed = reporter.stats.get("failed") or reporter.stats.get("error")
        if not self._texts or not (failed or set("PA") & set(self._chars)):
            return
        encoding = getattr(reporter, "encoding", None)
        reporter.write_sep("=", "output of no single case")
        hint = "Written past Python's streams while several cases ran; with --evalkit-concurrency 1 it is told apart."
        reporter.write_line(hint)
        for stream, texts in sorted(self._texts.items()):
            reporter.write_sep("-", f"Captured {stream}")
            reporter.write_line(fit_to_encoding("".join(texts).rstrip("\n"), encoding))
