"""How many requests a service takes at a time, found by the time that its replies take.

A service with `n` places answers up to `n` requests side by side, and the others wait their turn there: by Little's law
a reply takes as long as it does alone while at most `n` requests are under way, and `k / n` times as long with `k`.
TCP Vegas and the limits `Vegas` and `Gradient2` of Netflix's concurrency-limits go by the same: more requests that only
take longer are a queue. Those compare two averages, which replies of very different lengths upset. Here the replies of
the latest time are sorted by how many requests were under way, and `n` is the number that fits their logarithms best
(least squares), if it fits them much better than "it makes no difference", measured by how much they vary anyway.

A service somewhere else is not held back before that is known, and then only if its replies come about in the order of
the requests: with `n` places no reply overtakes `n` requests. So one whose replies just vary is never held back. A
service nearby begins with one request, because a model on a laptop often has one place, and deadlines run while a
request waits there; and of two that leave together nobody knows which is the first there, so that their times would
say nothing. Two follow, then four times as many as went well. A limit that was found is tried again, by one
request more, whenever what spoke for it is long ago.
"""

from __future__ import annotations

import math

from msgspec import Struct, field

FIRST = 1.0  # requests at a time to a service nearby
SECOND = 2.0  # after the first reply
MORE = 4  # times as many as went well may follow
NEARLY_ALL = 0.9  # of the limit: who had so many beside it, went well for the limit
MOST = 200  # requests at a time: so many are no limit
FREE_S = 0.05  # added to all times: so short a wait is no queue
KEPT, KEPT_ABOVE = 0.98, 0.9  # of the weight of what is known, by each reply; of what is known beyond the limit
GUESSED_REPLIES, GUESSED_SPREAD = 4.0, 0.3  # what is assumed of how much replies vary, before they have shown it
LEAST_VARIANCE = 0.04
EVIDENCE, DOUBT = 6.0, 1.0  # a limit that fits so many times better than chance is believed, and tried again below that
LEAST_LEFT = 0.7  # of the limit, by one reply of a service that does not keep the order
OVERTAKING = 0.1  # of the replies may overtake more requests than a limit allows
PROBE_REPLIES = 2  # times the limit: so many replies later one request more is tried


class Load(Struct, array_like=True):
    """What is known of replies while about so many requests were under way: averages, the latest weigh most."""

    weight: float = 0.0
    log_requests: float = 0.0
    log_s: float = 0.0


class Window(Struct, kw_only=True):
    """The number of requests that a service takes at a time, and what is known of it. `limit` None: any number."""

    limit: float | None = None
    is_found: bool = False  # a queue has shown
    loads: dict[int, Load] = field(default_factory=dict)
    spread: float = 0.0  # sum of squares within the loads
    spread_weight: float = 0.0
    overtaken: dict[int, float] = field(default_factory=dict)  # weights of replies by how many requests they overtook
    longest_s: float = 0.0  # of a reply

    def record_reply(self, requests: int, seconds: float, overtaken: int) -> None:
        """Learn from a reply: with how many `requests` it began to be under way, itself included, how long it took, and
        how many earlier ones it has overtaken."""
        self.longest_s = max(self.longest_s, seconds)
        self._add(requests, math.log(FREE_S + seconds), overtaken)
        places, gain = self._fit()
        guessed = GUESSED_REPLIES * GUESSED_SPREAD**2
        variance = max((self.spread + guessed) / (self.spread_weight + GUESSED_REPLIES), LEAST_VARIANCE)
        if gain > EVIDENCE * variance:
            self._lower(places)
        elif self.limit is not None and gain <= DOUBT * variance:
            self._raise(requests)

    def record_break(self, requests: int) -> None:
        """Learn from a connection that broke with so many `requests` under way, itself included: small servers close
        those for which they have no place."""
        if self.limit is not None and requests > 1:
            self.limit, self.is_found = min(self.limit, float(requests - 1)), True

    def _add(self, requests: int, log_s: float, overtaken: int) -> None:
        highest = None if self.limit is None else _sort(int(self.limit))
        for place, load in self.loads.items():
            load.weight *= KEPT if highest is None or place <= highest else KEPT_ABOVE
        self.overtaken = {number: weight * KEPT for number, weight in self.overtaken.items() if weight > 0.01}
        self.overtaken[overtaken] = self.overtaken.get(overtaken, 0.0) + 1
        load = self.loads.setdefault(_sort(requests), Load())
        before, load.weight = load.weight, load.weight + 1
        deviation = log_s - load.log_s
        load.log_requests += (math.log(requests) - load.log_requests) / load.weight
        load.log_s += deviation / load.weight
        self.spread, self.spread_weight = self.spread * KEPT, self.spread_weight * KEPT
        if before > 0.02:  # else all that is known of this load is this reply
            self.spread += deviation * (log_s - load.log_s)
            self.spread_weight += before / load.weight

    def _fit(self) -> tuple[int, float]:
        """Return the number of places that fits best, and by how much better than none it does, in squares."""
        loads = [load for load in self.loads.values() if load.weight > 0.01]
        most = max(load.log_requests for load in loads)
        flat = _sum_squares(loads, [load.log_s for load in loads])
        best, gain, places = 1, 0.0, 1
        while math.log(places) < most - 1e-9:
            alone = [load.log_s - max(load.log_requests - math.log(places), 0.0) for load in loads]
            better = flat - _sum_squares(loads, alone)
            if better > gain:
                best, gain = places, better
            places += max(places // 4, 1)
        return best, gain

    def _lower(self, places: int) -> None:
        overtaking = sum(weight for number, weight in self.overtaken.items() if number >= places)
        keeps_order = overtaking <= OVERTAKING * sum(self.overtaken.values())
        if keeps_order:
            self.limit, self.is_found = float(places), True
        elif self.limit is not None:  # places that share the machine: the more at a time, the slower is each
            self.limit, self.is_found = max(float(places), self.limit * LEAST_LEFT), True

    def _raise(self, requests: int) -> None:
        assert self.limit is not None
        if self.is_found and requests >= int(self.limit):
            self.limit += 1 / (PROBE_REPLIES * self.limit)
        elif not self.is_found and requests >= NEARLY_ALL * self.limit:
            self.limit = max(self.limit, float(MORE * requests if requests > 1 else SECOND))
        if self.limit >= MOST:
            self.limit, self.is_found = None, False


def _sort(requests: int) -> int:
    """Return the number of the load: each of the first four is one, then two for each doubling."""
    return requests if requests <= 4 else round(2 * math.log2(requests))


def _sum_squares(loads: list[Load], values: list[float]) -> float:
    """Return the weighted sum of the squares of what values differ from their mean."""
    pairs = list(zip([load.weight for load in loads], values, strict=True))
    mean = sum(weight * value for weight, value in pairs) / sum(weight for weight, _ in pairs)
    return sum(weight * (value - mean) ** 2 for weight, value in pairs)
