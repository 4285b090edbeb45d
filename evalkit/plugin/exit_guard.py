"""`os._exit` of an agent fails its case, and does not end pytest as if a gate were met."""

from __future__ import annotations

import os
from contextlib import suppress
from contextvars import Context
from typing import Any, NoReturn

import pytest

from evalkit.execution.executor import is_in_case
from evalkit.gate.decision import EXIT_STATUS
from evalkit.records.run import NOT_MEASURED


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
        "are in the journal: the same command with --evalkit-resume goes on"
    )
    reporter.flush()
