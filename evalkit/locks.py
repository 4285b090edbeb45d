"""Locks that agents' code may take in a forked process.

A fork copies locks as they are, and of threads only the one that forks: a lock that another case's thread held then
would be held for ever, and a pool of processes hang. So the child's copies are opened.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

_locks: WeakSet[threading.Lock | threading.RLock] = WeakSet()


def create_lock() -> threading.Lock:
    """Create a lock that nobody holds in a forked process."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def create_reentrant_lock() -> threading.RLock:
    """Create a lock that a thread may take several times, and nobody holds in a forked process."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _open_locks() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[union-attr]  # as the standard library does with its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_locks)
