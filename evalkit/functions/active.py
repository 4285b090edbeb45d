"""The cases that run now, and which of them runs here: a context variable."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalkit.functions.dispatcher import FakeDispatcher
    from evalkit.functions.patchpoint import PatchPoint

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
