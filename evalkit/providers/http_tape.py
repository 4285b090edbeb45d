"""The HTTP traffic of one run of a case: played from its cassette, or recorded into it, never both."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from evalkit.errors import EvalkitError, MissingCassetteError
from evalkit.providers.http_cassette import HttpCassette, build_http_path, load_http_cassette, write_http_cassette
from evalkit.providers.http_explaining import (
    build_exhausted_error,
    build_unrecorded_error,
    explain_missing_cassette,
    explain_overwrite,
)
from evalkit.providers.http_messages import (
    HttpRequest,
    HttpResponse,
    serialize_request,
    serialize_response,
    to_response,
)
from evalkit.providers.http_volatile import has_uuids, normalise_exchanges, replace_uuids
from evalkit.providers.own_hosts import OWN_HOSTS


class PlayerOptions(Struct, frozen=True, kw_only=True):
    """How a tape is made. `model_cassette` is where the case has that of its model, below `root`; `record` as in
    Settings. Most cases send no request, so files are looked for only when one comes."""

    model_cassette: str
    cassettes: Path
    root: Path
    run: int = 0
    record: str | None = None
    secrets: tuple[str, ...] = ()
    ignore_hosts: tuple[str, ...] = ()
    ignore_fields: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The file of this run."""
        return build_http_path(self.root / self.cassettes / self.model_cassette, self.run)

    @property
    def first_run_path(self) -> Path:
        """The first run's file, which may be written by hand."""
        return build_http_path(self.root / self.cassettes / self.model_cassette, 0)

    def format_path(self, path: Path) -> str:
        return (path.relative_to(self.root) if path.is_relative_to(self.root) else path).as_posix()


class TrafficListener(Protocol):
    """Who is told what goes on, in the thread of the request."""

    def on_request(self) -> None:
        """A request is about to go out, to be recorded. May raise, and it does not."""

    def on_refusal(self, error: EvalkitError) -> None:
        """A request can't be answered. The exception is raised in the client, and the agent may swallow it."""

    def on_response(self, response: HttpResponse, duration_ms: float, *, is_live: bool) -> None:
        """An answer was played, or came in live and was recorded; so long it took, then or now."""


class Player:
    """Answers the requests of one run, from any thread. Nothing is read before the first request."""

    def __init__(self, options: PlayerOptions, listener: TrafficListener) -> None:
        self._options = options
        self._listener = listener
        self._lock = threading.Lock()
        self._is_open = True
        self._is_ready = False
        self._cassette: HttpCassette | None = None  # what is played; None while recording
        self._remaining: dict[str, deque[int]] = {}  # by request: the recorded exchanges that are left
        self._remaining_alike: dict[str, deque[int]] = {}  # the same by request without what clients draw by lot
        self._played: set[int] = set()
        self._exchanges: list[dict[str, Any]] = []  # recorded now, in the order of the requests

    # -- what the interception asks

    def can_handle(self, host: str) -> bool:
        """Whether a request to `host` (with its port, where it has one) is played or recorded."""
        return host not in OWN_HOSTS and not any(
            fnmatch(host, pattern) or fnmatch(_strip_port(host), pattern) for pattern in self._options.ignore_hosts
        )

    def begin(self, request: HttpRequest) -> HttpResponse | PendingExchange:
        """The recorded answer; or where the answer is to be put, which the caller gets from the network.

        Raises MissingCassetteError, StaleCassetteError and SpecError.
        """
        try:
            outcome, duration_ms = self._begin(request)
        except EvalkitError as error:
            if self._is_open:
                self._listener.on_refusal(error)
            raise
        if isinstance(outcome, HttpResponse):
            self._listener.on_response(outcome, duration_ms, is_live=False)
        return outcome

    def _begin(self, request: HttpRequest) -> tuple[HttpResponse | PendingExchange, float]:
        request_data = serialize_request(request, self._options.secrets, self._options.ignore_fields)
        with self._lock:
            if not self._is_open:
                raise MissingCassetteError(
                    f"{request_data['method']} {request_data['url']}: the run that this request is of is over"
                )
            self._prepare(request_data)
            if self._cassette is None:
                self._listener.on_request()
                exchange: dict[str, Any] = {"request": request_data}
                self._exchanges.append(exchange)
                return PendingExchange(exchange, self._options.secrets, self._listener), 0.0
            response = self._play(request_data, self._cassette)
            return to_response(response), float(response.get("duration_ms") or 0)

    # -- what the run asks

    @property
    def is_open(self) -> bool:
        """Whether its run is still going on."""
        return self._is_open

    @property
    def kind(self) -> str | None:
        """``recorded`` or ``hand-written`` once something was played."""
        return self._cassette.kind if self._cassette is not None and self._played else None

    def find_unused(self) -> tuple[str, int]:
        """The cassette's name, and how many of its exchanges nobody asked for; 0 as long as nothing was played."""
        if self._cassette is None or not self._played:
            return "", 0
        return self._cassette.file, len(self._cassette.exchanges) - len(self._played)

    def close(self) -> None:
        """The run is over: who asks from now on, an agent that was left behind, is refused."""
        with self._lock:
            self._is_open = False

    def save(self) -> None:
        """Write what was recorded; nothing if nothing was asked."""
        done = [exchange for exchange in self._exchanges if "response" in exchange]
        if done:
            write_http_cassette(self._options.path, normalise_exchanges(done))

    # -- inside

    def _prepare(self, request_data: Mapping[str, Any]) -> None:
        """Decide what this tape does, when the first request comes."""
        if self._is_ready:
            return
        options, path = self._options, self._find_file()
        if options.record == "all" or (options.record and path is None):
            if path is not None and load_http_cassette(path, options.format_path(path)).kind == "hand-written":
                raise MissingCassetteError(explain_overwrite(options.format_path(path)))
        elif path is None:
            raise MissingCassetteError(explain_missing_cassette(options.format_path(options.path), request_data))
        else:
            self._cassette = load_http_cassette(path, options.format_path(path))
            for index, exchange in enumerate(self._cassette.exchanges):
                self._remaining.setdefault(_build_key(exchange["request"]), deque()).append(index)
                self._remaining_alike.setdefault(_build_key(replace_uuids(exchange["request"])), deque()).append(index)
        self._is_ready = True

    def _find_file(self) -> Path | None:
        """The run's own file, or the hand-written one of the first run, which serves them all."""
        path, first = self._options.path, self._options.first_run_path
        if path.is_file():
            return path
        if path != first and first.is_file() and load_http_cassette(first, "").kind == "hand-written":
            return first
        return None

    def _play(self, request_data: Mapping[str, Any], cassette: HttpCassette) -> Mapping[str, Any]:
        key = _build_key(request_data)
        index = self._take_next(self._remaining.get(key, ()))
        if index is None and has_uuids(request_data):
            index = self._take_next(self._remaining_alike.get(_build_key(replace_uuids(request_data)), ()))
        if index is None:
            raise (
                build_exhausted_error(request_data, cassette)
                if key in self._remaining
                else build_unrecorded_error(request_data, cassette, self._played)
            )
        self._played.add(index)
        response: Mapping[str, Any] = cassette.exchanges[index]["response"]
        return response

    def _take_next(self, indices: Iterable[int]) -> int | None:
        return next((index for index in indices if index not in self._played), None)


class PendingExchange:
    """A request that went out, and a place for its answer."""

    def __init__(self, exchange: dict[str, Any], secrets: tuple[str, ...], listener: TrafficListener) -> None:
        self._exchange = exchange
        self._secrets = secrets
        self._listener = listener

    def record_response(self, response: HttpResponse, duration_ms: float) -> None:
        """Keep the answer. `duration_ms` is how long it took to come whole."""
        data = serialize_response(response, self._secrets)
        self._exchange["response"] = {"status": data.pop("status"), "duration_ms": round(duration_ms), **data}
        self._listener.on_response(response, duration_ms, is_live=True)


def _build_key(request: Mapping[str, Any]) -> str:
    data = {"method": str(request.get("method", "GET")).upper(), **{k: v for k, v in request.items() if k != "method"}}
    return json.dumps(data, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)


def _strip_port(host: str) -> str:
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
