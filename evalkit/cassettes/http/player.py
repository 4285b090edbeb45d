"""Where evalkit itself listens: requests there are a case's function calls, no traffic to be recorded or replayed."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from evalkit.cassettes.fingerprint import SHOWN_DIFFERENCES, compare_declarations, compare_values
from evalkit.cassettes.http.file import HttpCassette, build_http_path, load_http_cassette, write_http_cassette
from evalkit.cassettes.http.messages import (
    FORMS,
    HttpRequest,
    HttpResponse,
    serialize_request,
    serialize_response,
    to_response,
)
from evalkit.cassettes.http.normalise import has_uuids, normalise_exchanges, replace_uuids
from evalkit.errors import EvalkitError, MissingCassetteError, StaleCassetteError

OWN_HOSTS: set[str] = set()  # "127.0.0.1:PORT" of every functions server that is up


# The HTTP traffic of one run of a case: played from its cassette, or recorded into it, never both.


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


# Why a request of an agent's own client can't be answered offline, in words: missing, asked too often, or changed.

RECORD_COMMAND = "pytest --evalkit --evalkit-record=missing"
STALE_COMMAND = "pytest --evalkit --evalkit-record=stale"
_SHOWN_EXCHANGES = 5
_LONG = 80  # texts beyond this are compared line by line
_TOOL_KEYS = ("tools", "functions", "functionDeclarations", "function_declarations")


def explain_missing_cassette(file: str, request_data: Mapping[str, Any]) -> str:
    """No file at all."""
    return (
        f"no HTTP cassette: the agent's client asked {_format_request_line(request_data)}, and {file} does not exist. "
        f"Record it: {RECORD_COMMAND}\n"
        "Offline nothing goes out to the network; hosts that should be reached all the same are named in "
        "[tool.evalkit.http] ignore_hosts"
    )


def explain_overwrite(file: str) -> str:
    """A hand-written file is in the way of a recording."""
    return (
        f"{file} is hand-written, and recording would overwrite it; move it away to record the case, "
        "or use --evalkit-record=missing to keep it"
    )


def build_exhausted_error(request_data: Mapping[str, Any], cassette: HttpCassette) -> EvalkitError:
    """The request is recorded, and all its answers were given."""
    times = sum(
        _format_request_line(exchange["request"]) == _format_request_line(request_data)
        for exchange in cassette.exchanges
    )
    often = "once" if times == 1 else f"{times} times"
    return MissingCassetteError(
        f"{_format_request_line(request_data)} stands in {cassette.file} {often}, and the agent asked it once more. "
        f"Record the case again: {RECORD_COMMAND.replace('=missing', '=all')}"
    )


def build_unrecorded_error(
    request_data: Mapping[str, Any], cassette: HttpCassette, played: Collection[int]
) -> EvalkitError:
    """The error for a request that no exchange left in the cassette fits: stale if one goes to the same place."""
    unplayed = [exchange["request"] for index, exchange in enumerate(cassette.exchanges) if index not in played]
    place = _get_endpoint(request_data)
    was = next((request for request in unplayed if _get_endpoint(request) == place), None)
    if was is None:
        recorded_lines = [_format_request_line(request) for request in unplayed[:_SHOWN_EXCHANGES]]
        suffix = f" and {len(unplayed) - len(recorded_lines)} more" if len(unplayed) > len(recorded_lines) else ""
        contents = (
            f"what is left there is {', '.join(recorded_lines)}{suffix}" if recorded_lines else "all of it was played"
        )
        return MissingCassetteError(
            f"{_format_request_line(request_data)} is not in {cassette.file}; {contents}. "
            f"Record the case again: {RECORD_COMMAND.replace('=missing', '=all')}"
        )
    changed = "\n".join(f"  {line}" for line in _compare_exchanges(was, request_data))
    return StaleCassetteError(
        f"{cassette.file}: {_format_request_line(was)} was recorded with another request:\n{changed}\nRecord it again: {STALE_COMMAND}"  # noqa: E501
    )


def _format_request_line(request: Mapping[str, Any]) -> str:
    return f"{str(request.get('method', 'GET')).upper()} {request.get('url')}"


def _get_endpoint(request: Mapping[str, Any]) -> tuple[str, str, str]:
    parts = urlsplit(str(request.get("url")))
    return str(request.get("method", "GET")).upper(), parts.netloc, parts.path


def _compare_exchanges(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    old, new = (
        dict(parse_qsl(urlsplit(str(request.get("url"))).query, keep_blank_values=True)) for request in (was, now)
    )
    changes = [f"the URL's query: {line}" for line in compare_values(old, new)]
    form = next((form for form in FORMS if form in was or form in now), None)
    if form is None:
        return changes or ["the URL is written differently"]
    changes += _compare_bodies(was.get(form), now.get(form))
    return changes[: 2 * SHOWN_DIFFERENCES] or ["the body came in another form (JSON, form, text)"]


def _compare_bodies(was: Any, now: Any) -> Iterator[str]:
    """Declared functions by name, long texts by line, and the rest by path."""
    if not isinstance(was, Mapping) or not isinstance(now, Mapping):
        yield from _describe_text_change("the body", str(was), str(now)) if was != now else ()
        return
    for key in _TOOL_KEYS:
        if _has_names(was.get(key)) and _has_names(now.get(key)) and was[key] != now[key]:
            yield from compare_declarations(_list_tools(was[key]), _list_tools(now[key]))
            was, now = {**was, key: None}, {**now, key: None}
    for path, old, new in _find_long_texts(was, now, ""):
        yield from _describe_text_change(path, old, new)
    yield from compare_values(_cut_long_texts(was, now), _cut_long_texts(now, was))


def _has_names(tools: Any) -> bool:
    flat = _list_tools(tools)
    return bool(flat) and all(isinstance(tool, Mapping) and "name" in tool for tool in flat)


def _list_tools(tools: Any) -> list[Any]:
    """Declarations out of the lists in which the APIs wrap them."""
    functions: list[Any] = []
    for tool in tools if isinstance(tools, list) else []:
        inner = tool if isinstance(tool, Mapping) else {}
        wrapped = next((inner[key] for key in _TOOL_KEYS if isinstance(inner.get(key), list)), None)
        functions += (
            wrapped
            if wrapped is not None
            else [inner["function"] if isinstance(inner.get("function"), Mapping) else tool]
        )
    return functions


def _find_long_texts(was: Any, now: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in was:
            if key in now:
                yield from _find_long_texts(was[key], now[key], f"{path}.{key}" if path else str(key))
    elif isinstance(was, list) and isinstance(now, list):
        for index, (old, new) in enumerate(zip(was, now, strict=False)):
            yield from _find_long_texts(old, new, f"{path}[{index}]")
    elif isinstance(was, str) and isinstance(now, str) and was != now and _is_long(was, now):
        yield path, was, now


def _cut_long_texts(value: Any, counterpart: Any) -> Any:
    """`value` without the long texts that differ, which are told apart."""
    if isinstance(value, Mapping):
        return {
            key: _cut_long_texts(item, counterpart.get(key) if isinstance(counterpart, Mapping) else None)
            for key, item in value.items()
        }
    if isinstance(value, list):
        counterparts = counterpart if isinstance(counterpart, list) else []
        return [
            _cut_long_texts(item, counterparts[index] if index < len(counterparts) else None)
            for index, item in enumerate(value)
        ]
    return "…" if isinstance(value, str) and isinstance(counterpart, str) and _is_long(value, counterpart) else value


def _is_long(first: str, second: str) -> bool:
    return "\n" in first or "\n" in second or max(len(first), len(second)) > _LONG


def _describe_text_change(path: str, was: str, now: str) -> Iterator[str]:
    old, new = was.splitlines(), now.splitlines()
    lines: list[str] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            lines += [f"line {a + 1}: - {_cut_line(line)}" for line in old[a:b]]
            lines += [f"line {c + 1}: + {_cut_line(line)}" for line in new[c:d]]
    yield f"{path} changed:" + "".join(f"\n    {line}" for line in lines[: 2 * SHOWN_DIFFERENCES])


def _cut_line(line: str) -> str:
    return line if len(line) <= 200 else line[:199] + "…"
