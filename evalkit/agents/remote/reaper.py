"""The reaper: a small process that ends agents' processes when the one that started them is gone.

An interpreter that is killed, or ended by SIGTERM or SIGHUP, runs no code of its own any more. So the first process
agent starts this file as a program beside it, and tells it of each agent's mark before its process begins, of its
process group once that is known, and of its end. At the end of its input, which comes however the interpreter ends, the
reaper ends what is left. The program needs the standard library alone, and starts within milliseconds.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

TERM_S = 1.0  # between SIGTERM and SIGKILL
_BEGIN_S = 0.3  # in which a process that has just been forked has its environment
NO_GROUP = 0  # none is known: only the mark tells

_PROC = Path("/proc")


class Reaper:
    """This interpreter's side: ``watch`` a mark before its process begins, ``join`` its group, ``forget`` it then."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def watch(self, mark: bytes) -> None:
        """End all that has `mark` in its environment, if this interpreter ends before it does."""
        with self._lock:
            if self._process is None and hasattr(os, "killpg"):
                self._process = subprocess.Popen(  # noqa: S603 - this very file
                    [sys.executable, "-I", "-S", __file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                atexit.register(self.close)
                os.register_at_fork(after_in_child=self._leave_to_parent)
            self._write(b"+ %d %s\n" % (NO_GROUP, mark))

    def join(self, mark: bytes, group: int) -> None:
        """End `group`, too: on systems that show no environments it is all that can be found."""
        with self._lock:
            self._write(b"+ %d %s\n" % (group, mark))

    def forget(self, mark: bytes) -> None:
        """Leave alone what has `mark`: it has ended."""
        with self._lock:
            self._write(b"- %d %s\n" % (NO_GROUP, mark))

    def close(self) -> None:
        """End the groups that are left, and the reaper."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=2 * TERM_S)

    def _write(self, line: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # somebody has killed the reaper
                self._process.stdin.write(line)
                self._process.stdin.flush()

    def _leave_to_parent(self) -> None:
        """Close the copy of a forked child: the reaper's input ends with the parent's."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.returncode = 0  # no child of this process
            self._process = None


def find_survivors(group: int, mark: bytes) -> list[int]:
    """Find the processes of `group`, and on Linux all that have `mark` in their environment. Zombies do not count."""
    if not _PROC.is_dir():
        if group == NO_GROUP:
            return []
        try:
            os.killpg(group, 0)
        except (AttributeError, ProcessLookupError, PermissionError):
            return []
        return [group]
    running = [entry for entry in os.scandir(_PROC) if entry.name.isdecimal()]
    return [int(entry.name) for entry in running if _is_member(entry.path, group, mark)]


def _is_member(process: str, group: int, mark: bytes) -> bool:
    try:
        with open(f"{process}/stat", "rb") as file:
            state, _, its_group = file.read().rpartition(b")")[2].split(None, 3)[:3]
        if state in b"ZX":
            return False
        if int(its_group) == group != NO_GROUP:
            return True
        with open(f"{process}/environ", "rb") as file:
            return mark in file.read()
    except OSError:  # it has just ended, or is somebody else's
        return False


def send_signal(group: int, mark: bytes, number: signal.Signals) -> None:
    """Send a signal to all processes of `group`, and to those that have left it."""
    if group != NO_GROUP:  # which would be our own
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in find_survivors(group, mark):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def main() -> None:
    """Keep the list of marks and groups until the input ends, and end those that are left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: dict[bytes, int] = {}  # by mark
    for line in sys.stdin.buffer:
        sign, group_text, mark = line.split()
        if sign == b"+":
            groups[mark] = int(group_text)
        else:
            groups.pop(mark, None)
    if NO_GROUP in groups.values():
        time.sleep(_BEGIN_S)
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + TERM_S
        for mark, group in groups.items():
            send_signal(group, mark, number)
        while time.monotonic() < until and any(find_survivors(group, mark) for mark, group in groups.items()):
            time.sleep(0.02)


if __name__ == "__main__":
    main()
