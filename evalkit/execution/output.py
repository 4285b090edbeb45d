"""Output of cases that overlap: text that an agent prints and logs is routed to its case by context.

The streams that are `sys.stdout` and `sys.stderr`, pytest's and the process's own, keep text that comes from a case's
context for that case. They are not replaced: pytest swaps them with every phase of a test, and handlers of logging hold
on to them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextvars import Context, ContextVar, Token
from typing import Any

KINDS = ("stdout", "stderr", "log")


class CaseOutput:
    """The printed and logged text of one case."""

    def __init__(self) -> None:
        self._parts: dict[str, list[str]] = {kind: [] for kind in KINDS}

    def add(self, kind: str, text: str) -> None:
        self._parts[kind].append(text)

    def list_sections(self) -> Iterator[tuple[str, str]]:
        """Yield (kind, text) of each kind that has any."""
        for kind, parts in self._parts.items():
            if parts:
                yield kind, "".join(parts)


_output: ContextVar[CaseOutput | None] = ContextVar("evalkit_output", default=None)


def begin_output(output: CaseOutput) -> Token[CaseOutput | None]:
    """Route the output of this context to `output` from here on."""
    return _output.set(output)


def get_output(context: Context) -> CaseOutput | None:
    """Return the argument of `begin_output` in `context`."""
    return context.get(_output)


class _CaseLogHandler(logging.Handler):
    """A handler of the log records of cases that overlap; pytest's own handlers get a filter against those."""

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
    """The routing of streams and log handlers, from when they first appear until it ends."""

    def __init__(self) -> None:
        self._log_handler = _CaseLogHandler()
        self._streams: dict[int, Any] = {}  # by id
        self._handlers: list[logging.Handler] = []

    def begin(self) -> None:
        """Route from now on."""
        logging.getLogger().addHandler(self._log_handler)
        self.route()

    def route(self) -> None:
        """Route the streams and handlers that are there now, too."""
        for kind in ("stdout", "stderr"):
            stream = getattr(sys, kind)
            if id(stream) not in self._streams and _route_stream(stream, kind):
                self._streams[id(stream)] = stream
        for handler in logging.getLogger().handlers:
            if handler is not self._log_handler and handler not in self._handlers:
                handler.addFilter(_is_outside_case)
                self._handlers.append(handler)

    def end(self) -> None:
        """Restore streams and handlers."""
        logging.getLogger().removeHandler(self._log_handler)
        for stream in self._streams.values():
            del stream.write
        for handler in self._handlers:
            handler.removeFilter(_is_outside_case)


def _route_stream(stream: Any, kind: str) -> bool:
    """Make a stream keep text of a case's context for the case. Return False if its method can't be replaced."""
    if stream is None:  # an agent that runs now has put it in the stream's place
        return False
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
