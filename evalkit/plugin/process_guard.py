"""What all cases of a process share, kept from the agents of single ones: descriptors of its streams, its limits,
signals of timers, and `os._exit`, which would end it.

An agent's own processes do as they like: what is refused is refused in this process and in the context of a case.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import Context
from functools import wraps
from types import ModuleType
from typing import Any, NoReturn

import pytest

from evalkit.execution.executor import is_in_case
from evalkit.gate.decision import EXIT_STATUS
from evalkit.model.run import NOT_MEASURED

if sys.platform == "win32":
    resource = None
else:
    import resource

_TIMERS = {"SIGALRM": "ITIMER_REAL", "SIGVTALRM": "ITIMER_VIRTUAL", "SIGPROF": "ITIMER_PROF"}
_REASON = "pytest and other cases run in this process, too"


class ProcessGuard:
    """The hook that guards the process for as long as cases run in it."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._descriptors: set[int] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        with ExitStack() as stack:
            for name, timer in _TIMERS.items():
                if hasattr(signal, name):
                    stack.enter_context(_outlive(getattr(signal, name), getattr(signal, timer)))
            stack.enter_context(_guard(os, "close", self._close))
            stack.enter_context(_guard(os, "closerange", self._close_range))
            stack.enter_context(_guard(sys, "setrecursionlimit", self._set_recursion_limit))
            if resource is not None:
                stack.enter_context(_guard(resource, "setrlimit", self._set_limit))
            return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_setup(self) -> None:
        streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
        for stream in (stream for stream in streams if stream is not None):
            with suppress(OSError, ValueError, AttributeError):  # no file
                self._descriptors.add(stream.fileno())

    def _is_agent(self) -> bool:
        return is_in_case() and os.getpid() == self._owner

    def _close(self, close: Callable[[int], None], descriptor: int) -> None:
        """Close a descriptor, unless it is of a stream, as little as the stream can be closed."""
        if not self._is_agent() or descriptor not in self._descriptors:
            close(descriptor)

    def _close_range(self, close_range: Callable[[int, int], None], first: int, end: int) -> None:
        if self._is_agent():
            raise PermissionError(errno.EPERM, f"closerange closes files of others: {_REASON}")
        close_range(first, end)

    def _set_recursion_limit(self, set_limit: Callable[[int], None], limit: int) -> None:
        if self._is_agent() and limit < sys.getrecursionlimit():
            raise ValueError(f"the recursion limit is not lowered: {_REASON}")
        set_limit(limit)

    def _set_limit(self, set_limit: Callable[[int, Any], None], kind: int, limits: Any) -> None:
        assert resource is not None
        if self._is_agent() and any(map(_is_lower, limits, resource.getrlimit(kind))):
            raise ValueError(f"a limit of the process is not lowered: {_REASON}")
        set_limit(kind, limits)


def _is_lower(limit: int, current: int) -> bool:
    assert resource is not None
    unlimited = resource.RLIM_INFINITY
    return limit != unlimited and (current == unlimited or limit < current)


@contextmanager
def _guard(module: ModuleType, name: str, guard: Callable[..., None]) -> Generator[None]:
    """Call ``guard(original, ...)`` in place of a function of a module. What was taken from it before stays."""
    original = getattr(module, name)

    @wraps(original)
    def guarded(*arguments: object, **named: object) -> None:
        guard(original, *arguments, **named)

    setattr(module, name, guarded)
    try:
        yield
    finally:
        if getattr(module, name) is guarded:
            setattr(module, name, original)


@contextmanager
def _outlive(number: signal.Signals, timer: int) -> Generator[None]:
    """Ignore the signal of a timer, which would end the process, and stop the timer in the end. The programs that the
    process starts get the signal as ever."""
    if signal.getsignal(number) is not signal.SIG_DFL or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, signal.SIG_DFL)


def guard_exit(config: pytest.Config) -> None:
    """Make `os._exit` of an agent fail its case; the others are run. Where it is no case's code, as in a thread that
    belongs to none, it ends the process, but never as if a gate were met: 0 becomes the status of a run not measured.

    The guard lasts until pytest ends: agents that are left running may call it after the last case. What cases run in a
    child that was forked is the child's: it may exit as it likes. Code that took the function from `os` before is not
    guarded.
    """
    owner, original = os.getpid(), os._exit

    def end_process(status: int) -> NoReturn:
        if os.getpid() == owner:
            if is_in_case():
                raise SystemExit(f"os._exit({status!r}) would have ended pytest")
            with suppress(Exception):  # whatever pytest was doing: the process ends with this status
                Context().run(_announce, config, status)  # in the agent's context it would count as its own output
            status = status if status & 0xFF else EXIT_STATUS[NOT_MEASURED]  # the system keeps one byte: 256 is 0
        original(status)

    os._exit = end_process
    config.add_cleanup(lambda: setattr(os, "_exit", original))


def _announce(config: pytest.Config, status: int) -> None:
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    capture.suspend_global_capture()
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    reporter.ensure_newline()
    reporter.write_line(
        f"evalkit: a thread of no case called os._exit({status}), which ends pytest here; the verdicts so far "
        "are in the journal: pytest --evalkit --evalkit-resume goes on"
    )
    reporter.flush()
