"""Trying again when a model's service says that it may work later: exponential backoff, `Retry-After`, and a limit.

Retried are broken connections, timeouts, and HTTP 408, 429 and 5xx. Waiting doubles from one second to the cap, with
jitter, so that concurrent cases don't come back together; a service that asks for a longer wait than the cap is
not waited for.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from evalkit.errors import ProviderError
from evalkit.providers.limits import current_limiter, queue_context

T = TypeVar("T")


class RetryPolicy(Struct, frozen=True):
    """`retries` beyond the first attempt; waits in seconds, each at most `cap_s`."""

    retries: int = 4
    first_s: float = 1.0
    cap_s: float = 60.0  # Gemini counts by the minute, and asks to wait for what is left of it
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def wait_s(self, attempt: int, retry_after_s: float | None) -> float:
        """How long to wait after failed attempt number `attempt` (from 0); `asked_s` is the service's own wish."""
        backoff = min(self.first_s * 2**attempt, self.cap_s)
        jittered = backoff * random.uniform(0.5, 1.0)  # noqa: S311 - spreads requests, keeps no secret
        return float(jittered) if retry_after_s is None else max(retry_after_s, jittered / 10)


def is_transient(error: ProviderError) -> bool:
    """Whether it makes sense to ask again. No status: the connection broke or timed out."""
    status = error.status
    return status is None or status in (408, 429) or 500 <= status <= 599


async def call_with_retries(send: Callable[[], Awaitable[T]], policy: RetryPolicy) -> T:
    """What `ask` gives. Raises the last ProviderError when the attempts are used up or waiting is pointless.

    Each attempt waits for its turn at the limiter in force, which is told of what came of it.
    """
    limiter = current_limiter.get()
    for attempt in range(policy.retries + 1):
        reserved_tokens = 0.0 if limiter is None else await limiter.enter(policy.cap_s)
        try:
            reply = await send()
            if limiter is not None:
                limiter.leave(reserved_tokens, getattr(reply, "usage", None))
            return reply
        except ProviderError as error:
            if limiter is not None:
                limiter.cancel(reserved_tokens)
            if limiter is not None and error.status == 429:
                limiter.record_refusal(error.retry_after_s)
            wait_s = policy.wait_s(attempt, error.retry_after_s)
            if attempt == policy.retries or not is_transient(error) or wait_s > policy.cap_s:
                raise _build_final_error(error, attempt + 1, wait_s, policy) from error.__cause__
        with queue_context.get()():
            await policy.sleep(wait_s)
    raise AssertionError("unreachable")


def _build_final_error(error: ProviderError, attempts: int, wait_s: float, policy: RetryPolicy) -> ProviderError:
    """`error`, and why nobody tries any longer."""
    notes = []
    if attempts > 1:
        notes.append(f"gave up after {attempts} attempts")
    if is_transient(error) and wait_s > policy.cap_s:
        notes.append(f"the service asks to wait {wait_s:g} s, more than the {policy.cap_s:g} s that a run waits")
    if not notes:
        return error
    return ProviderError(f"{error} ({'; '.join(notes)})", status=error.status, retry_after_s=error.retry_after_s)
