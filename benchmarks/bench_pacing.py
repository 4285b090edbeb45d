"""Many cases against services that refuse: how many are lost, how long it takes, and how often they refuse.

    python benchmarks/bench_pacing.py [--cases 100] [--turns 3] [--concurrency 50] [--rounds 3] [--worst 20]

The services are simulated, and so is the time: a token bucket of `rate` requests a second that holds `burst`, a quota
of requests in each minute, a number of requests at a time, beyond which it refuses, or a number of `places`, for which
requests wait; an answer after `latency`, a refusal after a quarter of it. The client is evalkit's own limiter and its
retries. `bound` is the time in which no client could do better, even one that knows the limit; `time` is a multiple of
it, `busiest` the refusals in one second after the third, and `most` those of one request.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import selectors
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from evalkit.errors import ProviderError
from evalkit.models.providers.adaptive_pace import AdaptivePace
from evalkit.models.providers.pacing import Limiter, Rates, RetryPolicy, call_with_retries, current_limiter
from evalkit.records.transcript import ModelTurn


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it waits."""

    def __init__(self) -> None:
        self._now = 0.0
        selector = selectors.DefaultSelector()
        real_select = selector.select

        def select(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout:
                self._now += timeout
            return real_select(0)

        selector.select = select  # type: ignore[method-assign]
        super().__init__(selector)

    def time(self) -> float:
        return self._now


class Service(NamedTuple):
    """A service with a limit. Instead of the bucket: `per_minute`, a quota that begins anew each minute, the first time
    after `first_minute_s`; or `at_a_time` requests; or `places`, for which requests wait, whose replies take as long as
    a lognormal distribution with a deviation of `spread` says. `jitter_s`: a request takes up to so long to arrive."""

    name: str
    rate: float = 20.0
    burst: float = 20.0
    latency_s: float = 0.2
    retry_after_s: float | None = None
    is_exact: bool = False  # a refusal says how long it takes until a request is accepted, as x-ratelimit-reset does
    per_minute: int | None = None
    first_minute_s: float = 60.0
    at_a_time: int | None = None
    places: int | None = None
    is_near: bool = False
    spread: float = 0.0
    jitter_s: float = 0.0
    outage_s: float = 0.0  # from second 2 on it refuses everybody for so long
    change: float = 1.0  # the rate is multiplied by it
    changed_at_s: float = 5.0

    def compute_bound(self, cases: int, turns: int, concurrency: int) -> float:
        """Return the seconds that the fastest client needs."""
        requests, shortest_s = cases * turns, -(-cases // concurrency) * turns * self.latency_s
        if self.per_minute is not None:
            minutes = (requests - 1) // self.per_minute
            return (self.first_minute_s + 60 * (minutes - 1) if minutes else 0.0) + self.latency_s
        at_once = self.at_a_time or self.places
        if at_once is not None:
            mean_s = self.latency_s * math.exp(self.spread**2 / 2)
            return math.ceil(requests / min(at_once, concurrency)) * mean_s
        at_rate_s = (requests - self.burst) / self.rate
        if at_rate_s > self.changed_at_s:
            at_rate_s = self.changed_at_s + (at_rate_s - self.changed_at_s) / self.change
        first_wave_s = max((min(cases, concurrency) - self.burst) / self.rate, 0.0)
        return max(at_rate_s + self.latency_s, first_wave_s + shortest_s) + self.outage_s


class Door:
    """What a service lets in, and what it has refused."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.under_way = 0
        self.refused_at: list[float] = []
        self._level, self._since = service.burst, 0.0
        self._used = dict[int, int]()

    def accept(self, now: float) -> bool:
        """Return whether a request that arrives now is accepted."""
        service = self.service
        if 2 <= now < 2 + service.outage_s:
            return False
        if service.per_minute is not None:
            minute = int((now + 60 - service.first_minute_s) // 60)
            self._used[minute] = self._used.get(minute, 0) + 1
            return self._used[minute] <= service.per_minute
        if service.at_a_time is not None:
            return self.under_way < service.at_a_time
        if service.places is not None:
            return True
        self._level = min(self._level + (now - self._since) * self._get_rate(now), service.burst)
        self._since = now
        if self._level < 1 - 1e-9:
            return False
        self._level -= 1
        return True

    def _get_rate(self, now: float) -> float:
        return self.service.rate * (self.service.change if now > self.service.changed_at_s else 1.0)

    def get_retry_after(self, now: float) -> float | None:
        """Return the seconds to wait that a refusal says."""
        service = self.service
        if service.retry_after_s is None and not service.is_exact:
            return None
        if service.per_minute is not None:
            return 60 - (now + 60 - service.first_minute_s) % 60
        return (1 - self._level) / self._get_rate(now) if service.is_exact else service.retry_after_s


class Outcome(NamedTuple):
    """What became of the cases."""

    lost: int
    seconds: float
    refusals: int
    busiest: int  # refusals in the busiest second after the first three
    unluckiest: int  # refusals of one request
    slowest_s: float  # of one case
    longest_s: float  # for which a request was at the service


def simulate(
    service: Service,
    *,
    cases: int = 100,
    turns: int = 3,
    concurrency: int = 50,
    rates: Rates = Rates(),  # noqa: B008 - it is frozen
    patience_s: float = 300.0,
    folder: Path | None = None,
) -> Outcome:
    """Run the cases against the service. With a `folder`, as two processes do that share it."""
    loop, door = VirtualLoop(), Door(service)
    unluckiest, slowest_s, longest_s = 0, 0.0, 0.0
    places = asyncio.Semaphore(service.places or 1)
    changed = asyncio.Event()

    async def answer() -> None:
        nonlocal places, longest_s
        began = loop.time()
        if began > service.changed_at_s and service.change != 1 and not changed.is_set():
            changed.set()  # more places
            for _ in range(int((service.change - 1) * (service.places or 1))):
                places.release()
        async with places:
            await asyncio.sleep(service.latency_s * math.exp(random.gauss(0, service.spread)))
        longest_s = max(longest_s, loop.time() - began)

    async def send() -> ModelTurn:
        if service.places is not None:
            await answer()
            return ModelTurn(text="done")
        await asyncio.sleep(service.latency_s / 8 + random.random() * service.jitter_s)
        if door.accept(loop.time()):
            door.under_way += 1
            await asyncio.sleep(service.latency_s * 7 / 8)
            door.under_way -= 1
            return ModelTurn(text="done")
        await asyncio.sleep(service.latency_s / 8)
        door.refused_at.append(loop.time())
        raise ProviderError("429", status=429, retry_after_s=door.get_retry_after(loop.time()))

    async def run_case(limiter: Limiter, slots: asyncio.Semaphore) -> bool:
        nonlocal unluckiest, slowest_s
        async with slots:
            current_limiter.set(limiter)
            began = loop.time()
            for _ in range(turns):
                tries = 0

                async def send_once_more() -> ModelTurn:
                    nonlocal tries
                    tries += 1
                    return await send()

                try:
                    await call_with_retries(send_once_more, RetryPolicy(patience_s=patience_s))
                except ProviderError:
                    return False
                unluckiest = max(unluckiest, tries - 1)
            slowest_s = max(slowest_s, loop.time() - began)
            return True

    async def run() -> int:
        pace_file, rates_file = (None, None) if folder is None else (folder / "pace", folder / "rates")
        limiters = [
            Limiter(
                rates,
                pace=AdaptivePace(loop.time, pace_file, is_near=service.is_near),
                file=rates_file,
                clock=loop.time,
            )
            for _ in range(1 if folder is None else 2)
        ]
        slots = asyncio.Semaphore(concurrency)
        runs = [run_case(limiters[number % len(limiters)], slots) for number in range(cases)]
        return (await asyncio.gather(*runs)).count(False)

    try:
        lost = loop.run_until_complete(run())
    finally:
        loop.close()
    seconds = [int(moment) for moment in door.refused_at if moment > 3]
    busiest = max(map(seconds.count, seconds), default=0)
    return Outcome(lost, loop.time(), len(door.refused_at), busiest, unluckiest, slowest_s, longest_s)


SERVICES = [
    Service("20/s, Retry-After 1", retry_after_s=1.0),
    Service("20/s, no Retry-After"),
    Service("20/s, burst 1, Retry-After 1", burst=1, retry_after_s=1.0),
    Service("20/s, burst 1", burst=1),
    Service("20/s, burst 1, jitter 5 ms", burst=1, jitter_s=0.005),
    Service("20/s, burst 1, jitter 20 ms", burst=1, jitter_s=0.02),
    Service("20/s, burst 5, jitter 20 ms", burst=5, jitter_s=0.02),
    Service("20/s, burst 100", burst=100),
    Service("5/s, burst 5", rate=5, burst=5, retry_after_s=1.0),
    Service("1/s, burst 1", rate=1, burst=1),
    Service("100/s, burst 10", rate=100, burst=10),
    Service("20/s, latency 1 s", latency_s=1.0),
    Service("20/s, latency 2 s", latency_s=2.0, retry_after_s=1.0),
    Service("20/s, latency 20 ms", latency_s=0.02),
    Service("120 a minute, Retry-After", per_minute=120, retry_after_s=1.0),
    Service("120 a minute, none", per_minute=120),
    Service("200 a minute, Retry-After", per_minute=200, retry_after_s=1.0),
    Service("200 a minute, none", per_minute=200),
    Service("the same, 23 s are left", per_minute=200, first_minute_s=23.0),
    Service("10 at a time", at_a_time=10),
    Service("10 at a time, latency 1 s", at_a_time=10, latency_s=1.0),
    Service("a laptop: 1 place", places=1, is_near=True, latency_s=1.0),
    Service("4 places, replies vary", places=4, is_near=True, latency_s=1.0, spread=0.5),
    Service("8 places, far away", places=8, latency_s=1.0, spread=0.5),
    Service("50 places, replies vary", places=50, latency_s=1.0, spread=1.0),
    Service("outage of 20 s", outage_s=20.0),
    Service("outage of an hour", outage_s=3600.0),
    Service("20/s, then 10/s", change=0.5),
    Service("20/s, then 40/s", change=2.0),
]
GRID = [
    Service(
        f"{rate:g}/s, burst {burst}, {latency_s:g} s, {said}",
        rate=rate,
        burst=burst,
        latency_s=latency_s,
        retry_after_s=1.0 if said == "Retry-After 1" else None,
        is_exact=said == "reset",
    )
    for rate in (1.0, 5.0, 20.0, 100.0)
    for burst in (1, 5, 20)
    for latency_s in (0.05, 0.2, 1.0, 3.0)
    for said in ("nothing", "Retry-After 1", "reset")
]
HEAD = f"{'service':34} {'client':14} {'bound':>8} {'time':>6} {'lost':>5} {'refused':>8} {'busiest':>8} {'most':>5}"


class Row(NamedTuple):
    """A service and a client, and the median outcome."""

    service: Service
    client: str
    times: float
    line: str


def measure(service: Service, client: str, rounds: int, size: dict[str, int]) -> Row:
    """Simulate a number of times, and return the row of the median time."""
    rates = Rates(requests_per_minute=service.rate * 60) if client == "rate given" else Rates()
    outcomes = []
    for seed in range(rounds):
        random.seed(seed)
        with tempfile.TemporaryDirectory(prefix="evalkit-pace-") as folder:
            place = Path(folder) if client == "two processes" else None
            patience_s = 2 * service.outage_s + 300
            outcomes.append(simulate(service, rates=rates, patience_s=patience_s, folder=place, **size))
    outcome = sorted(outcomes, key=lambda each: each.seconds)[rounds // 2]
    bound = service.compute_bound(**size)
    times = outcome.seconds / bound
    counts = f"{max(each.lost for each in outcomes):5} {outcome.refusals:8} {outcome.busiest:8} {outcome.unluckiest:5}"
    return Row(service, client, times, f"{service.name:34} {client:14} {bound:7.1f}s {times:6.2f} {counts}")


def list_clients(service: Service) -> list[str]:
    """List how evalkit is run against the service."""
    is_plain = service.per_minute is service.at_a_time is service.places is None and service.outage_s == 0
    return ["", "two processes", *(["rate given"] if is_plain and service.change == 1 else [])]


def main(write: Callable[[str], object] = sys.stdout.write) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3, help="of which the median is printed")
    parser.add_argument("--worst", type=int, default=20, help="rows of the grid that are printed")
    options = parser.parse_args()
    size = {"cases": options.cases, "turns": options.turns, "concurrency": options.concurrency}
    write(f"{HEAD}\n")
    for service in SERVICES:
        for client in list_clients(service):
            write(f"{measure(service, client, options.rounds, size).line}\n")
    rows = [measure(service, "", options.rounds, size) for service in GRID]
    rows.sort(key=lambda row: row.times, reverse=True)
    write(f"\nthe worst of {len(rows)} services, limits x bursts x latencies x what a refusal says\n{HEAD}\n")
    for row in rows[: options.worst]:
        write(f"{row.line}\n")


if __name__ == "__main__":
    main()
