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

from evalkit.functions.active import CURRENT_CASE

F = TypeVar("F", bound=Callable[..., Any])

_original_start = threading.Thread.start
_original_submit = ThreadPoolExecutor.submit
_propagation_lock = threading.Lock()
_users: set[str] = set()


def start_propagation(user: str) -> None:
    """Patch the start points, unless they are. `need` names what for, to be given to `stop_carrying` in the end."""
    global _original_start, _original_submit
    with _propagation_lock:
        if not _users:
            _original_start, _original_submit = threading.Thread.start, ThreadPoolExecutor.submit
            threading.Thread.start = _start_in_case  # type: ignore[method-assign]
            ThreadPoolExecutor.submit = _submit_in_case  # type: ignore[assignment,method-assign]
        _users.add(user)


def stop_propagation(user: str) -> None:
    """`need` is over. The last one takes the patches away."""
    with _propagation_lock:
        if user in _users:
            _users.remove(user)
            if not _users:
                threading.Thread.start = _original_start  # type: ignore[method-assign]
                ThreadPoolExecutor.submit = _original_submit  # type: ignore[method-assign]


def _start_in_case(self: threading.Thread) -> None:
    case = CURRENT_CASE.get()
    if case is None:
        _original_start(self)
        return
    run = self.run

    def run_in_case() -> None:
        del self.run
        CURRENT_CASE.set(case)
        try:
            run()
        finally:
            case.ended()

    self.run = run_in_case  # type: ignore[method-assign]
    case.begun()
    try:
        _original_start(self)
    except BaseException:
        case.ended()
        raise


def _submit_in_case(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    case = CURRENT_CASE.get()
    if case is None:
        return _original_submit(self, fn, *args, **kwargs)
    # The pool may start a worker now, which lives on: it must not stay in this case.
    token = CURRENT_CASE.set(None)
    try:
        future = _original_submit(self, functools.partial(_run_in_case, case, fn), *args, **kwargs)
    finally:
        CURRENT_CASE.reset(token)
    case.begun()
    future.add_done_callback(case.ended)
    return future


def _run_in_case(case: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    token = CURRENT_CASE.set(case)
    try:
        return fn(*args, **kwargs)
    finally:
        CURRENT_CASE.reset(token)


def bind(function: F) -> F:
    """`function`, tied to the case that runs now: wherever it is called, patched functions answer for this case.

    For work that is handed to threads or loops which were there before the case, as through a queue. Takes functions
    and coroutine functions. Outside of a case it returns `function` unchanged, so that production code may use it.
    """
    case = CURRENT_CASE.get()
    if case is None:
        return function
    if inspect.iscoroutinefunction(function):

        async def run_bound(*args: Any, **kwargs: Any) -> Any:
            token = CURRENT_CASE.set(case)
            try:
                return await function(*args, **kwargs)
            finally:
                CURRENT_CASE.reset(token)

        return functools.wraps(function)(run_bound)  # type: ignore[return-value]
    return functools.wraps(function)(functools.partial(_run_in_case, case, function))  # type: ignore[return-value]
