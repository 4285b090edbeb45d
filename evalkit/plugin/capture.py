"""What an agent prints and logs goes to its own case, although cases overlap: text is routed by context.

pytest captures by phases of the item that is in its protocol; an agent that runs ahead of its turn prints into another
item's phase, or between phases. So the streams that are `sys.stdout` and `sys.stderr` then, pytest's and the process's
own, keep what comes from a case's context for that case. They are not stood in for: pytest swaps them with every phase,
and handlers of logging hold on to them. What has no context (bytes written to ``sys.stdout.buffer``, file descriptors,
processes) goes where it would have gone, to what pytest captures or to the terminal; `stray` tells it to be the run's.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextvars import Context, ContextVar, Token
from typing import Any

import pytest

from evalkit.plugin.collection import CaseItem
from evalkit.text.escape import escape_lines, fit_to_encoding

_KINDS = ("stdout", "stderr", "log")


class CaseOutput:
    """What one case printed and logged."""

    def __init__(self) -> None:
        self._parts: dict[str, list[str]] = {kind: [] for kind in _KINDS}

    def add(self, kind: str, text: str) -> None:
        self._parts[kind].append(text)

    def list_sections(self) -> Iterator[tuple[str, str]]:
        """(kind, text) of what there is."""
        for kind, parts in self._parts.items():
            if parts:
                yield kind, "".join(parts)


_output: ContextVar[CaseOutput | None] = ContextVar("evalkit_output", default=None)


def begin_output(output: CaseOutput) -> Token[CaseOutput | None]:
    """From here on, this context's output belongs to `output`."""
    return _output.set(output)


def get_output(context: Context) -> CaseOutput | None:
    """What `begin_output` was told in `context`."""
    return context.get(_output)


class _CaseLogHandler(logging.Handler):
    """Keeps the records of cases that overlap; pytest's own handlers are told to leave those alone."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        output = _output.get()
        if output is not None:
            output.add("log", self.format(record) + "\n")


def _is_outside_case(record: logging.LogRecord) -> bool:
    return _output.get() is None


class OutputRouting:
    """Routes streams and log handlers when they are first seen, and leaves them as they were at the end."""

    def __init__(self) -> None:
        self._log_handler = _CaseLogHandler()
        self._streams: list[Any] = []
        self._handlers: list[logging.Handler] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        self.begin()
        try:
            return (yield)
        finally:
            logging.getLogger().removeHandler(self._log_handler)
            self._restore()

    def begin(self) -> None:
        """From now on, in a process that pytest runs or in another one."""
        logging.getLogger().addHandler(self._log_handler)
        self._route()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_setup(self) -> None:
        """pytest captures now, and its streams and handlers are the same ones in all phases of all items."""
        self._route()

    def _route(self) -> None:
        for kind in ("stdout", "stderr"):
            stream = getattr(sys, kind)
            if not any(stream is known for known in self._streams) and _route_stream(stream, kind):
                self._streams.append(stream)
        for handler in logging.getLogger().handlers:
            if handler is not self._log_handler and handler not in self._handlers:
                handler.addFilter(_is_outside_case)
                self._handlers.append(handler)

    def _restore(self) -> None:
        for stream in self._streams:
            del stream.write
        for handler in self._handlers:
            handler.removeFilter(_is_outside_case)


def _route_stream(stream: Any, kind: str) -> bool:
    """Let a stream keep text of a case's context for the case. False if it can't be told to."""
    original_write = stream.write

    def write(text: str) -> int:
        output = _output.get()
        if output is None:
            return int(original_write(text))
        output.add(kind, text)
        return len(text)

    try:
        stream.write = write
    except (AttributeError, TypeError):  # no Python object, or one with fixed attributes
        return False
    return True


# Output that can't be told to be one case's: what came past Python's streams while several cases ran.
#
# What is written to file descriptors, by child processes and by code without a context, is captured by pytest for the
# item that is in its protocol, though any case that is under way may have written it. It is the run's, and is shown at
# its end. A case that runs alone keeps such output, as any test does.

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
