"""The pace at which a model's service gets requests: a token bucket per provider, retries, and errors below the API.

Every case of the process shares the bucket. A request waits for its place in the order of arrival. Tokens are known
only afterwards: a request reserves the average of the requests so far, and the difference is settled with its reply.
After an answer 429 all requests pause for as long as the service says, and then go out half as fast; each success
raises the rate again, up to the configured one, or until nothing limits it. The clock is real time and the waits are
computed, so that one bucket serves several event loops and threads.

Broken connections, timeouts, and HTTP 408, 429 and 5xx are retried. The wait doubles from one second to the cap, with
jitter, so that concurrent cases don't come back together. A service that asks for more than the cap ends the attempts.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from msgspec import Struct

from evalkit.errors import ProviderError
from evalkit.jsonvalue import JsonObject
from evalkit.model.transcript import Usage

RATES = ("requests_per_minute", "tokens_per_minute")
BURST_S = 6.0  # so many seconds' worth may go out at once
PAUSE_S = 1.0  # after a 429 that does not say how long to wait
SLOWEST = 1 / 60  # requests per second: a service that keeps refusing still gets one a minute
_SPEED_UP = 1.1

# The context in which a case waits for its turn: its deadline stands still meanwhile.
queue_context: ContextVar[Callable[[], AbstractContextManager[Any]]] = ContextVar(
    "evalkit_queueing", default=nullcontext
)


class Rates(Struct, frozen=True):
    """Limits of one provider, for this process; None is no limit."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


def find_rates(kind: str, model: str, limits: JsonObject, workers: int = 1) -> Rates:
    """Find the rates of a model in `limits`: under ``kind:model``, else under ``kind``, else for all. Each of
    `workers` processes gets its share."""
    rates: dict[str, float] = {}
    for table in (limits, limits.get(kind), limits.get(f"{kind}:{model}")):
        if isinstance(table, Mapping):
            rates |= {name: float(table[name]) / workers for name in RATES if table.get(name) is not None}
    return Rates(**rates)


class Limiter:
    """The bucket of one provider. `clock` and `sleep` are for tests."""

    def __init__(
        self,
        rates: Rates | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        rates = rates or Rates()
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._requests = _Bucket(rates.requests_per_minute, clock())
        self._tokens = _Bucket(rates.tokens_per_minute, clock())
        self._average = 0.0  # tokens of a request so far
        self._paused_until = 0.0
        self._recent: deque[float] = deque(maxlen=200)  # when the latest requests went out
        self._unlimited_again = 0.0  # requests per second at which a learned limit is forgotten

    async def enter(self, max_pause_s: float = float("inf")) -> float:
        """Wait for a place. Return the tokens that are reserved, for `leave`.

        Raises ProviderError where the service demands a pause of more than `max_pause_s` seconds of another case:
        all would wait, and none would get anything.
        """
        with self._lock:
            now = self._clock()
            paused_s = self._get_pause(now, max_pause_s)
            reserved_tokens = self._average
            wait_s = max(self._requests.take(1, now), self._tokens.take(reserved_tokens, now), paused_s)
            self._recent.append(now + max(wait_s, 0.0))
        while wait_s > 0:
            with queue_context.get()():
                await self._sleep(wait_s)
            with self._lock:
                wait_s = self._get_pause(self._clock(), max_pause_s)
        return reserved_tokens

    def _get_pause(self, now: float, max_pause_s: float) -> float:
        pause_s = self._paused_until - now
        if pause_s > max_pause_s:
            raise ProviderError(
                f"429: another case was told to leave the service alone for {pause_s:.0f} s more, "
                f"longer than the {max_pause_s:g} s that a run waits",
                status=429,
                retry_after_s=pause_s,
            )
        return pause_s

    def leave(self, reserved_tokens: float, usage: Usage | None) -> None:
        """Record that a reply came, and the tokens that it took."""
        with self._lock:
            if usage is not None:
                used = float(usage.total_tokens or usage.input_tokens + usage.output_tokens + usage.reasoning_tokens)
                self._tokens.take(used - reserved_tokens, self._clock())
                self._average = used if not self._average else 0.8 * self._average + 0.2 * used
            if self._requests.is_slowed:
                self._requests.raise_rate(_SPEED_UP, self._unlimited_again, self._clock())

    def cancel(self, reserved_tokens: float) -> None:
        """There is no reply: the tokens that were set aside for it are free again."""
        with self._lock:
            self._tokens.take(-reserved_tokens, self._clock())

    def record_refusal(self, retry_after_s: float | None) -> None:
        """Record an answer 429, and the seconds after which the service may be asked again, if it says so."""
        with self._lock:
            now = self._clock()
            is_first = now >= self._paused_until  # the others that were under way are refused for the same reason
            self._paused_until = max(self._paused_until, now + (PAUSE_S if retry_after_s is None else retry_after_s))
            if is_first:
                recent = [moment for moment in self._recent if now - 10 <= moment <= now]
                rate_per_s = 1.0 if len(recent) < 2 else len(recent) / max(now - recent[0], 1.0)
                self._unlimited_again = max(self._unlimited_again, 2 * rate_per_s)
                self._requests.reduce_rate(max(rate_per_s / 2, SLOWEST), now)

    @property
    def requests_per_minute(self) -> float | None:
        """The rate in force; None: as fast as the cases ask."""
        return None if self._requests.per_s is None else self._requests.per_s * 60


class _Bucket:
    """Fills at `per_s`; None: never empty. A level below zero is what is owed, and has to be waited for."""

    def __init__(self, per_minute: float | None, now: float) -> None:
        self._configured = None if per_minute is None else per_minute / 60
        self.per_s = self._configured
        self._level = self._get_capacity()
        self._since = now

    @property
    def is_slowed(self) -> bool:
        return self.per_s != self._configured

    def take(self, amount: float, now: float) -> float:
        """Take `amount` out (or put it back); the seconds until that much was there."""
        if self.per_s is None:
            return 0.0
        self._level = min(self._level + (now - self._since) * self.per_s, self._get_capacity()) - amount
        self._since = now
        return max(-self._level / self.per_s, 0.0)

    def reduce_rate(self, per_s: float, now: float) -> None:
        if self.per_s is None:
            self._level, self._since = 0.0, now
        self.take(0, now)
        self.per_s = per_s if self.per_s is None else max(min(self.per_s / 2, per_s), SLOWEST)
        self._level = min(self._level, 0.0)

    def raise_rate(self, factor: float, forgotten_at: float, now: float) -> None:
        self.take(0, now)
        assert self.per_s is not None
        faster = self.per_s * factor
        limit = self._configured
        if limit is None:
            self.per_s = None if faster >= forgotten_at else faster
        else:
            self.per_s = min(faster, limit)

    def _get_capacity(self) -> float:
        return 0.0 if self.per_s is None else max(self.per_s * BURST_S, 1.0)


# The limiter of the request that is being sent.
current_limiter: ContextVar[Limiter | None] = ContextVar("evalkit_limiter", default=None)

_limiters: dict[tuple[str, Rates], Limiter] = {}
_limiters_lock = threading.Lock()


def get_limiter(provider: str, rates: Rates) -> Limiter:
    """Return the one limiter of this process for `provider`, a model at its address."""
    with _limiters_lock:
        return _limiters.setdefault((provider, rates), Limiter(rates))


# -- retries

T = TypeVar("T")


class RetryPolicy(Struct, frozen=True):
    """`retries` beyond the first attempt; waits in seconds, each at most `cap_s`."""

    retries: int = 4
    first_s: float = 1.0
    cap_s: float = 60.0  # Gemini counts by the minute, and asks to wait for what is left of it
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def wait_s(self, attempt: int, retry_after_s: float | None) -> float:
        """Return the seconds to wait after failed attempt number `attempt` (from 0). `retry_after_s` is what the
        service asks for."""
        backoff = min(self.first_s * 2**attempt, self.cap_s)
        jittered = backoff * random.uniform(0.5, 1.0)  # noqa: S311 - spreads requests, keeps no secret
        return float(jittered) if retry_after_s is None else max(retry_after_s, jittered / 10)


def is_transient(error: ProviderError) -> bool:
    """Tell whether a second attempt makes sense. No status: the connection broke or timed out."""
    status = error.status
    return status is None or status in (408, 429) or 500 <= status <= 599


async def call_with_retries(send: Callable[[], Awaitable[T]], policy: RetryPolicy) -> T:
    """Return the result of `send`, which takes its turn at the current limiter in each attempt.

    Raises the last ProviderError when the attempts are used up or waiting is pointless.
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
    """Build `error` with the reason why there is no further attempt."""
    notes = []
    if attempts > 1:
        notes.append(f"gave up after {attempts} attempts")
    if is_transient(error) and wait_s > policy.cap_s:
        notes.append(f"the service asks to wait {wait_s:g} s, more than the {policy.cap_s:g} s that a run waits")
    if not notes:
        return error
    return ProviderError(f"{error} ({'; '.join(notes)})", status=error.status, retry_after_s=error.retry_after_s)


# -- errors of the client libraries below the API

_TRANSPORT_PACKAGES = ("httpx", "httpcore", "aiohttp", "ssl", "anyio", "h11")


def to_transport_error(error: BaseException, service: str) -> ProviderError | None:
    """Convert a timeout, a broken connection or an answer that is no JSON to a ProviderError; None for other
    exceptions."""
    kind = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, TimeoutError) or "timeout" in type(error).__name__.lower():
        return ProviderError(f"{service} did not answer in time: {kind}")
    if isinstance(error, OSError) or any(cls.__module__.startswith(_TRANSPORT_PACKAGES) for cls in type(error).__mro__):
        return ProviderError(f"{service} could not be reached: {kind}")
    # JSONDecodeError and its like; a ValidationError is of the request, which the client did not send.
    if isinstance(error, ValueError) and type(error).__name__ not in ("ValueError", "ValidationError"):
        return ProviderError(f"{service} answered something that is no JSON: {kind}")
    return None


def parse_seconds(value: object) -> float | None:
    """Parse ``7``, ``7s`` or ``7.5s`` as seconds."""
    try:
        delay_s = float(str(value).removesuffix("s"))
    except ValueError:
        return None
    return delay_s if 0 <= delay_s < float("inf") else None


def read_retry_after(response: object) -> float | None:
    """Read the `Retry-After` header of a response as seconds: a number, or a date, which is compared with the
    service's own clock where the response has a date."""
    headers = getattr(response, "headers", None)
    if headers is None:
        return None
    delay_s = parse_seconds(headers.get("retry-after"))
    until = _parse_date(headers.get("retry-after")) if delay_s is None else None
    if until is None:
        return delay_s
    return max((until - (_parse_date(headers.get("date")) or datetime.now(UTC))).total_seconds(), 0.0)


def _parse_date(text: object) -> datetime | None:
    try:
        moment = parsedate_to_datetime(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
