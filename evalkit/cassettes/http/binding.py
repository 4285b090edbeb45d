"""HTTP cassettes of agents that bring their own client: the player of a run, and the run that a request belongs to.

A request belongs to the case in whose context it is sent: the agent's task or thread, and all that they start. One from
an older thread (a client with an event loop of its own) belongs to the only case that runs; if several run, it is
refused.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from evalkit.cassettes.http.interception import install, uninstall
from evalkit.cassettes.http.messages import HttpRequest, HttpResponse
from evalkit.cassettes.http.model_exchanges import read_http_exchange
from evalkit.cassettes.http.observer import Observer, SharedObserver
from evalkit.cassettes.http.player import Player, PlayerOptions
from evalkit.cassettes.http.request_toggle import REQUEST_TOGGLE, RequestToggle
from evalkit.cassettes.http.traffic import Traffic
from evalkit.cassettes.model import locate_cassette
from evalkit.errors import EvalkitError, MissingCassetteError
from evalkit.functions.context_propagation import CURRENT_CASE, start_propagation, stop_propagation
from evalkit.model.settings import Settings
from evalkit.model.transcript import ModelTurn
from evalkit.providers.budget import get_run_budget
from evalkit.wire.records import Exchange
from evalkit.wire.table import read_failed_exchange

_open_traffic: list[Traffic] = []
_lock = threading.Lock()


class RunTask(Protocol):
    """The task of a run, as far as HTTP traffic concerns it."""

    case_id: str
    run_index: int

    def record_fault(self, error: EvalkitError) -> None: ...

    def note_unobserved(self, kind: str, what: str) -> None: ...

    def is_hung(self, waited_s: float) -> bool: ...

    def record_exchange(self, exchange: Exchange, *, waited_ms: float = 0.0) -> ModelTurn | None: ...


class _TrafficListener:
    """Records the traffic of an agent's own client in its task, and its costs in the account."""

    def __init__(self, task: RunTask, settings: Settings) -> None:
        self._task = weakref.ref(task)  # the task refers to the player, and the player to this
        self._budget = get_run_budget(settings)

    def on_request(self) -> None:
        self._budget.check()

    def on_refusal(self, error: EvalkitError) -> None:
        task = self._task()
        if task is not None:
            task.record_fault(error)

    def on_unobserved(self, kind: str, what: str) -> None:
        if (task := self._task()) is not None:
            task.note_unobserved(kind, what)

    def on_response(self, request: HttpRequest, response: HttpResponse, duration_ms: float, *, is_live: bool) -> None:
        exchange = read_http_exchange(request, response, duration_ms)
        task = self._task()
        if exchange is not None and task is not None:
            if is_live and response.is_whole:
                exchange = exchange.mark_break()
            turn = task.record_exchange(exchange, waited_ms=duration_ms if is_live else 0.0)
            if turn is not None and is_live:
                self._budget.add(turn)

    def on_failure(self, request: HttpRequest, error: BaseException, duration_ms: float) -> None:
        task = self._task()
        if task is None or (isinstance(error, asyncio.CancelledError) and not task.is_hung(duration_ms / 1000)):
            return
        message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        exchange = read_failed_exchange(request.method, request.url, request.body, message)
        if exchange is not None:
            task.record_exchange(exchange, waited_ms=duration_ms)


def create_traffic(task: RunTask, settings: Settings) -> Traffic:
    """Create what handles the requests of a run."""
    observer = Observer(_TrafficListener(task, settings), settings.http.ignore_hosts)
    toggle = find_request_toggle(settings)
    can_toggle = toggle is not None and toggle.can_intercept
    return Traffic(observer, create_player(task, settings), toggle if can_toggle else None)


def create_player(task: RunTask, settings: Settings) -> Player | None:
    """Create the player of a run; None where requests go out unchanged: live, or switched off."""
    if settings.goes_live or settings.http.cassettes is False:
        return None
    root = settings.root or Path.cwd()
    cassette = locate_cassette(root / settings.cassettes, task.case_id, is_recording=settings.record is not None)
    options = PlayerOptions(
        model_cassette=cassette.relative_to(root / settings.cassettes).as_posix(),
        cassettes=settings.cassettes,
        root=root,
        run=task.run_index,
        record=settings.record,
        secrets=tuple(settings.extra.get("secrets", ())),
        ignore_hosts=settings.http.ignore_hosts,
        ignore_fields=settings.http.ignore_fields,
        ignore_text=settings.http.ignore_text,
    )
    return Player(options, _TrafficListener(task, settings))


def find_request_toggle(settings: Settings) -> RequestToggle | None:
    """Return what asks model services in the other way in this run; None in every other."""
    toggle = settings.extra.get(REQUEST_TOGGLE)
    return toggle if isinstance(toggle, RequestToggle) else None


@contextmanager
def intercept_requests(traffic: Traffic | None) -> Iterator[None]:
    """Let `traffic` handle the requests of this context. Code that runs on afterwards meets a closed one for ever."""
    if traffic is None:
        yield
        return
    with _lock:
        _open_traffic.append(traffic)
        start_propagation("http")
    install(_find_traffic)
    try:
        yield
    finally:
        traffic.close()
        with _lock:
            if not any(other.is_open for other in _open_traffic):
                stop_propagation("http")


def release(traffic: Traffic | None) -> None:
    """Release `traffic` once the agent has ended and can send no request any more."""
    if traffic is None:
        return
    with _lock:
        if traffic not in _open_traffic:
            return
        _open_traffic.remove(traffic)
    uninstall()


def _find_traffic() -> Traffic | None:
    """Find what handles the requests of the case in whose context this is called."""
    case = CURRENT_CASE.get()
    if case is not None:
        traffic: Traffic | None = case.dispatcher.task.http_traffic
        return traffic
    if threading.current_thread() is threading.main_thread():
        return None  # pytest's own, and its plugins': agents do not run there without a context
    with _lock:
        open_traffic = [traffic for traffic in _open_traffic if traffic.is_open]
    if len(open_traffic) > 1 and all(traffic.player is None for traffic in open_traffic):
        for traffic in open_traffic:  # live, and goes out whoever sends it
            if traffic.request_toggle is not None:
                traffic.request_toggle.add_obstacle(
                    "a request came from a thread that was there before the cases, so its case is unknown"
                )
        return Traffic(SharedObserver([traffic.observer for traffic in open_traffic]))
    if len(open_traffic) > 1:
        raise MissingCassetteError(
            f"an HTTP request came from thread '{threading.current_thread().name}', which was there before the "
            f"{len(open_traffic)} cases that run, so its case is unknown: tie what runs there to its case with "
            "evalkit.bind(function), or run one case at a time (--evalkit-concurrency 1)"
        )
    return open_traffic[0] if open_traffic else None
