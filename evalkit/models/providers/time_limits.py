"""How long a reply may be awaited: not how long it takes, but how long nothing comes.

A model on a CPU reads a long prompt for minutes before its first word, so that the beginning has a limit of its own. A
reply that is asked for whole can't be told from one that hangs, and has one limit for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from evalkit.errors import ProviderError

FIRST_TIMES = 5  # a streamed reply begins within so many times `timeout_s`
CLIENT_S = 5.0  # so much longer are the limits of a client itself, which would not say whose they are


class TimeLimitError(ProviderError):
    """Nothing came of a reply for too long."""


class ReplyLimit:
    """The limit of a reply of `service` that is awaited: `timeout_s` for a whole one, and for which nothing comes of a
    streamed one, which begins within `first_s`. `whole_s`: a limit for all of it, which the request sets.

    `client_s` is a limit for the client that awaits it, which ends later.
    """

    def __init__(
        self,
        service: str,
        timeout_s: float,
        *,
        first_s: float | None = None,
        whole_s: float | None = None,
        is_streamed: bool = True,
    ) -> None:
        self._service = service
        self._silence_s = timeout_s if is_streamed and whole_s is None else None
        self._limit_s = whole_s or timeout_s
        if self._silence_s is not None:
            self._limit_s = first_s or FIRST_TIMES * timeout_s
        self._is_set_by_request = whole_s is not None
        self._timeout: asyncio.Timeout | None = None
        self._has_begun = False
        self.client_s = max(self._limit_s, timeout_s) + CLIENT_S

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Limit what is done inside. Raises TimeLimitError, which names the limit and its setting."""
        token = _awaited.set(self)
        try:
            async with asyncio.timeout(self._limit_s) as self._timeout:
                yield
        except TimeoutError as error:
            if self._timeout is None or not self._timeout.expired():
                raise
            raise TimeLimitError(f"{self._service} {self._explain()}") from error
        finally:
            _awaited.reset(token)

    def note_piece(self) -> None:
        """Begin to count anew: a piece of the reply has come."""
        if self._silence_s is not None and self._timeout is not None:
            self._has_begun = True
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._silence_s)

    def _explain(self) -> str:
        if self._has_begun:
            return f"sent nothing more of its reply for {self._silence_s:g} s; ?timeout_s= allows more"
        if self._silence_s is not None:
            return f"did not begin to reply within {self._limit_s:g} s; ?first_timeout_s= allows more"
        if self._is_set_by_request:
            return f"did not answer within {self._limit_s:g} s, the time limit of the request (timeout_s)"
        return f"did not answer within {self._limit_s:g} s, the limit of a whole reply; ?timeout_s= allows more"


_awaited: ContextVar[ReplyLimit | None] = ContextVar("evalkit_reply_limit", default=None)


def note_piece() -> None:
    """Tell the limit of the reply that is awaited, if there is one, that a piece of it has come."""
    limit = _awaited.get()
    if limit is not None:
        limit.note_piece()
