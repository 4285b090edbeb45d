"""What an agent prints and logs goes to its own case, although cases overlap: text is routed by context.

pytest captures by phases of the item that is in its protocol; an agent that runs ahead of its turn prints into another
item's phase, or between phases. So standard output and error are stood in for by `Routed`, and what comes from a case's
context is kept for that case. What has no context (bytes written to `sys.stdout.buffer`, file descriptors, processes)
goes where it would have gone: to the item that is in its protocol, or to the terminal.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Generator, Iterator
from contextvars import ContextVar, Token
from typing import Any, TextIO

import pytest

_KINDS = ("stdout", "stderr", "log")


class Output:
    """What one case printed and logged."""

    def __init__(self) -> None:
        self._parts: dict[str, list[str]] = {kind: [] for kind in _KINDS}

    def add(self, kind: str, text: str) -> None:
        self._parts[kind].append(text)

    def sections(self) -> Iterator[tuple[str, str]]:
        """(kind, text) of what there is."""
        for kind, parts in self._parts.items():
            if parts:
                yield kind, "".join(parts)


_output: ContextVar[Output | None] = ContextVar("evalkit_output", default=None)


def begin_output(output: Output) -> Token[Output | None]:
    """From here on, this context's output belongs to `output`."""
    return _output.set(output)


class Routed(io.TextIOBase):
    """Stands in for a stream: text of a case's context goes to the case, all else to the stream."""

    def __init__(self, stream: TextIO, kind: str) -> None:
        self.stream = stream
        self._kind = kind

    def write(self, text: str) -> int:
        output = _output.get()
        if output is None:
            return self.stream.write(text)
        output.add(self._kind, text)
        return len(text)

    def flush(self) -> None:
        if _output.get() is None:
            self.stream.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.stream.fileno()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Log(logging.Handler):
    """Keeps the records of cases that overlap; pytest's own handlers are told to leave those alone."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        output = _output.get()
        if output is not None:
            output.add("log", self.format(record) + "\n")


def _of_no_case(record: logging.LogRecord) -> bool:
    return _output.get() is None


class OutputRouting:
    """The hooks that keep the stand-ins in place while pytest's capture comes and goes with each phase."""

    def __init__(self) -> None:
        self._log = _Log()
        self._filtered: list[logging.Handler] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        root = logging.getLogger()
        root.addHandler(self._log)
        try:
            return (yield)
        finally:
            root.removeHandler(self._log)
            for handler in self._filtered:
                handler.removeFilter(_of_no_case)
            _restore()

    def leave_logs(self) -> None:
        """Keep pytest's handlers, which come with each phase, from taking the records of cases that overlap."""
        for handler in logging.getLogger().handlers:
            if handler is not self._log and handler not in self._filtered:
                handler.addFilter(_of_no_case)
                self._filtered.append(handler)


class WithinPhases:
    """Innermost in each phase: over the streams that pytest captures into."""

    def __init__(self, routing: OutputRouting) -> None:
        self._routing = routing

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        _install()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        _install()
        self._routing.leave_logs()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        _install()


class BetweenPhases:
    """Outermost around each phase: pytest has just put its own streams back."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        return (yield from _then_install())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        return (yield from _then_install())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        return (yield from _then_install())


def _then_install() -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        _install()


def _install() -> None:
    for kind in ("stdout", "stderr"):
        stream = getattr(sys, kind)
        if not isinstance(stream, Routed):
            setattr(sys, kind, Routed(stream, kind))


def _restore() -> None:
    for kind in ("stdout", "stderr"):
        stream = getattr(sys, kind)
        if isinstance(stream, Routed):
            setattr(sys, kind, stream.stream)
