"""Where an agent is that does not come back: the calls that it is in, outermost first."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from traceback import FrameSummary, StackSummary
from types import FrameType
from typing import Any


def list_task_calls(task: asyncio.Task[Any]) -> list[FrameSummary]:
    """The coroutines that a suspended task is in, through what each of them awaits, as far as a task or a future."""
    return _extract_summaries(_walk_awaited_frames(task.get_coro()))


def list_thread_calls(ident: int) -> list[FrameSummary]:
    """The functions that a running thread is in; [] if it has ended."""
    frame = sys._current_frames().get(ident)
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return _extract_summaries(iter(reversed(frames)))


def _walk_awaited_frames(waiting: Any) -> Iterator[FrameType]:
    while (kind := next((kind for kind in ("cr", "ag", "gi") if hasattr(waiting, f"{kind}_frame")), None)) is not None:
        frame = getattr(waiting, f"{kind}_frame")
        if frame is not None:
            yield frame
        waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")


def _extract_summaries(frames: Iterator[FrameType]) -> list[FrameSummary]:
    return list(StackSummary.extract(((frame, frame.f_lineno) for frame in frames), lookup_lines=False))
