"""Which case runs here: a context variable, carried into threads and executors that the agent starts.

Tasks and `asyncio.to_thread` keep context variables; `Thread.start`, `ThreadPoolExecutor.submit` and with it
`run_in_executor` lose them. While anything needs it (a patch, a cassette of HTTP traffic) these start points carry the
one variable that matters, and nothing else, so that the agent's own context variables behave as they do in production.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from evalkit.functions.active import CASE

F = TypeVar("F", bound=Callable[..., Any])

_start = threading.Thread.start
_submit = ThreadPoolExecutor.submit
_lock = threading.Lock()
_needed_by: set[str] = set()


def carry(need: str) -> None:
    """Patch the start points, unless they are. `need` names what for, to be given to `stop_carrying` in the end."""
    global _start, _submit
    with _lock:
        if not _needed_by:
            _start, _submit = threading.Thread.start, ThreadPoolExecutor.submit
            threading.Thread.start = _start_in_case  # type: ignore[method-assign]
            ThreadPoolExecutor.submit = _submit_in_case  # type: ignore[assignment,method-assign]
        _needed_by.add(need)


def stop_carrying(need: str) -> None:
    """`need` is over. The last one takes the patches away."""
    with _lock:
        if need in _needed_by:
            _needed_by.remove(need)
            if not _needed_by:
                threading.Thread.start = _start  # type: ignore[method-assign]
                ThreadPoolExecutor.submit = _submit  # type: ignore[method-assign]


def _start_in_case(self: threading.Thread) -> None:
    case = CASE.get()
    if case is None:
        _start(self)
        return
    run = self.run

    def run_in_case() -> None:
        del self.run
        CASE.set(case)
        try:
            run()
        finally:
            case.ended()

    self.run = run_in_case  # type: ignore[method-assign]
    case.begun()
    try:
        _start(self)
    except BaseException:
        case.ended()
        raise


def _submit_in_case(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    case = CASE.get()
    if case is None:
        return _submit(self, fn, *args, **kwargs)
    # The pool may start a worker now, which lives on: it must not stay in this case.
    token = CASE.set(None)
    try:
        future = _submit(self, functools.partial(_run_in_case, case, fn), *args, **kwargs)
    finally:
        CASE.reset(token)
    case.begun()
    future.add_done_callback(case.ended)
    return future


def _run_in_case(case: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    token = CASE.set(case)
    try:
        return fn(*args, **kwargs)
    finally:
        CASE.reset(token)


def bind(function: F) -> F:
    """`function`, tied to the case that runs now: wherever it is called, patched functions answer for this case.

    For work that is handed to threads or loops which were there before the case, as through a queue. Takes functions
    and coroutine functions. Outside of a case it returns `function` unchanged, so that production code may use it.
    """
    case = CASE.get()
    if case is None:
        return function
    if inspect.iscoroutinefunction(function):

        async def bound_async(*args: Any, **kwargs: Any) -> Any:
            token = CASE.set(case)
            try:
                return await function(*args, **kwargs)
            finally:
                CASE.reset(token)

        return functools.wraps(function)(bound_async)  # type: ignore[return-value]
    return functools.wraps(function)(functools.partial(_run_in_case, case, function))  # type: ignore[return-value]
