"""A thread that an agent started and that does not end keeps Python from ending: the run is over, and nothing says why
the process is still there. So it is said.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

PATIENCE_S = 3.0  # threads that are about to end need no mention


def report_unfinished_threads() -> None:
    """Say so on stderr if Python, on its way out, has waited for some time."""
    threading.Thread(target=_wait_and_report, name="evalkit-lingering", daemon=True).start()


def _wait_and_report() -> None:
    time.sleep(PATIENCE_S)
    frames = list(_walk_main_frames())
    is_ending = bool(frames) and frames[-1].f_code.co_name == "_shutdown"  # it has left the program
    if is_ending and sys.__stderr__ is not None:
        names = ", ".join(sorted(_find_awaited_threads(frames)))
        print(f"evalkit: the run is over, and Python waits for threads that did not end: {names}", file=sys.__stderr__)
        print("evalkit: agents should end what they start; Ctrl-C ends it now", file=sys.__stderr__, flush=True)


def _walk_main_frames() -> Iterator[FrameType]:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _find_awaited_threads(frames: list[FrameType]) -> set[str]:
    """Names of threads that are no daemons, and of the one of an executor that is joined: it may be a daemon."""
    plain = {each.name for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()}
    joined_threads = {each for frame in frames if isinstance(each := frame.f_locals.get("self"), threading.Thread)}
    return plain | {each.name for each in joined_threads}
