"""evalkit's own threads beside agents: they start whatever an agent has left behind in this process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


def restore_thread_hooks() -> None:
    """Put back the hooks for exceptions where an agent has left None, or nothing: no thread starts without them."""
    if getattr(threading, "excepthook", None) is None:
        threading.excepthook = threading.__excepthook__
    if getattr(sys, "excepthook", None) is None:
        sys.excepthook = sys.__excepthook__


def start_daemon_thread(run: Callable[[], object], name: str) -> threading.Thread:
    """Start a thread that does not keep the process alive. By its name other parts know whose code runs in it."""
    restore_thread_hooks()
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
