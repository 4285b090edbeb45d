"""The cases that run now, and which of them runs here: a context variable."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from evalkit.functions.dispatcher import FakeDispatcher
    from evalkit.functions.patching.points import PatchPoint


CURRENT_CASE: ContextVar[Any] = ContextVar("evalkit_case", default=None)
PATCH_LOCK = threading.RLock()  # over everything that is installed, and over ACTIVE
ACTIVE_CASES: list[PatchedCase] = []


class PatchedCase:
    """A case while its patches are in force. `names` maps each point to the function's name in the case; `remove` takes
    them away. They stay for as long as code that the agent started runs on, which must not reach a real function: its
    calls are refused, and everyone else gets the real function."""

    def __init__(
        self,
        dispatcher: FakeDispatcher,
        names: Mapping[PatchPoint, str],
        remove: Callable[[Iterable[PatchPoint]], None],
    ) -> None:
        self.dispatcher = dispatcher
        self.task = dispatcher.task  # alive for as long as any code runs in the case's context
        self.names = names
        self.is_over = False
        self._remove = remove
        self.is_abandoned = False
        self._workers = 0  # tasks and threads that the agent started
        self._is_closed = False  # `patched` has been left
        self._is_removed = False

    def keep_installed(self) -> None:
        """Leave this case's patches installed when it ends, until `release`: its agent was abandoned in a thread."""
        self.is_abandoned = True

    def release(self) -> None:
        """The abandoned agent has ended."""
        with PATCH_LOCK:
            self.is_abandoned = False
            self._remove_if_unused()

    def leave(self) -> None:
        """The case is over: from now on nobody's calls are its."""
        with PATCH_LOCK:
            if not self.is_over:
                self.is_over = True
                ACTIVE_CASES.remove(self)

    def close(self) -> None:
        """`patched` has been left."""
        with PATCH_LOCK:
            self.leave()
            self._is_closed = True
            self._remove_if_unused()

    def start_worker(self) -> None:
        """The agent has started a task or a thread."""
        with PATCH_LOCK:
            self._workers += 1

    def finish_worker(self, *_: object) -> None:
        """One of them has ended."""
        with PATCH_LOCK:
            self._workers -= 1
            self._remove_if_unused()

    def _remove_if_unused(self) -> None:
        if self._is_closed and not (self.is_abandoned or self._workers or self._is_removed):
            self._is_removed = True
            self._remove(self.names)


# Which case runs here: a context variable, carried into threads and executors that the agent starts.
#
# Tasks and `asyncio.to_thread` keep context variables; `Thread.start`, `ThreadPoolExecutor.submit` and with it
# `run_in_executor` lose them. While anything needs it (a patch, a cassette of HTTP traffic) these start points carry the  # noqa: E501
# one variable that matters, and nothing else, so that the agent's own context variables behave as they do in production.  # noqa: E501

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
            case.finish_worker()

    self.run = run_in_case  # type: ignore[method-assign]
    case.start_worker()
    try:
        _original_start(self)
    except BaseException:
        case.finish_worker()
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
    case.start_worker()
    future.add_done_callback(case.finish_worker)
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
