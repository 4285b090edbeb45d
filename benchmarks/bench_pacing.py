"""Many cases against services that refuse: how many are lost, how long it takes, and how often they refuse.

    python benchmarks/bench_pacing.py [--cases 100] [--turns 3] [--concurrency 50]

The services are simulated, and so is the time: a token bucket of `rate` requests a second that holds `burst`, a quota
of requests in each minute, or a number of requests at a time; an answer after `latency`, a refusal after a quarter of
it. The client is evalkit's own limiter and its retries. `bound` is the time in which no client could do better; `time`
is a multiple of it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import selectors
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from evalkit.errors import ProviderError
from evalkit.model.transcript import ModelTurn
from evalkit.providers.adaptive_pace import AdaptivePace
from evalkit.providers.pacing import Limiter, Rates, RetryPolicy, call_with_retries, current_limiter


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
    after `first_minute_s`; or `at_a_time` requests. `jitter_s`: a request takes up to so long to arrive."""

    name: str
    rate: float = 20.0
    burst: float = 20.0
    latency_s: float = 0.2
    retry_after_s: float | None = None
    per_minute: int | None = None
    first_minute_s: float = 60.0
    at_a_time: int | None = None
    jitter_s: float = 0.0
    outage_s: float = 0.0  # from second 2 on it refuses everybody for so long

    def compute_bound(self, requests: int, depth: int) -> float:
        """Return the seconds that the fastest client needs."""
        if self.per_minute is not None:
            minutes = (requests - 1) // self.per_minute
            return (self.first_minute_s + 60 * (minutes - 1) if minutes else 0.0) + self.latency_s
        if self.at_a_time is not None:
            return requests / self.at_a_time * self.latency_s
        return max((requests - self.burst) / self.rate + self.latency_s, depth * self.latency_s) + self.outage_s


class Outcome(NamedTuple):
    """What became of the cases."""

    lost: int
    seconds: float
    refusals: int
    busiest: int  # refusals in the busiest second after the first three


def simulate(
    service: Service,
    *,
    cases: int,
    turns: int,
    concurrency: int,
    rates: Rates,
    patience_s: float,
    folder: Path | None = None,
) -> Outcome:
    """Run the cases against the service. With a `folder`, as two processes do that share it."""
    loop = VirtualLoop()
    level, since, used, under_way = service.burst, 0.0, dict[int, int](), 0
    refused: list[float] = []

    def accepts(now: float) -> bool:
        nonlocal level, since
        if 2 <= now < 2 + service.outage_s:
            return False
        if service.per_minute is not None:
            minute = int((now + 60 - service.first_minute_s) // 60)
            used[minute] = used.get(minute, 0) + 1
            return used[minute] <= service.per_minute
        if service.at_a_time is not None:
            return under_way < service.at_a_time
        level, since = min(level + (now - since) * service.rate, service.burst), now
        if level < 1:
            return False
        level -= 1
        return True

    async def send() -> ModelTurn:
        nonlocal under_way
        await asyncio.sleep(service.latency_s / 8 + random.random() * service.jitter_s)
        if accepts(loop.time()):
            under_way += 1
            await asyncio.sleep(service.latency_s * 7 / 8)
            under_way -= 1
            return ModelTurn(text="done")
        await asyncio.sleep(service.latency_s / 8)
        refused.append(loop.time())
        minute_s = 60 - (loop.time() + 60 - service.first_minute_s) % 60
        left_s = minute_s if service.per_minute is not None else service.retry_after_s
        raise ProviderError("429", status=429, retry_after_s=left_s if service.retry_after_s is not None else None)

    async def run() -> int:
        pace_file, rates_file = (None, None) if folder is None else (folder / "pace", folder / "rates")
        limiters = [
            Limiter(rates, pace=AdaptivePace(loop.time, pace_file), file=rates_file, clock=loop.time)
            for _ in range(1 if folder is None else 2)
        ]
        policy, slots = RetryPolicy(patience_s=patience_s), asyncio.Semaphore(concurrency)

        async def run_case(number: int) -> bool:
            async with slots:
                current_limiter.set(limiters[number % len(limiters)])
                try:
                    for _ in range(turns):
                        await call_with_retries(send, policy)
                except ProviderError:
                    return False
                return True

        return (await asyncio.gather(*map(run_case, range(cases)))).count(False)

    try:
        lost = loop.run_until_complete(run())
    finally:
        loop.close()
    seconds = [int(moment) for moment in refused if moment > 3]
    return Outcome(lost, loop.time(), len(refused), max(map(seconds.count, seconds), default=0))


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
    Service("outage of 20 s", outage_s=20.0),
    Service("outage of an hour", outage_s=3600.0),
]


def main(write: Callable[[str], object] = sys.stdout.write) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=50)
    options = parser.parse_args()
    write(f"{'service':28} {'rate given':>10} {'bound':>9} {'time':>6} {'lost':>5} {'refused':>8} {'busiest':>8}\n")
    for service in SERVICES:
        random.seed(0)
        known = service.per_minute is None and service.at_a_time is None and service.outage_s == 0
        for rates in [Rates(), *([Rates(requests_per_minute=service.rate * 60)] if known else [])]:
            outcome = simulate(
                service,
                cases=options.cases,
                turns=options.turns,
                concurrency=options.concurrency,
                rates=rates,
                patience_s=2 * service.outage_s + 300,
            )
            bound = service.compute_bound(options.cases * options.turns, options.turns)
            given = "no" if rates == Rates() else "yes"
            write(
                f"{service.name:28} {given:>10} {bound:8.1f}s {outcome.seconds / bound:6.2f} {outcome.lost:5} "
                f"{outcome.refusals:8} {outcome.busiest:8}\n"
            )


if __name__ == "__main__":
    main()
