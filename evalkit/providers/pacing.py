"""The pace at which a model's service gets requests: token buckets, a control of refusals, retries, and errors.

Every case of the process shares them. A request waits for its place in the order of arrival. Tokens are known only
afterwards: a request reserves the average of the requests so far, and the difference is settled with its reply. The
clock is real time and the waits are computed, so that one limiter serves several event loops and threads.

An answer 429 (or 503, 529) is no failed attempt as long as the service lets others through: the request waits and goes
out again. `AdaptivePace` finds the rate that the service allows: additive increase, multiplicative decrease, one for
each service.

Broken connections, timeouts, and HTTP 408 and 5xx are retried, and 429 of a service that answers nobody. The wait
doubles from one second to the cap, with jitter, so that concurrent cases don't come back together. A service that asks
for more than the cap ends the attempts.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from evalkit.errors import ProviderError
from evalkit.jsonvalue import JsonObject
from evalkit.model.transcript import Usage

RATES = ("requests_per_minute", "tokens_per_minute")
BURST_S = 6.0  # so many seconds' worth may go out at once
PAUSE_S = 0.8  # after a 429 that does not say how long to wait
SLOWEST = 1 / 60  # requests per second: a service that keeps refusing still gets one a minute
OVERLOADED = (429, 503, 529)  # answers of a service that has too much to do
MOST_REFUSALS = 100  # of one request while others get through: it is too large, or starved

# The context in which a case waits for its turn: its deadline stands still meanwhile.
queue_context: ContextVar[Callable[[], AbstractContextManager[Any]]] = ContextVar(
    "evalkit_queueing", default=nullcontext
)


class Traffic:
    """What live models have taken in this process so far: a person who waits for the run is shown it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.replies = 0
        self.tokens = 0
        self.usd: float | None = None  # None: no reply had a known price
        self.waiting = 0  # requests that wait now: for their turn, or between two attempts

    def record(self, usage: Usage | None, usd: float | None) -> None:
        """Record a reply."""
        with self._lock:
            self.replies += 1
            self.tokens += 0 if usage is None else usage.count_tokens()
            if usd is not None:
                self.usd = (self.usd or 0.0) + usd

    def get_pause(self) -> float:
        """Return the seconds for which a service is left alone."""
        with _limiters_lock:
            return max((pace.get_pause() for pace in _paces.values()), default=0.0)

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Count a wait: the deadline of its case stands still."""
        with self._lock:
            self.waiting += 1
        try:
            with queue_context.get()():
                yield
        finally:
            with self._lock:
                self.waiting -= 1


TRAFFIC = Traffic()


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


class AdaptivePace:
    """The rate that a service allows, found by its refusals; no limit before the first one.

    A refusal lowers the rate, once for all requests that were under way: to what the service accepted lately, between
    half and nine tenths. Answers raise it: fast up to where it was refused last, slowly about there, and fast again if
    the service goes on answering, until the limit is forgotten. While nobody is answered all wait, for as long as the
    service says, else twice as long each time, and then one request goes ahead to try.
    """

    WINDOW_S = 2.0  # what was accepted lately
    CATCH_UP_S = 1.0  # so many seconds' worth may go out at once behind a pause, which the service has saved up
    LONGEST_PAUSE_S = 50.0
    BLACKOUT = 3  # refusals in a row, and no answer for a while, after which all wait
    QUOTA_S = 2.0  # a service that asks to wait for longer means everybody

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[object] = deque()  # requests that wait, the first in front
        self.per_s: float | None = None
        self._level = 0.0
        self._since = clock()
        self._paused_until = 0.0
        self._pauses = 0  # in a row
        self._refusals = 0  # in a row
        self._has_scout = False  # a request is under way to find out whether the service answers again
        self._sent: deque[float] = deque(maxlen=1000)
        self._accepted: deque[float] = deque(maxlen=1000)
        self._lowered_at = float("-inf")
        self._raised_at = 0.0
        self._refused_per_s = float("inf")  # the rate that was refused last; of the first refusal it is not known
        self._highest_per_s = float("inf")  # to which what was accepted may raise the rate
        self._configured_per_s = float("inf")
        self._catch_up_s = self.CATCH_UP_S
        self._forgotten_per_s = 0.0  # at this rate the limit is forgotten
        self._answered_at = float("-inf")
        self._refusal = ""  # what the service said when it refused last

    def get_pause(self) -> float:
        """Return the seconds for which everybody waits."""
        return self._paused_until - self._clock()

    def is_answering(self, patience_s: float) -> bool:
        """Tell whether the service has answered anybody lately."""
        return self._clock() - self._answered_at <= patience_s

    def check_hope(self, patience_s: float, retries: int) -> None:
        """Raise ProviderError while all wait for a service that has answered nobody for `patience_s`, or nobody ever in
        more than `retries` attempts. Whoever asks after the pause finds out whether it answers again.
        """
        now = self._clock()
        if now < self._paused_until and not self.is_answering(patience_s):
            silence_s = now - self._answered_at
            if silence_s < float("inf"):
                raise ProviderError(f"{self._refusal} (the service answered nobody for {silence_s:.0f} s)", status=429)
            if self._pauses > retries:
                attempts = f"in {self._pauses} attempts that the cases made together"
                raise ProviderError(f"{self._refusal} (the service answered nobody {attempts})", status=429)

    def join(self) -> object:
        """Take a place in the queue."""
        ticket = object()
        with self._lock:
            self._queue.append(ticket)
        return ticket

    def leave_queue(self, ticket: object) -> None:
        """Give the place up."""
        with self._lock:
            if ticket in self._queue:
                self._queue.remove(ticket)

    def take_turn(self, ticket: object) -> float:
        """Take the turn if it has come, and return 0; else return the seconds to wait before the next try."""
        with self._lock:
            now = self._clock()
            pause_s = self._paused_until - now
            if pause_s > 0:
                return pause_s
            if self._pauses:
                if self._has_scout:
                    return 0.05
                self._has_scout = True
            elif self.per_s is not None:
                self._refill(now)
                missing = 1 + self._queue.index(ticket) - self._level
                if missing > 1e-9:
                    return missing / self.per_s
                self._level -= 1
            self._queue.remove(ticket)
            self._sent.append(now)
            return 0.0

    def record_answer(self) -> None:
        """Record that the service answered a request: it did not refuse it."""
        with self._lock:
            now = self._clock()
            self._answered_at = now
            self._accepted.append(now)
            self._refusals = self._pauses = 0
            self._has_scout = False
            if self.per_s is None:
                return
            self._refill(now)
            calm_s, step_s = now - self._lowered_at, min(max(now - self._raised_at, 0.0), 1.0)
            self._raised_at = now
            if calm_s < 1.5:  # answers to what went out before the refusal
                accepted = sum(moment >= self._lowered_at - 1 for moment in self._accepted)
                self.per_s = max(self.per_s, min(accepted / max(calm_s + 1, 1.0), self._highest_per_s))
            is_near = 0.9 * self._refused_per_s <= self.per_s and calm_s < 3
            growth = 0.02 if is_near else 0.2 if self._refused_per_s == float("inf") else 0.25
            self.per_s = min(self.per_s * (1 + growth * step_s), self._configured_per_s)
            self._catch_up_s = min(self._catch_up_s * (1 + 0.1 * step_s), self.CATCH_UP_S)
            if calm_s >= 10 and self.per_s >= self._forgotten_per_s:
                self.per_s = None

    def record_failure(self) -> None:
        """Record that a request broke off: nothing is known of the rate."""
        with self._lock:
            self._has_scout = False

    def record_refusal(
        self, retry_after_s: float | None, configured_per_s: float | None = None, message: str = ""
    ) -> None:
        """Record an answer of `OVERLOADED`, and the seconds to wait that the service asks for, if any."""
        with self._lock:
            now = self._clock()
            self._refusals += 1
            self._refusal = message
            self._has_scout = False
            is_first = now - self._lowered_at >= 1.0 and now >= self._paused_until and not self._pauses
            if is_first:
                self._lower(now, configured_per_s)
            silence_s = now - self._answered_at
            is_quota = retry_after_s is not None and retry_after_s > self.QUOTA_S
            is_silent = silence_s > max(0.3, 6 / (self.per_s or 20.0))
            if silence_s == float("inf") or (self._refusals >= self.BLACKOUT and (is_silent or is_quota)):
                if now >= self._paused_until:
                    self._pauses += 1
                own_s = min(PAUSE_S * 2 ** (self._pauses - 1), self.LONGEST_PAUSE_S)
                pause_s = own_s * random.uniform(1.0, 1.2) if retry_after_s is None else retry_after_s  # noqa: S311
                self._paused_until = max(self._paused_until, now + pause_s)

    def _lower(self, now: float, configured_per_s: float | None) -> None:
        accepted = [moment for moment in self._accepted if now - self.WINDOW_S <= moment]
        span_s = max(now - min((moment for moment in self._sent if now - self.WINDOW_S <= moment), default=now), 1.0)
        accepted_per_s = len(accepted) / span_s
        rate = self.per_s or configured_per_s
        if rate is None:
            sent = sum(now - 1.0 <= moment for moment in self._sent)
            self._forgotten_per_s = max(self._forgotten_per_s, 2.0 * sent)
            lowered = max(accepted_per_s, sent / 2, 1.0)
        else:
            lowered = min(max(accepted_per_s, rate / 2), 0.85 * rate)
            self._forgotten_per_s = max(self._forgotten_per_s, 2 * rate)
        self._configured_per_s = configured_per_s or float("inf")
        if self.per_s is None:
            self._highest_per_s = self._configured_per_s
        else:
            self._refused_per_s, self._highest_per_s = self.per_s, 0.9 * self.per_s
            self._catch_up_s = max(self._catch_up_s / 2, 0.02)
        self.per_s = max(lowered, SLOWEST)
        self._level, self._since = 0.0, now
        self._lowered_at = self._raised_at = now

    def _refill(self, now: float) -> None:
        assert self.per_s is not None
        capacity = max(self.per_s * self._catch_up_s, 1.0)
        self._level = min(self._level + (now - self._since) * self.per_s, capacity)
        self._since = now


class RetryPolicy(Struct, frozen=True):
    """`retries` beyond the first attempt; waits in seconds, each at most `cap_s`.

    Answers of `OVERLOADED` are no attempts as long as the service has answered anybody within `patience_s`.
    """

    retries: int = 4
    first_s: float = 1.0
    cap_s: float = 60.0  # Gemini counts by the minute, and asks to wait for what is left of it
    patience_s: float = 300.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def wait_s(self, attempt: int, retry_after_s: float | None) -> float:
        """Return the seconds to wait after failed attempt number `attempt` (from 0). `retry_after_s` is what the
        service asks for."""
        backoff = min(self.first_s * 2**attempt, self.cap_s)
        jittered = backoff * random.uniform(0.5, 1.0)  # noqa: S311 - spreads requests, keeps no secret
        return float(jittered) if retry_after_s is None else max(retry_after_s, jittered / 10)


class Limiter:
    """The limits of one provider: the configured rates, and the pace of its service. `clock` and `sleep` are for
    tests."""

    def __init__(
        self,
        rates: Rates | None = None,
        *,
        pace: AdaptivePace | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        rates = rates or Rates()
        self.pace = pace or AdaptivePace(clock)
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._requests = _Bucket(rates.requests_per_minute, clock())
        self._tokens = _Bucket(rates.tokens_per_minute, clock())
        self._average = 0.0  # tokens of a request so far

    async def enter(self, policy: RetryPolicy = RetryPolicy(cap_s=float("inf"))) -> float:  # noqa: B008 - it is frozen
        """Wait for a place. Return the tokens that are reserved, for `leave`.

        Raises ProviderError where the service demands a pause of more than ``policy.cap_s`` of another case, or answers
        nobody for too long: all would wait, and none would get anything.
        """
        self._check_pause(policy)
        with self._lock:
            now = self._clock()
            reserved_tokens = self._average
            wait_s = max(self._requests.take(1, now), self._tokens.take(reserved_tokens, now))
        if wait_s > 0:
            await self._wait(wait_s)
        ticket = self.pace.join()
        try:
            while (wait_s := self.pace.take_turn(ticket)) > 0:
                self._check_pause(policy)
                await self._wait(wait_s)
        finally:
            self.pace.leave_queue(ticket)
        return reserved_tokens

    async def _wait(self, wait_s: float) -> None:
        with TRAFFIC.wait():
            await self._sleep(wait_s)

    def _check_pause(self, policy: RetryPolicy) -> None:
        self.pace.check_hope(policy.patience_s, policy.retries)
        pause_s = self.pace.get_pause()
        if pause_s > policy.cap_s:
            raise ProviderError(
                f"429: another case was told to leave the service alone for {pause_s:.0f} s more, "
                f"longer than the {policy.cap_s:g} s that a run waits",
                status=429,
                retry_after_s=pause_s,
            )

    def leave(self, reserved_tokens: float, usage: Usage | None) -> None:
        """Record that a reply came, and the tokens that it took."""
        with self._lock:
            if usage is not None:
                used = float(usage.count_tokens())
                self._tokens.take(used - reserved_tokens, self._clock())
                self._average = used if not self._average else 0.8 * self._average + 0.2 * used
        self.pace.record_answer()

    def cancel(self, reserved_tokens: float) -> None:
        """There is no reply: the tokens that were set aside for it are free again."""
        with self._lock:
            self._tokens.take(-reserved_tokens, self._clock())
        self.pace.record_failure()

    def record_refusal(self, retry_after_s: float | None, message: str = "") -> None:
        """Record an answer of `OVERLOADED`, and the seconds to wait that the service asks for, if any."""
        self.pace.record_refusal(retry_after_s, self._requests.per_s, message)

    @property
    def requests_per_minute(self) -> float | None:
        """The rate in force; None: as fast as the cases ask."""
        rates = [rate for rate in (self._requests.per_s, self.pace.per_s) if rate is not None]
        return min(rates) * 60 if rates else None


class _Bucket:
    """Fills at `per_s`; None: never empty. A level below zero is what is owed, and has to be waited for."""

    def __init__(self, per_minute: float | None, now: float) -> None:
        self.per_s = None if per_minute is None else per_minute / 60
        self._capacity = 0.0 if self.per_s is None else max(self.per_s * BURST_S, 1.0)
        self._level = self._capacity
        self._since = now

    def take(self, amount: float, now: float) -> float:
        """Take `amount` out (or put it back); the seconds until that much was there."""
        if self.per_s is None:
            return 0.0
        self._level = min(self._level + (now - self._since) * self.per_s, self._capacity) - amount
        self._since = now
        return max(-self._level / self.per_s, 0.0)


# The limiter of the request that is being sent.
current_limiter: ContextVar[Limiter | None] = ContextVar("evalkit_limiter", default=None)

_limiters: dict[tuple[str, Rates], Limiter] = {}
_paces: dict[str, AdaptivePace] = {}
_limiters_lock = threading.Lock()


def get_limiter(provider: str, rates: Rates, service: str | None = None) -> Limiter:
    """Return the one limiter of this process for `provider`, a service or a model with rates of its own.

    All limiters of one `service` (None: the provider itself) share its pace.
    """
    with _limiters_lock:
        pace = _paces.setdefault(service or provider, AdaptivePace())
        return _limiters.setdefault((provider, rates), Limiter(rates, pace=pace))


_loaded_clients: set[str] = set()


async def load_client(module: str) -> None:
    """Import a service's client package, which can take seconds: in a thread, and the deadline stands still."""
    if module not in _loaded_clients:
        with queue_context.get()():
            await asyncio.to_thread(import_module, module)
        _loaded_clients.add(module)


# -- retries

T = TypeVar("T")


def is_transient(error: ProviderError) -> bool:
    """Tell whether a second attempt makes sense. No status: the connection broke or timed out."""
    status = error.status
    if error.is_final:
        return False
    return status is None or status in (408, 429) or 500 <= status <= 599


async def call_with_retries(send: Callable[[], Awaitable[T]], policy: RetryPolicy) -> T:
    """Return the result of `send`, which takes its turn at the current limiter in each attempt.

    Raises the last ProviderError when the attempts are used up or waiting is pointless.
    """
    limiter = current_limiter.get()
    attempts = refusals = tries = 0
    while True:
        tries += 1
        reserved_tokens = 0.0 if limiter is None else await limiter.enter(policy)
        try:
            reply = await send()
            if limiter is not None:
                limiter.leave(reserved_tokens, getattr(reply, "usage", None))
            return reply
        except ProviderError as error:
            if limiter is not None:
                limiter.cancel(reserved_tokens)
            is_refused = limiter is not None and error.status in OVERLOADED
            if limiter is not None and is_refused:
                limiter.record_refusal(error.retry_after_s, str(error))
                refusals += 1
                is_refused = limiter.pace.is_answering(policy.patience_s) and refusals < MOST_REFUSALS
            wait_s = policy.wait_s(0 if is_refused else attempts, error.retry_after_s)
            is_last = not is_refused and attempts >= policy.retries
            if is_last or not is_transient(error) or wait_s > policy.cap_s:
                raise _build_final_error(error, tries, wait_s, policy) from error.__cause__
            attempts += not is_refused
        except BaseException:
            if limiter is not None:
                limiter.cancel(reserved_tokens)
            raise
        with TRAFFIC.wait():
            await policy.sleep(wait_s)


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
        url, is_refused = find_url(error), is_connection_refused(error)
        if url is None:
            return ProviderError(f"{service} could not be reached: {kind}")
        if is_refused and is_loopback(url):  # no program listens there, and a second attempt starts none
            return ProviderError(f"{service}: nothing listens at {url}: connection refused", is_final=True)
        return ProviderError(f"{service} could not be reached at {url}: {kind}")
    # JSONDecodeError and its like; a ValidationError is of the request, which the client did not send.
    if isinstance(error, ValueError) and type(error).__name__ not in ("ValueError", "ValidationError"):
        return ProviderError(f"{service} answered something that is no JSON: {kind}")
    return None


def find_url(error: BaseException) -> str | None:
    """Find the URL of the request that failed, without what may be secret in it."""
    for each in _iter_causes(error):
        with suppress(Exception):  # httpx raises for a request that was never set
            parts = urlsplit(str(each.request.url))  # type: ignore[attr-defined]
            return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return None


def is_connection_refused(error: BaseException) -> bool:
    """Return whether nothing listens at the address, at each address of its name."""
    causes = list(_iter_causes(error))
    return any(isinstance(each, ConnectionRefusedError) for each in causes) or "refused" in str(causes[-1]).lower()


def is_loopback(url: str) -> bool:
    """Return whether the URL is of this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _iter_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception, and those behind it; of a group, those of its first member."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # `raise error from error` is its own cause
        seen.add(id(error))
        yield error
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        error = inner or error.__cause__ or error.__context__


def parse_seconds(value: object) -> float | None:
    """Parse ``7``, ``7s`` or ``7.5s`` as seconds."""
    try:
        delay_s = float(str(value).removesuffix("s"))
    except ValueError:
        return None
    return delay_s if 0 <= delay_s < float("inf") else None


_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def read_retry_after(response: object) -> float | None:
    """Read the `Retry-After` header of a response as seconds: a number, or a date, which is compared with the
    service's own clock where the response has a date. Without it, the limits in ``x-ratelimit-*`` that are used up."""
    headers = getattr(response, "headers", None)
    if headers is None:
        return None
    delay_s = parse_seconds(headers.get("retry-after"))
    until = _parse_date(headers.get("retry-after")) if delay_s is None else None
    if until is None:
        return _read_reset(headers) if delay_s is None else delay_s
    return max((until - (_parse_date(headers.get("date")) or datetime.now(UTC))).total_seconds(), 0.0)


def _read_reset(headers: Mapping[str, str]) -> float | None:
    """Read after how many seconds OpenAI's used-up limits begin anew: ``1s``, ``6m0s``, ``20ms``."""
    delays_s = []
    for kind in ("requests", "tokens"):
        text = headers.get(f"x-ratelimit-reset-{kind}") or ""
        parts = _DURATION.findall(text)
        if headers.get(f"x-ratelimit-remaining-{kind}") == "0" and parts and _DURATION.sub("", text) == "":
            delays_s.append(sum(float(amount) * _UNITS[unit] for amount, unit in parts))
    return max(delays_s, default=None)


def _parse_date(text: object) -> datetime | None:
    try:
        moment = parsedate_to_datetime(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
