"""The cases that run now, and which of them runs here: a context variable."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalkit.functions.dispatcher import FakeDispatcher
    from evalkit.functions.patchpoint import PatchPoint

CASE: ContextVar[Any] = ContextVar("evalkit_case", default=None)
LOCK = threading.RLock()  # over everything that is installed, and over ACTIVE
ACTIVE: list[PatchedCase] = []


class PatchedCase:
    """A case while its patches are in force. `names` maps each point to the function's name in the case."""

    def __init__(self, dispatcher: FakeDispatcher, names: Mapping[PatchPoint, str]) -> None:
        self.dispatcher = dispatcher
        self.task = dispatcher.task  # alive for as long as any code runs in the case's context
        self.names = names
        self.is_over = False
        self.is_kept = False
        self.is_closed = False  # `patched` has been left

    def keep(self) -> None:
        """Leave this case's patches installed when it ends, until `release`.

        For an agent that was abandoned in a thread: it may wake up and call on, and must not reach a real function.
        Its calls are refused; everyone else gets the real function.
        """
        self.is_kept = True

    def leave(self) -> None:
        """The case is over: from now on nobody's calls are its."""
        with LOCK:
            if not self.is_over:
                self.is_over = True
                ACTIVE.remove(self)
