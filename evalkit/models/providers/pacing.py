"""The pace at which a model's service gets requests: configured rates, the control of refusals, retries, and errors.

All cases of a run share them, those of other processes of this machine too. A request waits for its place, about in the
order of arrival. Tokens are known only afterwards: a request reserves the average of the requests so far, and the
difference is settled with its reply. The clock is real time and the waits are computed, so that one limiter serves
several event loops and threads.

An answer 429 (or 503, 529) is no failed attempt as long as the service lets others through: the request waits and goes
out again. `AdaptivePace` finds the rate that the service allows, one for each service.

Broken connections, timeouts, and HTTP 408 and 5xx are retried, and 429 of a service that answers nobody; but not for
ever what may be the request's fault: HTTP 500 with the same text three times, a time limit that has passed twice. The
wait doubles from one second to the cap, with jitter, so that concurrent cases don't come back together. A service that
asks for more than the cap ends the attempts.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from evalkit.errors import ProviderError
from evalkit.jsonvalue import JsonObject
from evalkit.locks import create_lock
from evalkit.models.providers.adaptive_pace import AdaptivePace, FileRecord, LocalRecord, Turn
from evalkit.models.providers.time_limits import TimeLimitError
from evalkit.records.transcript import Usage
from evalkit.text.url import drop_secret_parts, is_near

RATES = ("requests_per_minute", "tokens_per_minute")
BURST_S = 6.0  # so many seconds' worth may go out at once
_NEVER_SERVED = (501, 505)  # answers of a service that can't do what is asked
OVERLOADED = (429, 503, 529)  # answers of a service that has too much to do
MOST_REFUSALS = 100  # of one request while others get through: it is too large, or starved

# The context in which a case waits for its turn: its deadline stands still meanwhile.
queue_context: ContextVar[Callable[[], AbstractContextManager[Any]]] = ContextVar(
    "evalkit_queueing", default=nullcontext
)


class LiveTotals:
    """What live models have taken in this process so far: a person who waits for the run is shown it."""

    def __init__(self) -> None:
        self._lock = create_lock()
        self.replies = 0
        self.tokens = 0
        self.written = 0  # of the tokens, by models
        self.usd: float | None = None  # None: no reply had a known price
        self.waiting = 0  # requests that wait now: for their turn, or between two attempts
        self._sent: dict[object, float] = {}  # requests that are at their services, with when they were sent

    def record(self, usage: Usage | None, usd: float | None) -> None:
        """Record a reply."""
        with self._lock:
            self.replies += 1
            if usage is not None:
                self.tokens += usage.count_tokens()
                self.written += usage.output_tokens + usage.reasoning_tokens
            if usd is not None:
                self.usd = (self.usd or 0.0) + usd

    def get_pause(self) -> float:
        """Return the seconds for which a service is left alone."""
        with _limiters_lock:
            return max((pace.get_pause() for pace in _paces.values()), default=0.0)

    def list_places(self) -> dict[str, int]:
        """List the services that take few requests at a time, by their URLs or kinds, with how many they take."""
        with _limiters_lock:
            paces = list(_paces.items())
        listed = {}
        for (service, _), pace in paces:
            if (places := pace.places) is not None:
                kind, _, url = service.partition("@")
                listed[drop_secret_parts(url) or kind] = places
        return listed

    def get_longest(self) -> float:
        """Return the seconds for which the oldest request is at its service."""
        with self._lock:
            return time.monotonic() - min(self._sent.values()) if self._sent else 0.0

    @contextmanager
    def send(self) -> Iterator[None]:
        """Count a request that is at its service."""
        key = object()
        with self._lock:
            self._sent[key] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._sent[key]

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


TRAFFIC = LiveTotals()


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


class Bucket(Struct, kw_only=True):
    """A bucket that fills at a rate of its own. A level below zero is what is owed, and has to be waited for."""

    level: float
    filled_at: float

    def take(self, amount: float, now: float, per_s: float | None) -> float:
        """Take `amount` out (or put it back); the seconds until that much was there. `per_s` None: never empty."""
        if per_s is None:
            return 0.0
        self.level = min(self.level + (now - self.filled_at) * per_s, _compute_capacity(per_s)) - amount
        self.filled_at = now
        return max(-self.level / per_s, 0.0)


def _compute_capacity(per_s: float | None) -> float:
    return 0.0 if per_s is None else max(per_s * BURST_S, 1.0)


class LimiterState(Struct, kw_only=True):
    """The state of the configured rates of one provider. Times are those of the monotonic clock."""

    requests: Bucket
    tokens: Bucket
    average_tokens: float = 0.0  # of a request so far


class Limiter:
    """The limits of one provider: the configured rates, and the pace of its service. `file` is shared with other
    processes; `clock` and `sleep` are for tests."""

    def __init__(
        self,
        rates: Rates | None = None,
        *,
        pace: AdaptivePace | None = None,
        file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        rates = rates or Rates()
        self.pace = pace or AdaptivePace(clock)
        self._clock = clock
        self._sleep = sleep
        self._requests_per_s, self._tokens_per_s = (
            None if rate is None else rate / 60 for rate in (rates.requests_per_minute, rates.tokens_per_minute)
        )
        self._record = LocalRecord(self._create_state) if file is None else FileRecord(file, self._create_state)

    def _create_state(self) -> LimiterState:
        requests, tokens = (
            Bucket(level=_compute_capacity(per_s), filled_at=self._clock())
            for per_s in (self._requests_per_s, self._tokens_per_s)
        )
        return LimiterState(requests=requests, tokens=tokens)

    async def enter(self, policy: RetryPolicy = RetryPolicy(cap_s=float("inf"))) -> Turn:  # noqa: B008 - it is frozen
        """Wait for a place. Return the turn, which is to be handed to one of the methods below.

        Raises ProviderError where the service demands a pause of more than ``policy.cap_s`` of another case, or answers
        nobody for too long: all would wait, and none would get anything.
        """
        self.check_pause(policy)
        reserved_tokens = wait_s = 0.0
        if self.has_rates:
            with self._record.change() as state:
                now = self._clock()
                reserved_tokens = state.average_tokens
                wait_s = max(
                    state.requests.take(1, now, self._requests_per_s),
                    state.tokens.take(reserved_tokens, now, self._tokens_per_s),
                )
        if wait_s > 0:
            await self._wait(wait_s)
        turn = self.pace.join()
        turn.reserved_tokens = reserved_tokens
        try:
            while (wait_s := self.pace.take_turn(turn)) > 0:
                self.check_pause(policy)
                await self._wait(wait_s)
        finally:
            self.pace.leave_queue(turn)
        return turn

    async def _wait(self, wait_s: float) -> None:
        with TRAFFIC.wait():
            await self._sleep(wait_s)

    def check_pause(self, policy: RetryPolicy) -> None:
        """Raise ProviderError where all wait for longer than ``policy.cap_s``, or for a service that answers nobody."""
        self.pace.check_hope(policy.patience_s, policy.retries)
        pause_s = self.pace.get_pause()
        if pause_s > policy.cap_s:
            raise ProviderError(
                f"429: another case was told to leave the service alone for {pause_s:.0f} s more, "
                f"longer than the {policy.cap_s:g} s that a run waits",
                status=429,
                retry_after_s=pause_s,
            )

    def leave(self, turn: Turn, usage: Usage | None) -> None:
        """Record that a reply came, and the tokens that it took."""
        if self.has_rates and usage is not None:
            with self._record.change() as state:
                used = float(usage.count_tokens())
                state.tokens.take(used - turn.reserved_tokens, self._clock(), self._tokens_per_s)
                state.average_tokens = used if not state.average_tokens else 0.8 * state.average_tokens + 0.2 * used
        self.pace.record_answer(turn)

    def cancel(self, turn: Turn, *, is_broken: bool = False) -> None:
        """Record that there is no reply. `is_broken`: since the connection broke."""
        self._free_tokens(turn)
        self.pace.record_failure(turn, is_broken=is_broken)

    def record_refusal(self, turn: Turn, retry_after_s: float | None, message: str = "") -> None:
        """Record an answer of `OVERLOADED`, and the seconds to wait that the service asks for, if any."""
        self._free_tokens(turn)
        self.pace.record_refusal(turn, retry_after_s, message)

    def _free_tokens(self, turn: Turn) -> None:
        if turn.reserved_tokens:
            with self._record.change() as state:
                state.tokens.take(-turn.reserved_tokens, self._clock(), self._tokens_per_s)

    @property
    def has_rates(self) -> bool:
        return self._requests_per_s is not None or self._tokens_per_s is not None

    @property
    def requests_per_minute(self) -> float | None:
        """The rate in force; None: as fast as the cases ask."""
        rates = [rate for rate in (self._requests_per_s, self.pace.per_s) if rate is not None]
        return min(rates) * 60 if rates else None


# The limiter of the request that is being sent.
current_limiter: ContextVar[Limiter | None] = ContextVar("evalkit_limiter", default=None)
# Raises where the request, which has waited for its place, must not go out any more.
check_budget_left: ContextVar[Callable[[], None]] = ContextVar("evalkit_budget_left", default=lambda: None)

_limiters: dict[tuple[str, Rates, Path | None], Limiter] = {}
_paces: dict[tuple[str, Path | None], AdaptivePace] = {}
_limiters_lock = create_lock()


def get_limiter(
    provider: str, rates: Rates, service: str | None = None, folder: Path | None = None, *, url: str | None = None
) -> Limiter:
    """Return the one limiter of this process for `provider`, a service or a model with rates of its own.

    All limiters of one `service` (None: the provider itself), which is at `url`, share its pace. What they know stands
    in `folder`, which processes share; None: in this process alone.
    """
    service = service or provider
    with _limiters_lock:
        if (service, folder) not in _paces:
            file = _name_file(folder, "pace", service)
            _paces[service, folder] = AdaptivePace(file=file, is_near=url is not None and is_near(url))
        if (provider, rates, folder) not in _limiters:
            file = _name_file(folder, "rates", f"{provider} {rates}")
            _limiters[provider, rates, folder] = Limiter(rates, pace=_paces[service, folder], file=file)
        return _limiters[provider, rates, folder]


def _name_file(folder: Path | None, kind: str, name: str) -> Path | None:
    return None if folder is None else folder / f"{kind}-{sha256(name.encode()).hexdigest()[:16]}"


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
    if error.is_final or status in _NEVER_SERVED:
        return False
    return status is None or status in (408, 429) or 500 <= status <= 599


class _Failures:
    """The failures of one request. `is_settled`: another attempt would end alike, for HTTP 500 has come three times in
    a row with the same text, or a time limit has passed twice."""

    def __init__(self) -> None:
        self.count = 0
        self.is_settled = False
        self._last: tuple[int | None, str] | None = None
        self._alike = 0

    def add(self, error: ProviderError) -> None:
        """Add a failure."""
        failure = (error.status, str(error))
        self._alike = self._alike + 1 if failure == self._last else 1
        self._last = failure
        self.count += 1
        most = 3 if error.status == 500 else 2 if isinstance(error, TimeLimitError) else MOST_REFUSALS
        self.is_settled = self._alike >= most


async def call_with_retries(send: Callable[[], Awaitable[T]], policy: RetryPolicy) -> T:
    """Return the result of `send`, which takes its turn at the current limiter in each attempt. Raises the last
    ProviderError when the attempts are used up or waiting is pointless, and BudgetSpentError."""
    limiter = current_limiter.get()
    attempts = refusals = 0
    failures = _Failures()
    while True:
        turn = Turn() if limiter is None else await limiter.enter(policy)
        try:
            check_budget_left.get()()
            with TRAFFIC.send():
                reply = await send()
            if limiter is not None:
                limiter.leave(turn, getattr(reply, "usage", None))
            return reply
        except ProviderError as error:
            is_refused, asked_s = False, error.retry_after_s
            if limiter is not None and error.status in OVERLOADED and not error.is_final:
                limiter.record_refusal(turn, asked_s, str(error))
                refusals += 1
                is_refused = limiter.pace.is_answering(policy.patience_s) and refusals < MOST_REFUSALS
            elif limiter is not None:
                limiter.cancel(turn, is_broken=error.status is None and not isinstance(error, TimeLimitError))
            if is_refused and (asked_s is None or asked_s > policy.cap_s):  # others get through: the pace is enough
                asked_s = 0.0
            wait_s = policy.wait_s(0 if is_refused else attempts, asked_s)
            failures.add(error)
            is_last = failures.is_settled or (not is_refused and attempts >= policy.retries)
            if is_last or not is_transient(error) or wait_s > policy.cap_s:
                raise _build_final_error(error, failures, wait_s, policy) from error.__cause__
            if limiter is not None:
                limiter.check_pause(policy)
            attempts += not is_refused
        except BaseException:
            if limiter is not None:
                limiter.cancel(turn)
            raise
        with TRAFFIC.wait():
            await policy.sleep(wait_s)


def _build_final_error(error: ProviderError, failures: _Failures, wait_s: float, policy: RetryPolicy) -> ProviderError:
    """Build `error` with the reason why there is no further attempt."""
    notes = []
    if failures.is_settled:
        notes.append(f"given up after {failures.count} attempts, which were answered alike")
    elif failures.count > 1:
        notes.append(f"gave up after {failures.count} attempts")
    if is_transient(error) and wait_s > policy.cap_s:
        notes.append(f"the service asks to wait {wait_s:g} s, more than the {policy.cap_s:g} s that a run waits")
    if not notes:
        return error
    return ProviderError(
        f"{error} ({'; '.join(notes)})",
        status=error.status,
        retry_after_s=error.retry_after_s,
        is_final=error.is_final,
        refused_key=error.refused_key,
    )
