"""The rate that a service allows, found by its refusals: one control for each service, shared by processes.

A token bucket sends the requests out. Before the first refusal its rate doubles every tenth of a second (slow start),
so that a service without a burst has not refused fifty requests by the time its first answer comes. A refusal of a
request that was sent at the present rate lowers it once (multiplicative decrease), to what the service has accepted
since it refused before: between two refusals its own bucket was empty, so that this is its rate. While nothing is
refused the rate grows: fast up to where it was refused last, slowly about there, and fast again beyond.

Requests that are sent one after another and all refused are a quota that is used up, or an outage: all wait, and then
one goes ahead to try. When it is answered, all go on at the rate of before.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, field

from evalkit.errors import ProviderError
from evalkit.providers.shared_record import FileRecord, LocalRecord

NEVER = float("-inf")
UNLIMITED = float("inf")
SLOWEST = 1 / 60  # requests per second: a service that keeps refusing still gets one a minute
START_PER_S, START_LEVEL, DOUBLING_S = 200.0, 5.0, 0.1  # the slow start
MARGIN = 0.98  # of the rate that was measured
LEAST, MOST = 0.35, 0.95  # of the rate before, that one refusal leaves
SEARCH_GROWTH = 1.4  # a second, below nine tenths of the rate that was refused last
NEAR_GROWTH, BEYOND_GROWTH = 0.03, 0.25  # in a period, about that rate, and a tenth above it
PERIOD_REQUESTS, PERIOD_DELAYS = 10, 4  # a period is a second, or as long as so many requests, or delays of refusals
LONGEST_DELAY_S = 1.0
WINDOW = 3  # periods over which the rate is measured
CALM_S = 10.0  # without a refusal, after which a rate twice that of the last one is no limit any more
FIRST_CATCH_UP_S, LEAST_CATCH_UP_S, MOST_CATCH_UP_S = 0.05, 0.02, 1.0  # seconds' worth that may be made up for
BLACKOUT, BLACKOUT_S = 3, 0.3  # refusals in a row, sent within so long or longer
QUOTA_S = 2.0  # a service that asks to wait for longer means everybody
PAUSE_S = 0.8  # after a blackout that does not say how long to wait; twice as long each time
EARLY_S, LONGEST_EARLY_PAUSE_S, LONGEST_PAUSE_S = 90.0, 5.0, 50.0  # a quota of a minute is soon there again
SCOUT_S = 30.0  # for which others wait for the request that went ahead
MOST_REMEMBERED = 400  # requests


class SentRequest(Struct, array_like=True, gc=False):
    """A request that was sent, and whether it is known to be refused."""

    at: float
    is_refused: bool = False


class ServiceState(Struct, kw_only=True):
    """What is known of a service. Times are those of the monotonic clock, which the processes of a machine share."""

    per_s: float | None = None  # the rate; None: not limited so far
    start_per_s: float = START_PER_S  # the rate of the slow start
    level: float = START_LEVEL
    filled_at: float = 0.0
    grown_at: float = NEVER
    catch_up_s: float = FIRST_CATCH_UP_S
    sent: list[SentRequest] = field(default_factory=list)  # the latest
    first_number: int = 0  # of `sent`
    lowered_at: float = NEVER
    limited_at: float = NEVER  # since when there is a rate
    is_provisional: bool = False  # the rate is that of the slow start: not all of its refusals are known
    refused_at: float = NEVER  # when the latest refused request was sent
    refused_per_s: float = UNLIMITED  # the rate that was refused last
    delay_s: float = LONGEST_DELAY_S  # from sending to refusal: the average, or the latest if that is less
    answered_at: float = NEVER
    pauses: int = 0  # in a row
    paused_at: float = NEVER
    paused_until: float = NEVER
    scout_until: float = NEVER  # a request is under way to find out whether the service answers again
    per_s_before: float = 0.0  # what was accepted before the blackout
    refusal: str = ""  # what the service said when it refused last


class Turn:
    """A request's place in the queue, and after that what is known of its sending."""

    def __init__(self) -> None:
        self.number = -1
        self.sent_at = NEVER
        self.reserved_tokens = 0.0
        self.has_waited = False


class AdaptivePace:
    """The pace of one service. `file` is shared with other processes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, file: Path | None = None) -> None:
        self._clock = clock
        self._queue: deque[Turn] = deque()  # of this process
        self._record = LocalRecord(ServiceState) if file is None else FileRecord(file, ServiceState)

    @property
    def per_s(self) -> float | None:
        """The rate in force."""
        return self._record.latest.per_s

    def get_pause(self) -> float:
        """Return the seconds for which everybody waits."""
        return self._record.latest.paused_until - self._clock()

    def is_answering(self, patience_s: float) -> bool:
        """Tell whether the service has answered anybody lately."""
        return self._clock() - self._record.latest.answered_at <= patience_s

    def check_hope(self, patience_s: float, retries: int) -> None:
        """Raise ProviderError while all wait for a service that has answered nobody for `patience_s`, or nobody ever in
        more than `retries` attempts. Whoever asks after the pause finds out whether it answers again.
        """
        state, now = self._record.latest, self._clock()
        if now < state.paused_until and not self.is_answering(patience_s):
            silence_s = now - state.answered_at
            if silence_s < float("inf"):
                raise ProviderError(f"{state.refusal} (the service answered nobody for {silence_s:.0f} s)", status=429)
            if state.pauses > retries:
                attempts = f"in {state.pauses} attempts that the cases made together"
                raise ProviderError(f"{state.refusal} (the service answered nobody {attempts})", status=429)

    def join(self) -> Turn:
        """Take a place in the queue."""
        turn = Turn()
        self._queue.append(turn)
        return turn

    def leave_queue(self, turn: Turn) -> None:
        """Give the place up, if the turn has not come."""
        if turn in self._queue:
            self._queue.remove(turn)

    def take_turn(self, turn: Turn) -> float:
        """Take the turn if it has come, and return 0; else return the seconds to wait before the next try."""
        with self._record.change() as state:
            now = self._clock()
            if now < state.paused_until:
                return state.paused_until - now
            if state.pauses:
                if now < state.scout_until:
                    return 0.05
                state.scout_until = now + SCOUT_S
            else:
                per_s = _fill(state, now, is_waiting=turn.has_waited)
                if state.level < 1 - 1e-9:
                    turn.has_waited = True
                    place = self._queue.index(turn)
                    # The rate may grow meanwhile, and those in front may give up.
                    longest_s = DOUBLING_S / 2 if state.per_s is None else 0.1 + 0.02 * place
                    return min((1 + place - state.level) / per_s, longest_s)
                state.level -= 1
            turn.number, turn.sent_at = state.first_number + len(state.sent), now
            state.sent.append(SentRequest(now))
            if len(state.sent) > MOST_REMEMBERED:
                forgotten = MOST_REMEMBERED // 4
                del state.sent[:forgotten]
                state.first_number += forgotten
        self.leave_queue(turn)
        return 0.0

    def record_answer(self, turn: Turn) -> None:
        """Record that the service answered a request: it did not refuse it."""
        with self._record.change() as state:
            now = state.answered_at = self._clock()
            if not state.pauses or turn.sent_at < state.paused_at:
                return
            if state.per_s is not None and now - state.paused_at > QUOTA_S:
                state.per_s = state.refused_per_s = max(state.per_s, state.per_s_before)
            state.pauses, state.scout_until = 0, NEVER
            state.level, state.filled_at = min(state.level, 0.0), now
            state.lowered_at = state.grown_at = now

    def record_failure(self) -> None:
        """Record that a request broke off: nothing is known of the rate."""
        with self._record.change() as state:
            state.scout_until = NEVER

    def record_refusal(self, turn: Turn, retry_after_s: float | None, message: str = "") -> None:
        """Record an answer that the service has too much to do, and the seconds to wait that it asks for, if any."""
        with self._record.change() as state:
            now = self._clock()
            index = turn.number - state.first_number
            if not 0 <= index < len(state.sent):  # sent so long ago that nothing can be learnt from it
                return
            state.refusal, state.scout_until = message, NEVER
            # The first requests may be long on their way because the client is being set up.
            delay_s = min(now - turn.sent_at, LONGEST_DELAY_S)
            state.delay_s = min(delay_s, state.delay_s + 0.3 * (delay_s - state.delay_s))
            state.sent[index].is_refused = True
            state.refused_at = max(state.refused_at, turn.sent_at)
            is_blackout = bool(state.pauses) or _is_blackout(state, index, retry_after_s)
            if is_blackout:
                _pause(state, index, now, retry_after_s)
            if turn.sent_at <= state.lowered_at and state.is_provisional:
                state.per_s = _count_accepted(state.sent)
            elif state.per_s is None or (turn.sent_at > state.lowered_at and not is_blackout):
                _lower(state, index, now)


def _fill(state: ServiceState, now: float, *, is_waiting: bool) -> float:
    """Let the bucket fill, and the rate grow if requests wait for it. Return the rate."""
    passed_s, growing_s = max(now - state.filled_at, 0.0), min(max(now - state.grown_at, 0.0), 0.2)
    state.filled_at = state.grown_at = now
    if state.per_s is None:
        if state.sent:
            state.level += passed_s * state.start_per_s
            state.start_per_s = min(state.start_per_s * 2 ** (growing_s / DOUBLING_S), 1e6)
        return state.start_per_s
    capacity = max(state.per_s * state.catch_up_s, 1.0)
    state.level = min(state.level + passed_s * state.per_s, capacity)
    state.catch_up_s = min(state.catch_up_s * (1 + 0.1 * growing_s), MOST_CATCH_UP_S)
    calm_s = now - max(state.lowered_at, state.refused_at)
    if is_waiting:
        state.per_s *= 1 + _compute_growth(state, state.per_s, calm_s) * growing_s
    if calm_s >= CALM_S and (state.refused_per_s == UNLIMITED or 2 * state.refused_per_s < state.per_s):
        state.per_s, state.start_per_s = None, 1e6
        return state.start_per_s
    return state.per_s


def _compute_growth(state: ServiceState, per_s: float, calm_s: float) -> float:
    """Return the growth of the rate, in a second."""
    period_s = _compute_period(state, per_s)
    if per_s < 0.9 * state.refused_per_s:
        if calm_s <= max(0.1, state.delay_s):
            return 0.0
        return SEARCH_GROWTH if state.is_provisional else min(SEARCH_GROWTH, 0.15 / max(state.delay_s, 1e-3))
    if calm_s < period_s:
        return 0.0
    if per_s < 1.1 * state.refused_per_s:
        return NEAR_GROWTH * max(calm_s / period_s / 5, 1.0) / period_s
    return BEYOND_GROWTH / period_s


def _compute_period(state: ServiceState, per_s: float) -> float:
    return max(1.0, PERIOD_REQUESTS / per_s, PERIOD_DELAYS * state.delay_s)


def _is_blackout(state: ServiceState, index: int, retry_after_s: float | None) -> bool:
    """Return whether the service refuses everybody."""
    first = _find_first_of_blackout(state, index)
    if first == 0 and state.first_number == 0 and state.answered_at == NEVER:
        return True
    is_quota = retry_after_s is not None and retry_after_s > QUOTA_S
    is_long = state.sent[index].at - state.sent[first].at >= max(BLACKOUT_S, state.delay_s)
    return index - first + 1 >= BLACKOUT and (is_quota or is_long)


def _find_first_of_blackout(state: ServiceState, index: int) -> int:
    """Return the first of the refused requests that were sent one after another up to `index`."""
    while index > 0 and state.sent[index - 1].is_refused:
        index -= 1
    return index


def _pause(state: ServiceState, index: int, now: float, retry_after_s: float | None) -> None:
    if now >= state.paused_until:
        if not state.pauses:
            state.paused_at = now
            before = state.sent[: _find_first_of_blackout(state, index)]
            state.per_s_before = _count_accepted(before)
        state.pauses += 1
    longest_s = LONGEST_EARLY_PAUSE_S if now - state.paused_at < EARLY_S else LONGEST_PAUSE_S
    own_s = min(PAUSE_S * 2 ** min(state.pauses - 1, 10), longest_s)
    pause_s = own_s * random.uniform(1.0, 1.2) if retry_after_s is None else retry_after_s  # noqa: S311
    state.paused_until = max(state.paused_until, now + pause_s)


def _lower(state: ServiceState, index: int, now: float) -> None:
    if state.per_s is None:
        state.per_s, state.limited_at, state.is_provisional = _count_accepted(state.sent), now, True
    else:
        if now - state.limited_at > 0.3:  # before, less was sent than the rate allowed
            state.refused_per_s = state.per_s
        measured_per_s = MARGIN * _measure(state, index)
        state.per_s = max(min(max(measured_per_s, LEAST * state.per_s), MOST * state.per_s), SLOWEST)
        state.catch_up_s = max(state.catch_up_s / 2, LEAST_CATCH_UP_S)
        state.is_provisional = False
    state.level, state.filled_at = min(state.level, 0.0), now
    state.lowered_at = state.grown_at = now


def _measure(state: ServiceState, index: int) -> float:
    """Return how many requests a second the service accepted between two refusals: the one of `index`, and the first
    within the window. Without one, it is measured from the first request in the window on."""
    at = state.sent[index].at
    window_s = WINDOW * _compute_period(state, state.per_s or START_PER_S)
    indices = [i for i, request in enumerate(state.sent[:index]) if at - request.at <= window_s]
    first = next((i for i in indices if state.sent[i].is_refused), indices[0] if indices else index)
    span_s = at - state.sent[first].at
    return sum(not request.is_refused for request in state.sent[first:index]) / span_s if span_s >= 0.05 else 0.0


def _count_accepted(sent: list[SentRequest]) -> float:
    """Return how many requests of the latest second in which some were sent are not refused so far; at least 1."""
    return max(float(sum(not request.is_refused for request in sent if sent[-1].at - request.at <= 1.0)), 1.0)
