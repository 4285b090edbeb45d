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
from collections.abc import Generator, Iterator
from contextvars import Context, ContextVar, Token
from typing import Any

import pytest

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
