"""The rate that a service allows, found by its refusals: one control for each service, and the small record by which
processes share it.

A token bucket sends the requests out. Before the first refusal its rate doubles every quarter of a second (slow
start), so that a service without a burst has not refused fifty requests by the time its first answer comes. Then the
rate is searched: halved by refusals, and doubled while there are none.

Once it is about right, a refusal lowers it to a little less than what the refused request was sent at, and to much less
if few requests went well since it was lowered before. It grows as that of CUBIC does (RFC 9438): fast at first, slowly
about the rate that was refused, and ever faster beyond. A service without a burst loses the place of a refused request,
so that the drop is small, and the growth takes many requests.

Requests that are sent one after another and all refused are a quota that is used up, or an outage: all wait, and then
one goes ahead to try. When it is answered, all go on at the rate of before.

How many requests may be under way at a time is found by the time that replies take: `Window`.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct, field

from evalkit.errors import ProviderError
from evalkit.locks import create_lock
from evalkit.models.providers.window import FIRST, Window

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

T = TypeVar("T", bound=msgspec.Struct)
_TRIES = 50  # of a millisecond each: nobody holds the file for longer, unless it stands still
_LOCKED_BYTE = 1 << 30  # Windows locks bytes, which nobody else may read then: one that is never written


class LocalRecord(Generic[T]):
    """A record of this process, for its threads."""

    def __init__(self, create: Callable[[], T]) -> None:
        self.latest = create()
        self._lock = create_lock()

    @contextmanager
    def change(self) -> Iterator[T]:
        """Hand out the record, to be changed."""
        with self._lock:
            yield self.latest


class FileRecord(LocalRecord[T]):
    """A record in a file that several processes share.

    The file is opened each time, so that no descriptor can be closed, or inherited, by an agent. Who can't have it (it
    is gone, or another process stands still with it) goes on with what was seen last. A damaged file is begun anew.
    """

    def __init__(self, file: Path, create: Callable[[], T]) -> None:
        super().__init__(create)
        self._file = file
        self._create = create

    @contextmanager
    def change(self) -> Iterator[T]:
        """Hand out the record as the process that had it last left it, to be changed."""
        with self._lock:
            descriptor = -1
            with suppress(OSError):
                descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            try:
                is_locked = descriptor >= 0 and _lock(descriptor)
                if is_locked:
                    self._read(descriptor)
                yield self.latest
                if is_locked:
                    self._write(descriptor)
            finally:
                if descriptor >= 0:
                    os.close(descriptor)  # which unlocks it

    def _read(self, descriptor: int) -> None:
        data = b""
        with suppress(OSError):
            while piece := os.read(descriptor, 1 << 16):
                data += piece
        if data:
            try:
                self.latest = msgspec.msgpack.decode(data, type=type(self.latest))
            except msgspec.DecodeError:  # somebody was killed while it was written
                self.latest = self._create()

    def _write(self, descriptor: int) -> None:
        data = msgspec.msgpack.encode(self.latest)
        with suppress(OSError):  # a full disk
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, data)
            os.ftruncate(descriptor, len(data))


def _lock(descriptor: int) -> bool:
    """Lock a file, and return whether that succeeded. No process may wait for one that stands still."""
    for _ in range(_TRIES):
        try:
            if sys.platform == "win32":
                os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
                os.lseek(descriptor, 0, os.SEEK_SET)
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.001)
        else:
            return True
    return False


NEVER = float("-inf")
SLOWEST = 1 / 60  # requests per second: a service that keeps refusing still gets one a minute
START_PER_S, START_LEVEL, DOUBLING_S = 40.0, 5.0, 0.25  # the slow start
SEARCH_REQUESTS, SEARCH_PER_S = 5, 50.0  # the search begins with so many in the delay of a refusal, or a second
SEARCH_DOUBLING_S, SEARCH_DELAYS = 0.1, 2  # the search doubles the rate in so long, or so many delays, at the earliest
LEAST_DROP, MOST_DROP = 0.05, 0.5  # of the rate
CALM_REQUESTS = 5  # so many that went well after a drop make the next one the least
GROWTH, GROWTH_BEYOND = 0.02, 0.2  # in a period: CUBIC's constant, below the rate that was refused and beyond it
PERIOD_REQUESTS, PERIOD_DELAYS = 30, 8  # a period is a second, or as long as so many requests, or delays of refusals
LONGEST_DELAY_S = 1.0
CALM_S = 10.0  # without a refusal, after which a rate twice that of the last one is no limit any more
FIRST_CATCH_UP_S, LEAST_CATCH_UP_S, MOST_CATCH_UP_S = 0.05, 0.01, 1.0  # seconds' worth that may be made up for
BLACKOUT, BLACKOUT_S = 3, 0.2  # refusals in a row, sent within so long or longer
QUOTA_S = 2.0  # a service that asks to wait for longer means everybody
PAUSE_S = 0.8  # after a blackout that does not say how long to wait; twice as long each time
EARLY_S, LONGEST_EARLY_PAUSE_S, LONGEST_PAUSE_S = 90.0, 5.0, 50.0  # a quota of a minute is soon there again
SCOUT_S = 30.0  # for which others wait for the request that went ahead
MOST_REMEMBERED = 400  # requests
MOST_RECENT = 100  # of them
LEAST_POLL_S, MOST_POLL_S = 0.005, 0.25  # between two looks for a place at a service that has few
LOST_S = 600.0  # a request that has been under way for so long, or three times as long as any, is not coming back


class SentRequest(Struct, array_like=True, gc=False):
    """A request that was sent, and whether it is known to be refused."""

    at: float
    per_s: float  # the rate in force
    is_refused: bool = False


class UnderWay(Struct, array_like=True, gc=False):
    """A request that is under way. `requests` were when it was sent, itself included."""

    number: int
    at: float
    requests: int
    process: int


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
    refused_at: float = NEVER  # when the latest refused request was sent
    refused_per_s: float | None = None  # the rate that was refused last; None: it is searched for
    drop: float = LEAST_DROP  # the last one, of the rate that was refused
    growth_s: float = 0.0  # since then, while requests waited
    delay_s: float = LONGEST_DELAY_S  # from sending to refusal: the average, or the latest if that is less
    answered_at: float = NEVER
    pauses: int = 0  # in a row
    paused_at: float = NEVER
    paused_until: float = NEVER
    scout_until: float = NEVER  # a request is under way to find out whether the service answers again
    per_s_before: float = 0.0  # what was accepted before the blackout
    refusal: str = ""  # what the service said when it refused last
    window: Window = field(default_factory=Window)
    under_way: list[UnderWay] = field(default_factory=list)  # in the order of sending


class Turn:
    """A request's place in the queue, and after that what is known of its sending."""

    def __init__(self) -> None:
        self.number = -1
        self.sent_at = NEVER
        self.reserved_tokens = 0.0
        self.has_waited = False


class AdaptivePace:
    """The pace of one service. `file` is shared with other processes; `is_near`: it may be a model on a laptop."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, file: Path | None = None, *, is_near: bool = False
    ) -> None:
        self._clock = clock
        self._queue: deque[Turn] = deque()  # of this process
        create = _create_near_state if is_near else ServiceState
        self._record = LocalRecord(create) if file is None else FileRecord(file, create)

    @property
    def per_s(self) -> float | None:
        """The rate in force."""
        return self._record.latest.per_s

    @property
    def places(self) -> int | None:
        """The number of requests that the service takes at a time, if that has shown."""
        window = self._record.latest.window
        return None if window.limit is None or not window.is_found else int(window.limit)

    def get_pause(self) -> float:
        """Return the seconds for which everybody waits."""
        return self._record.latest.paused_until - self._clock()

    def is_answering(self, patience_s: float) -> bool:
        """Tell whether the service has answered anybody lately, or may be about to."""
        return self._clock() - self._record.latest.answered_at <= patience_s or self._is_hoping()

    def _is_hoping(self) -> bool:
        """Return whether a request was sent not long ago that is not refused so far."""
        sent, now = self._record.latest.sent, self._clock()
        return any(not request.is_refused and now - request.at <= SCOUT_S for request in sent[-MOST_RECENT:])

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
            elif (wait_s := _find_place(state, now, self._queue.index(turn))) > 0:
                return wait_s
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
            state.under_way.append(UnderWay(turn.number, now, len(state.under_way) + 1, os.getpid()))
            state.sent.append(SentRequest(now, state.start_per_s if state.per_s is None else state.per_s))
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
            overtaken, request = _take_under_way(state, turn)
            if request is not None:
                state.window.record_reply(request.requests, now - request.at, overtaken)
            if not state.pauses or turn.sent_at < state.paused_at:
                return
            if state.per_s is not None and turn.sent_at - state.paused_at > QUOTA_S:
                state.per_s = state.refused_per_s = max(state.per_s, state.per_s_before)
                state.drop = state.growth_s = 0.0
            state.pauses, state.scout_until = 0, NEVER
            state.level, state.filled_at = min(state.level, 0.0), now
            state.lowered_at = state.grown_at = now

    def record_failure(self, turn: Turn, *, is_broken: bool = False) -> None:
        """Record that there is no reply to a request: nothing is known of the rate. `is_broken`: the connection was."""
        with self._record.change() as state:
            _, request = _take_under_way(state, turn)
            if is_broken and request is not None:
                state.window.record_break(request.requests)
            state.scout_until = NEVER

    def record_refusal(self, turn: Turn, retry_after_s: float | None, message: str = "") -> None:
        """Record an answer that the service has too much to do, and the seconds to wait that it asks for, if any."""
        with self._record.change() as state:
            now = self._clock()
            _take_under_way(state, turn)
            index = turn.number - state.first_number
            if not 0 <= index < len(state.sent):  # sent so long ago that nothing can be learnt from it
                return
            state.refusal, state.scout_until = message, NEVER
            # The first requests may be long on their way because the client is being set up.
            delay_s = min(now - turn.sent_at, LONGEST_DELAY_S)
            state.delay_s = min(delay_s, state.delay_s + 0.3 * (delay_s - state.delay_s))
            state.sent[index].is_refused = True
            state.refused_at = max(state.refused_at, turn.sent_at)
            is_scout = bool(state.pauses)
            if is_scout or _is_blackout(state, index, retry_after_s):
                _pause(state, index, now, retry_after_s)
            if state.per_s is not None and turn.sent_at <= state.lowered_at:
                if state.refused_per_s is None:
                    state.per_s = min(state.per_s, _guess(state))
                elif index and state.sent[index - 1].is_refused:  # two in a row: it was far too much
                    _drop(state, state.refused_per_s, min(state.drop + LEAST_DROP, MOST_DROP))
            elif state.per_s is None or not is_scout:
                _lower(state, index, now)


def _create_near_state() -> ServiceState:
    return ServiceState(window=Window(limit=FIRST))


def _find_place(state: ServiceState, now: float, queued: int) -> float:
    """Return 0 if the service has a place for one request more, else the seconds after which to look again, with so
    many `queued` in front."""
    limit = state.window.limit
    if limit is None or len(state.under_way) < int(limit):
        return 0.0
    state.under_way = [request for request in state.under_way if not _is_lost(state, request, now)]
    if len(state.under_way) < int(limit):
        return 0.0
    between_s = state.window.longest_s / limit
    return min(max(between_s * (queued / 2 or 0.02), LEAST_POLL_S), MOST_POLL_S)


def _is_lost(state: ServiceState, request: UnderWay, now: float) -> bool:
    """Return whether nobody waits for the request any more, because its process is gone."""
    passed_s = now - request.at
    if passed_s > max(LOST_S, 3 * state.window.longest_s):
        return True
    if passed_s < MOST_POLL_S or request.process == os.getpid() or sys.platform == "win32":
        return False
    try:
        os.kill(request.process, 0)  # asks whether it is there
    except OSError:
        return True
    return False


def _take_under_way(state: ServiceState, turn: Turn) -> tuple[int, UnderWay | None]:
    """Take a request out of those that are under way. Return how many it overtook, and what is known of it."""
    for place, request in enumerate(state.under_way):
        if request.number == turn.number:
            return place, state.under_way.pop(place)
    return 0, None


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
    if is_waiting and calm_s > state.delay_s and _is_used(state, now):
        _grow(state, growing_s)
    if calm_s >= CALM_S and state.per_s > 2 * (state.refused_per_s or 0.0):
        state.per_s, state.start_per_s = None, 1e6
        return state.start_per_s
    return state.per_s


def _is_used(state: ServiceState, now: float) -> bool:
    """Return whether at least half of what the rate allows was sent in the last second: a client that is too busy to
    send finds out nothing."""
    half = int((state.per_s or 0.0) / 2)
    return half < len(state.sent) and (half == 0 or now - state.sent[-half].at <= 1.0)


def _grow(state: ServiceState, growing_s: float) -> None:
    """Raise the rate by what it grows in so many seconds."""
    if state.per_s is None:
        return
    if state.refused_per_s is None:
        doubling_s = max(SEARCH_DOUBLING_S, CALM_REQUESTS / state.per_s, SEARCH_DELAYS * state.delay_s)
        state.per_s *= 2 ** (growing_s / doubling_s)
        return
    state.growth_s += growing_s
    period_s = max(1.0, PERIOD_REQUESTS / state.refused_per_s, PERIOD_DELAYS * state.delay_s)
    periods = state.growth_s / period_s - (state.drop / GROWTH) ** (1 / 3)  # since the rate of before was reached
    growth = GROWTH if periods < 0 else GROWTH_BEYOND
    state.per_s = max(state.refused_per_s * (1 + growth * periods**3), SLOWEST)


def _is_blackout(state: ServiceState, index: int, retry_after_s: float | None) -> bool:
    """Return whether the service refuses everybody."""
    if state.first_number == 0 and all(request.is_refused for request in state.sent):
        return True
    first = _find_first_of_blackout(state, index)
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
    own_s = min(PAUSE_S * 2 ** min(state.pauses - 1, 10), longest_s) * random.uniform(1.0, 1.2)  # noqa: S311
    is_believed = retry_after_s is not None and state.pauses == 1  # not again, if it was too short
    pause_s = max(retry_after_s or 0.0, 0.0 if is_believed else own_s)
    state.paused_until = max(state.paused_until, now + pause_s)


def _lower(state: ServiceState, index: int, now: float) -> None:
    """Lower the rate, because the request of `index` was refused."""
    sent_per_s = state.sent[index].per_s
    recent = reversed(state.sent[max(index - CALM_REQUESTS, 0) : index])
    accepted = list(takewhile(lambda request: not request.is_refused and request.at > state.lowered_at, recent))
    if state.per_s is None:
        state.per_s = _guess(state)
    elif state.refused_per_s is None and not accepted:
        state.per_s = max(sent_per_s * (1 - MOST_DROP), SLOWEST)
    else:
        is_calm = len(accepted) == CALM_REQUESTS
        _drop(state, sent_per_s, LEAST_DROP if is_calm else min(2 * state.drop, MOST_DROP))
    state.catch_up_s = max(state.catch_up_s / 2, LEAST_CATCH_UP_S)
    state.level, state.filled_at = min(state.level, 0.0), now
    state.lowered_at = state.grown_at = now


def _drop(state: ServiceState, refused_per_s: float, drop: float) -> None:
    """Lower the rate by a part of the one that was refused, to grow from there."""
    state.refused_per_s, state.drop, state.growth_s = refused_per_s, drop, 0.0
    state.per_s = max(refused_per_s * (1 - drop), SLOWEST)


def _guess(state: ServiceState) -> float:
    """Return the rate with which the search begins."""
    return max(_count_accepted(state.sent), min(SEARCH_REQUESTS / max(state.delay_s, 1e-3), SEARCH_PER_S))


def _count_accepted(sent: list[SentRequest]) -> float:
    """Return how many requests of the latest second in which some were sent are not refused so far; at least 1."""
    return max(float(sum(not request.is_refused for request in sent if sent[-1].at - request.at <= 1.0)), 1.0)
