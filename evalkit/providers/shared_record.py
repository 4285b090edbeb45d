"""A small record that threads, or processes on one machine, change one after another."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

T = TypeVar("T", bound=msgspec.Struct)
_TRIES = 50  # of a millisecond each: nobody holds the file for longer, unless it stands still
_LOCKED_BYTE = 1 << 30  # Windows locks bytes, which nobody else may read then: one that is never written


class LocalRecord(Generic[T]):
    """A record of this process, for its threads."""

    def __init__(self, create: Callable[[], T]) -> None:
        self.latest = create()
        self._lock = threading.Lock()

    @contextmanager
    def change(self) -> Iterator[T]:
        """Hand out the record, to be changed."""
        with self._lock:
            yield self.latest


class FileRecord(LocalRecord[T]):
    """A record in a file that several processes share.

    The file is opened each time, so that no descriptor can be closed, or inherited, by an agent. Who can't have it (it
    is gone, or another process stands still with it) goes on with what was seen last. A damaged file is begun anew.
    """

    def __init__(self, file: Path, create: Callable[[], T]) -> None:
        super().__init__(create)
        self._file = file
        self._create = create

    @contextmanager
    def change(self) -> Iterator[T]:
        """Hand out the record as the process that had it last left it, to be changed."""
        with self._lock:
            descriptor = -1
            with suppress(OSError):
                descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            try:
                is_locked = descriptor >= 0 and _lock(descriptor)
                if is_locked:
                    self._read(descriptor)
                yield self.latest
                if is_locked:
                    self._write(descriptor)
            finally:
                if descriptor >= 0:
                    os.close(descriptor)  # which unlocks it

    def _read(self, descriptor: int) -> None:
        data = b""
        with suppress(OSError):
            while piece := os.read(descriptor, 1 << 16):
                data += piece
        if data:
            try:
                self.latest = msgspec.msgpack.decode(data, type=type(self.latest))
            except msgspec.DecodeError:  # somebody was killed while it was written
                self.latest = self._create()

    def _write(self, descriptor: int) -> None:
        data = msgspec.msgpack.encode(self.latest)
        with suppress(OSError):  # a full disk
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, data)
            os.ftruncate(descriptor, len(data))


def _lock(descriptor: int) -> bool:
    """Lock a file, and return whether that succeeded. No process may wait for one that stands still."""
    for _ in range(_TRIES):
        try:
            if sys.platform == "win32":
                os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
                os.lseek(descriptor, 0, os.SEEK_SET)
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.001)
        else:
            return True
    return False
