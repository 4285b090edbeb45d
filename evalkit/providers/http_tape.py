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
from evalkit.providers.http_cassette import HttpCassette, http_path, load_http_cassette, write_http_cassette
from evalkit.providers.http_explaining import ask_too_often, no_http_cassette, not_recorded, overwriting
from evalkit.providers.http_messages import HttpAnswer, HttpRequest, answer_data, answer_of, asked_data
from evalkit.providers.http_volatile import is_drawn, settled, without_drawn
from evalkit.providers.own_hosts import OWN_HOSTS


class TapeOptions(Struct, frozen=True, kw_only=True):
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
        return http_path(self.root / self.cassettes / self.model_cassette, self.run)

    @property
    def first(self) -> Path:
        """The first run's file, which may be written by hand."""
        return http_path(self.root / self.cassettes / self.model_cassette, 0)

    def shown(self, path: Path) -> str:
        return (path.relative_to(self.root) if path.is_relative_to(self.root) else path).as_posix()


class Listener(Protocol):
    """Who is told what goes on, in the thread of the request."""

    def sending(self) -> None:
        """A request is about to go out, to be recorded. May raise, and it does not."""

    def refused(self, error: EvalkitError) -> None:
        """A request can't be answered. The exception is raised in the client, and the agent may swallow it."""

    def answered(self, answer: HttpAnswer, duration_ms: float, *, is_live: bool) -> None:
        """An answer was played, or came in live and was recorded; so long it took, then or now."""


class HttpTape:
    """Answers the requests of one run, from any thread. Nothing is read before the first request."""

    def __init__(self, options: TapeOptions, listener: Listener) -> None:
        self._options = options
        self._listener = listener
        self._lock = threading.Lock()
        self._is_open = True
        self._is_ready = False
        self._cassette: HttpCassette | None = None  # what is played; None while recording
        self._left: dict[str, deque[int]] = {}  # by request: the recorded exchanges that are left
        self._alike: dict[str, deque[int]] = {}  # the same by request without what clients draw by lot
        self._played: set[int] = set()
        self._exchanges: list[dict[str, Any]] = []  # recorded now, in the order of the requests

    # -- what the interception asks

    def concerns(self, host: str) -> bool:
        """Whether a request to `host` (with its port, where it has one) is played or recorded."""
        return host not in OWN_HOSTS and not any(
            fnmatch(host, pattern) or fnmatch(_name(host), pattern) for pattern in self._options.ignore_hosts
        )

    def begin(self, request: HttpRequest) -> HttpAnswer | Recording:
        """The recorded answer; or where the answer is to be put, which the caller gets from the network.

        Raises MissingCassetteError, StaleCassetteError and SpecError.
        """
        try:
            found, duration_ms = self._begin(request)
        except EvalkitError as error:
            if self._is_open:
                self._listener.refused(error)
            raise
        if isinstance(found, HttpAnswer):
            self._listener.answered(found, duration_ms, is_live=False)
        return found

    def _begin(self, request: HttpRequest) -> tuple[HttpAnswer | Recording, float]:
        asked = asked_data(request, self._options.secrets, self._options.ignore_fields)
        with self._lock:
            if not self._is_open:
                raise MissingCassetteError(f"{asked['method']} {asked['url']}: the run that this request is of is over")
            self._make_ready(asked)
            if self._cassette is None:
                self._listener.sending()
                exchange: dict[str, Any] = {"request": asked}
                self._exchanges.append(exchange)
                return Recording(exchange, self._options.secrets, self._listener), 0.0
            response = self._play(asked, self._cassette)
            return answer_of(response), float(response.get("duration_ms") or 0)

    # -- what the run asks

    @property
    def is_open(self) -> bool:
        """Whether its run is still going on."""
        return self._is_open

    @property
    def kind(self) -> str | None:
        """``recorded`` or ``hand-written`` once something was played."""
        return self._cassette.kind if self._cassette is not None and self._played else None

    def unused(self) -> tuple[str, int]:
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
            write_http_cassette(self._options.path, settled(done))

    # -- inside

    def _make_ready(self, asked: Mapping[str, Any]) -> None:
        """Decide what this tape does, when the first request comes."""
        if self._is_ready:
            return
        options, found = self._options, self._found()
        if options.record == "all" or (options.record and found is None):
            if found is not None and load_http_cassette(found, options.shown(found)).kind == "hand-written":
                raise MissingCassetteError(overwriting(options.shown(found)))
        elif found is None:
            raise MissingCassetteError(no_http_cassette(options.shown(options.path), asked))
        else:
            self._cassette = load_http_cassette(found, options.shown(found))
            for index, exchange in enumerate(self._cassette.exchanges):
                self._left.setdefault(_key(exchange["request"]), deque()).append(index)
                self._alike.setdefault(_key(without_drawn(exchange["request"])), deque()).append(index)
        self._is_ready = True

    def _found(self) -> Path | None:
        """The run's own file, or the hand-written one of the first run, which serves them all."""
        path, first = self._options.path, self._options.first
        if path.is_file():
            return path
        if path != first and first.is_file() and load_http_cassette(first, "").kind == "hand-written":
            return first
        return None

    def _play(self, asked: Mapping[str, Any], cassette: HttpCassette) -> Mapping[str, Any]:
        key = _key(asked)
        index = self._take(self._left.get(key, ()))
        if index is None and is_drawn(asked):
            index = self._take(self._alike.get(_key(without_drawn(asked)), ()))
        if index is None:
            raise ask_too_often(asked, cassette) if key in self._left else not_recorded(asked, cassette, self._played)
        self._played.add(index)
        response: Mapping[str, Any] = cassette.exchanges[index]["response"]
        return response

    def _take(self, indices: Iterable[int]) -> int | None:
        return next((index for index in indices if index not in self._played), None)


class Recording:
    """A request that went out, and a place for its answer."""

    def __init__(self, exchange: dict[str, Any], secrets: tuple[str, ...], listener: Listener) -> None:
        self._exchange = exchange
        self._secrets = secrets
        self._listener = listener

    def answered(self, answer: HttpAnswer, duration_ms: float) -> None:
        """Keep the answer. `duration_ms` is how long it took to come whole."""
        data = answer_data(answer, self._secrets)
        self._exchange["response"] = {"status": data.pop("status"), "duration_ms": round(duration_ms), **data}
        self._listener.answered(answer, duration_ms, is_live=True)


def _key(request: Mapping[str, Any]) -> str:
    data = {"method": str(request.get("method", "GET")).upper(), **{k: v for k, v in request.items() if k != "method"}}
    return json.dumps(data, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)


def _name(host: str) -> str:
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
