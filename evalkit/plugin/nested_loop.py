"""A coroutine on the event loop that runs the code which calls for it.

An async test may run its case by a call, without ``await``. Its agent uses what async fixtures have made, and that
belongs to the loop of the test; so the loop goes on with its work from within the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def can_run_here() -> bool:
    """Return whether this code runs in a task of one of asyncio's own loops."""
    try:
        return isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop) and asyncio.current_task() is not None
    except RuntimeError:  # there is none
        return False


def run_here(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run `coroutine` to its end on the running loop, whose current task stands still meanwhile."""
    loop: Any = asyncio.get_running_loop()
    outer = asyncio.current_task()
    assert outer is not None, "asked of code in a task: see can_run_here"
    inner = loop.create_task(coroutine)
    # The loop is in the middle of a round: so many callbacks it still takes from its queue when it goes on.
    left_in_round = len(loop._ready)
    asyncio.tasks._leave_task(loop, outer)
    try:
        while not inner.done():
            loop._run_once()
    finally:
        asyncio.tasks._enter_task(loop, outer)
        for _ in range(left_in_round - len(loop._ready)):
            loop.call_soon(_do_nothing)
    result: T = inner.result()
    return result


def _do_nothing() -> None: ...
