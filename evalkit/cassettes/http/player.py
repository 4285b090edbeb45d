"""HTTP cassettes: the requests of an agent's own client and the responses, played or recorded, and their files.

There is one YAML file per case and run: beside the model's cassette of a case, ``valid_001.yaml``, its HTTP cassette is
``valid_001.http.yaml``, and that of its second run ``valid_001.run-2.http.yaml``. A file with ``recorded: true`` was
recorded; others are hand-written.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from evalkit.bounds import get_bounds
from evalkit.cassettes.fingerprint import SHOWN_DIFFERENCES, compare_declarations, compare_values, format_line_changes
from evalkit.cassettes.http.messages import (
    FORMS,
    HttpRequest,
    HttpResponse,
    serialize_request,
    serialize_response,
    to_response,
)
from evalkit.cassettes.http.model_exchanges import normalise_exchanges, replace_uuids
from evalkit.cassettes.http.stand_ins import hide_secrets, mask_request
from evalkit.cassettes.http.tee import Tee, TeeGroup
from evalkit.cassettes.http.unobserved import OWN_HOSTS
from evalkit.cassettes.model import (
    CODE,
    build_run_path,
    check_version,
    explain_overwriting,
    explain_redaction,
    write_atomically,
)
from evalkit.errors import EvalkitError, KeyPath, MissingCassetteError, StaleCassetteError, format_file_path
from evalkit.fields.reader import FieldReader
from evalkit.jsonvalue import JsonDict, JsonObject, map_strings
from evalkit.locks import create_lock
from evalkit.model.parts import InputPart, replace_content
from evalkit.wire.table import is_candidate
from evalkit.yamlfile.events import Limits, raise_problems
from evalkit.yamlfile.parse import load
from evalkit.yamlfile.write import dump


def is_ignored_host(host: str, patterns: Iterable[str]) -> bool:
    """Tell whether requests to `host` (with its port, where it has one) go out as they are."""
    name, _, port = host.rpartition(":")
    names = (host, name if port.isdecimal() else host)
    return any(fnmatch(name, pattern) for pattern in patterns for name in names)


def exports_telemetry(request: HttpRequest) -> bool:
    """Tell whether a request exports spans, metrics or logs by OTLP: it is new each time, and nothing depends on it."""
    path = urlsplit(request.url).path
    is_otlp = request.content_type.startswith("application/x-protobuf") or b'"resource' in request.body[:20]
    return is_otlp and path.endswith(("/v1/traces", "/v1/metrics", "/v1/logs"))


class PlayerOptions(Struct, frozen=True, kw_only=True):
    """Options of a player. `model_cassette` is the path of the model's cassette below `cassettes`; `record` as in
    Settings."""

    model_cassette: str
    cassettes: Path
    root: Path
    run: int = 0
    record: str | None = None
    secrets: tuple[str, ...] = ()
    ignore_hosts: tuple[str, ...] = ()
    ignore_fields: tuple[str, ...] = ()
    ignore_text: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The file of this run."""
        return build_http_path(self.root / self.cassettes / self.model_cassette, self.run)

    @property
    def first_run_path(self) -> Path:
        """The first run's file, which may be written by hand."""
        return build_http_path(self.root / self.cassettes / self.model_cassette, 0)

    def format_path(self, path: Path) -> str:
        return format_file_path(path, self.root)


class TrafficListener(Protocol):
    """A listener to the traffic of a run, called in the thread of the request."""

    def on_request(self) -> None:
        """Handle a request that is about to go out. If this raises, it does not."""

    def on_refusal(self, error: EvalkitError) -> None:
        """Handle a request without an answer. The client raises the exception, and the agent may swallow it."""

    def on_unobserved(self, kind: str, what: str) -> None:
        """Handle a part of the traffic that stays unread: a kind and a place, as in `evalkit.model.unobserved`."""

    def on_response(self, request: HttpRequest, response: HttpResponse, duration_ms: float, *, is_live: bool) -> None:
        """Handle a response that was played, or came in live and was recorded, and took `duration_ms`."""

    def on_failure(self, request: HttpRequest, error: BaseException, duration_ms: float) -> None:
        """Handle a request whose response did not come, or broke off."""


class Player:
    """The HTTP traffic of one run, from any thread: played from its cassette, or recorded, never both.

    Nothing is read before the first request.
    """

    def __init__(
        self, options: PlayerOptions, listener: TrafficListener, input_files: Sequence[InputPart] = ()
    ) -> None:
        self._options = options
        self._listener = listener
        self._lock = create_lock()
        self._is_open = True
        self._is_ready = False
        self._cassette: HttpCassette | None = None  # what is played; None while recording
        self._remaining: dict[str, deque[int]] = {}  # by request: the recorded exchanges that are left
        # The same by request without secrets, and without what clients draw by lot.
        self._remaining_alike: dict[str, deque[int]] = {}
        self._played: set[int] = set()
        self._exchanges: list[JsonDict] = []  # recorded now, in the order of the requests, with all secrets
        self._credentials: dict[str, None] = {}  # of the requests
        self.unplayable: dict[str, None] = {}  # what the agent asked in a way that is not recorded
        self._running = TeeGroup()
        self._input_files = input_files  # images and files of the case, which requests hold as their hashes

    # -- what the interception asks

    def can_handle(self, host: str) -> bool:
        """Tell whether a request to `host` (with its port, where it has one) is played or recorded."""
        return host not in OWN_HOSTS and not is_ignored_host(host, self._options.ignore_hosts)

    @property
    def is_recording(self) -> bool:
        """Whether this run was asked to record. It may play all the same, what was recorded before."""
        return self._options.record is not None

    def begin(self, request: HttpRequest) -> HttpResponse | Tee:
        """Return the recorded response, or what the response from the network is fed to.

        Raises MissingCassetteError, StaleCassetteError, SpecError and BudgetSpentError.
        """
        if exports_telemetry(request):  # no part of a recording, and of its replay
            return Tee(lambda response, duration_ms: None) if self.is_recording else HttpResponse(200, "OK")
        try:
            outcome, duration_ms = self._begin(request)
        except EvalkitError as error:
            if self._is_open:
                self._listener.on_refusal(error)
            raise
        if isinstance(outcome, HttpResponse):
            self._listener.on_response(request, outcome, duration_ms, is_live=False)
        return outcome

    def _begin(self, request: HttpRequest) -> tuple[HttpResponse | Tee, float]:
        body = replace_content(request.body, self._input_files)
        request_data = serialize_request(replace(request, body=body), self._options.ignore_fields)
        secrets = (*self._options.secrets, *request.credentials)
        with self._lock:
            if not self._is_open:
                shown = mask_request(request_data, secrets)
                raise MissingCassetteError(f"{shown['method']} {shown['url']}: the run that this request is of is over")
            self._prepare(mask_request(request_data, secrets))
            if self._cassette is None:
                self._listener.on_request()
                exchange: JsonDict = {"request": request_data}
                self._exchanges.append(exchange)
                self._credentials |= dict.fromkeys(request.credentials)
                tee = Tee(
                    partial(self._listener.on_response, request, is_live=True),
                    partial(_record, exchange),
                    partial(self._listener.on_failure, request),
                    request.url if is_candidate(request.method, request.url, request.body) else "",
                )
                return self._running.add(tee), 0.0
            response = self._play(self._mask(request_data), secrets, self._cassette)
            is_recorded = self._cassette.kind == "recorded"
            played = to_response(response, request.method, is_recorded=is_recorded)
            return played, float(response.get("duration_ms") or 0)

    # -- what the run asks

    def list_running(self) -> list[Tee]:
        """List the replies of models that are waited for."""
        return [tee for tee in self._running.list_running() if tee.url]

    @property
    def is_open(self) -> bool:
        """True until the run is over."""
        return self._is_open

    @property
    def kind(self) -> str | None:
        """``recorded`` or ``hand-written`` once something was played."""
        return self._cassette.kind if self._cassette is not None and self._played else None

    def find_unused(self) -> tuple[str, int]:
        """Return the cassette's name and its number of unplayed exchanges, 0 as long as nothing was played."""
        if self._cassette is None or not self._played:
            return "", 0
        return self._cassette.file, len(self._cassette.exchanges) - len(self._played)

    def close(self) -> None:
        """End the run: requests of code that still runs are refused from now on."""
        with self._lock:
            self._is_open = False
        self._running.end()

    def save(self) -> Iterable[str]:
        """Write the recorded exchanges, if there are any. Return what will not be replayed as it was."""
        done = [exchange for exchange in self._exchanges if "response" in exchange]
        warnings = [
            f"a WebSocket is not recorded, so the case can't be replayed: the agent asked {url}"
            for url in self.unplayable
            if self.is_recording
        ]
        answered = {_build_key(exchange["request"]) for exchange in done}
        secrets = (*self._options.secrets, *self._credentials)
        unanswered = [
            mask_request(exchange["request"], secrets)
            for exchange in self._exchanges
            if "response" not in exchange and _build_key(exchange["request"]) not in answered
        ]
        warnings += dict.fromkeys(
            f"{_format_request_line(request)} got no response, so the case can't be replayed" for request in unanswered
        )
        if not done:
            return warnings
        hidden, touched = hide_secrets(done, self._options.secrets, self._credentials)
        path = self._options.path
        exchanges = normalise_exchanges(hidden)
        if path.is_file():
            with suppress(EvalkitError, OSError):
                exchanges = keep_volatile(list(load_http_cassette(path, "").exchanges), exchanges)
        places = list(dict.fromkeys(touched))
        write_http_cassette(path, exchanges, places)
        return [*warnings, *([explain_redaction(self._options.format_path(path), places)] if places else ())]

    # -- inside

    def _prepare(self, request_data: JsonObject) -> None:
        """Decide at the first request whether to play or to record."""
        if self._is_ready:
            return
        options = self._options
        path: Path | None = options.path
        if not options.path.is_file():  # the hand-written one of the first run serves them all
            first, path = options.first_run_path, None
            if first != options.path and first.is_file() and load_http_cassette(first, "").kind == "hand-written":
                path = first
        if options.record == "all" or (options.record and path is None):
            if path is not None and load_http_cassette(path, options.format_path(path)).kind == "hand-written":
                raise MissingCassetteError(explain_overwriting(options.format_path(path)))
        elif path is None:
            raise MissingCassetteError(explain_missing_cassette(options.format_path(options.path), request_data))
        else:
            cassette = load_http_cassette(path, options.format_path(path))
            masked = [{**exchange, "request": self._mask(exchange["request"])} for exchange in cassette.exchanges]
            self._cassette = replace(cassette, exchanges=tuple(masked))
            for index, exchange in enumerate(self._cassette.exchanges):
                self._remaining.setdefault(_build_key(exchange["request"]), deque()).append(index)
                self._remaining_alike.setdefault(self._build_loose_key(exchange["request"]), deque()).append(index)
        self._is_ready = True

    def _mask(self, request_data: JsonObject) -> JsonObject:
        """Replace the text that differs each time, by the patterns of the project."""
        for pattern in self._options.ignore_text:
            request_data = map_strings(request_data, partial(re.sub, pattern, "(ignored)"))
        return request_data

    def _build_loose_key(self, request: JsonObject, secrets: tuple[str, ...] = ()) -> str:
        return _build_key(mask_request(replace_uuids(request), secrets or self._options.secrets))

    def _play(self, request_data: JsonObject, secrets: tuple[str, ...], cassette: HttpCassette) -> JsonObject:
        key = loose_key = _build_key(request_data)
        if cassette.match == BY_TURN:
            place, exchanges = _get_endpoint(request_data), cassette.exchanges
            turns = (index for index, exchange in enumerate(exchanges) if _get_endpoint(exchange["request"]) == place)
            index = self._take_next(turns)
            if index is None:
                raise build_exhausted_error(mask_request(request_data, secrets), cassette)
        else:
            index = self._take_next(self._remaining.get(key, ()))
        if index is None:
            loose_key = self._build_loose_key(request_data, secrets)
            index = self._take_next(self._remaining_alike.get(loose_key, ()))
        if index is None:
            shown = mask_request(request_data, secrets)
            raise (
                build_exhausted_error(shown, cassette)
                if key in self._remaining or loose_key in self._remaining_alike
                else build_unrecorded_error(shown, cassette, self._played)
            )
        self._played.add(index)
        response: JsonObject = cassette.exchanges[index]["response"]
        return response

    def _take_next(self, indices: Iterable[int]) -> int | None:
        return next((index for index in indices if index not in self._played), None)


def _record(exchange: JsonDict, response: HttpResponse, duration_ms: float) -> None:
    """Add the response to an exchange, which took `duration_ms` to come whole."""
    data = serialize_response(response, str(exchange["request"]["method"]))
    exchange["response"] = {"status": data.pop("status"), "duration_ms": round(duration_ms), **data}


def _build_key(request: JsonObject) -> str:
    data = {"method": str(request.get("method", "GET")).upper(), **{k: v for k, v in request.items() if k != "method"}}
    return json.dumps(data, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)


# -- messages: a request that is missing, was sent too often, or has changed

RECORD_COMMAND = "pytest --evalkit --evalkit-record=missing"
STALE_COMMAND = "pytest --evalkit --evalkit-record=stale"
_SHOWN_EXCHANGES = 5
_LONG = 80  # texts beyond this are compared line by line
_TOOL_KEYS = ("tools", "functions", "functionDeclarations", "function_declarations")


def explain_missing_cassette(file: str, request_data: JsonObject) -> str:
    """Explain that there is no file."""
    return (
        f"no HTTP cassette: the agent's client asked {_format_request_line(request_data)}, and {file} does not exist. "
        f"Record it: {RECORD_COMMAND}\n"
        "Offline nothing goes out to the network; hosts that should be reached all the same are named in "
        "[tool.evalkit.http] ignore_hosts"
    )


def build_exhausted_error(request_data: JsonObject, cassette: HttpCassette) -> EvalkitError:
    """Build the error for a request all of whose recorded responses were played."""
    line = _format_request_line(request_data)
    times = sum(_format_request_line(exchange["request"]) == line for exchange in cassette.exchanges)
    often = "once" if times == 1 else f"{times} times"
    return MissingCassetteError(
        f"{line} stands in {cassette.file} {often}, and the agent asked it once more. "
        f"Record the case again: {RECORD_COMMAND.replace('=missing', '=all')}"
    )


def build_unrecorded_error(request_data: JsonObject, cassette: HttpCassette, played: Collection[int]) -> EvalkitError:
    """Build the error for a request that fits no unplayed exchange: stale if one goes to the same endpoint."""
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
        f"{cassette.file}: {_format_request_line(was)} was recorded with another request:\n{changed}\n"
        f"Record it again: {STALE_COMMAND}"
    )


def _format_request_line(request: JsonObject) -> str:
    return f"{str(request.get('method', 'GET')).upper()} {request.get('url')}"


def _get_endpoint(request: JsonObject) -> tuple[str, str, str]:
    parts = urlsplit(str(request.get("url")))
    return str(request.get("method", "GET")).upper(), parts.netloc, parts.path


def _compare_exchanges(was: JsonObject, now: JsonObject) -> list[str]:
    old, new = (
        dict(parse_qsl(urlsplit(str(request.get("url"))).query, keep_blank_values=True)) for request in (was, now)
    )
    changes = [f"the URL's query: {line}" for line in compare_values(old, new)]
    form = next((form for form in FORMS if form in was or form in now), None)
    if form is None:
        return changes or ["the URL is written differently"]
    changes += _compare_bodies(was.get(form), now.get(form))
    return changes[: 2 * SHOWN_DIFFERENCES] or ["the body came in another form (JSON, form, text)"]


def _compare_bodies(was: object, now: object) -> Iterator[str]:
    """Compare declared functions by name, long texts by line, and the rest by path."""
    if not isinstance(was, Mapping) or not isinstance(now, Mapping):
        if was != now:
            yield f"the body changed:{format_line_changes(str(was), str(now), 200)}"
        return
    for key in _TOOL_KEYS:
        if _has_names(was.get(key)) and _has_names(now.get(key)) and was[key] != now[key]:
            yield from compare_declarations(_list_tools(was[key]), _list_tools(now[key]))
            was, now = {**was, key: None}, {**now, key: None}
    for path, old, new in _find_long_texts(was, now, ""):
        yield f"{path} changed:{format_line_changes(old, new, 200)}"
    yield from compare_values(_cut_long_texts(was, now), _cut_long_texts(now, was))


def _has_names(tools: object) -> bool:
    flat = _list_tools(tools)
    return bool(flat) and all(isinstance(tool, Mapping) and "name" in tool for tool in flat)


def _list_tools(tools: object) -> list[JsonObject]:
    """List the declarations out of the lists in which the APIs wrap them."""
    functions: list[JsonObject] = []
    for tool in tools if isinstance(tools, list) else []:
        inner = tool if isinstance(tool, Mapping) else {}
        wrapped = next((inner[key] for key in _TOOL_KEYS if isinstance(inner.get(key), list)), None)
        functions += (
            wrapped
            if wrapped is not None
            else [inner["function"] if isinstance(inner.get("function"), Mapping) else tool]
        )
    return functions


def _find_long_texts(was: object, now: object, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in was:
            if key in now:
                yield from _find_long_texts(was[key], now[key], f"{path}.{key}" if path else str(key))
    elif isinstance(was, list) and isinstance(now, list):
        for index, (old, new) in enumerate(zip(was, now, strict=False)):
            yield from _find_long_texts(old, new, f"{path}[{index}]")
    elif isinstance(was, str) and isinstance(now, str) and was != now and _is_long(was, now):
        yield path, was, now


def _cut_long_texts(value: object, counterpart: object) -> object:
    """Copy `value` without the long texts that differ, which are compared by line."""
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


# -- files

HTTP_CASSETTE_VERSION = 1
ENDING = ".http.yaml"
HEADER = "# Recorded by evalkit: what the agent's own HTTP client asked, and the answers. Record it again with\n"
HEADER += "# pytest --evalkit --evalkit-record=stale\n"
KEYS = ("evalkit_http_cassette", "recorded", "description", "redacted", "match", "exchanges")
BY_REQUEST, BY_TURN = MATCHES = ("request", "turn")
REQUEST_KEYS = ("method", "url", *FORMS)
RESPONSE_KEYS = ("status", "reason", "headers", "duration_ms", "layout", "json", "text", "base64")
_MAX_NODES = 5_000_000


class HttpCassette(Struct, frozen=True):
    """The exchanges of one run, as `http.messages` writes them: ``{"request": {...}, "response": {...}}``."""

    exchanges: tuple[JsonObject, ...] = ()
    kind: str = "recorded"  # or "hand-written"
    file: str = ""
    match: str = BY_REQUEST  # or BY_TURN: exchanges answer the requests to their endpoints one after the other


def build_http_path(base: Path, run: int) -> Path:
    """Return the path of the HTTP cassette of run `run` (from 0), beside the model's cassette `base`."""
    return build_run_path(base, run, ENDING)


def load_http_cassette(path: Path, display_path: str) -> HttpCassette:
    """Read a cassette. Raises SpecError with every problem and its place."""
    text = path.read_bytes()
    data = load(text, display_path, Limits(max_bytes=get_bounds().recording_bytes, max_nodes=_MAX_NODES))
    reader = FieldReader(subject="the HTTP cassette")
    cassette = _read_cassette(reader, data, display_path)
    raise_problems(reader.problems, text, display_path, CODE)
    return cassette


def _read_cassette(reader: FieldReader, value: object, file: str) -> HttpCassette:
    data = reader.read_mapping((), value, "a mapping with 'exchanges'")
    if data is None:
        return HttpCassette(file=file)
    reader.check_keys((), data, KEYS)
    check_version(reader, "evalkit_http_cassette", data, HTTP_CASSETTE_VERSION)
    exchanges = data.get("exchanges")
    if "exchanges" not in data:
        reader.add_problem((), "the HTTP cassette has no 'exchanges': a list")
    elif not isinstance(exchanges, list):
        reader.report_wrong(("exchanges",), exchanges, "a list of exchanges")
    if not isinstance(exchanges, list):
        return HttpCassette(file=file)
    match = reader.read_choice(("match",), data.get("match", BY_REQUEST), MATCHES) or BY_REQUEST
    for index, exchange in enumerate(exchanges):
        _check_exchange(reader, ("exchanges", index), exchange)
    kind = "recorded" if data.get("recorded") is True else "hand-written"
    return HttpCassette(tuple(exchanges), kind, file, match)


def _check_exchange(reader: FieldReader, path: KeyPath, value: object) -> None:
    exchange = reader.read_mapping(path, value, "a mapping with 'request' and 'response'")
    if exchange is None:
        return
    reader.check_keys(path, exchange, ("request", "response"))
    for part, keys, needed in (("request", REQUEST_KEYS, "url"), ("response", RESPONSE_KEYS, "status")):
        inner, expected = (*path, part), "an absolute URL" if needed == "url" else "a number such as 200"
        if part not in exchange:
            reader.add_problem(path, f"{reader.format_place(path)} has no '{part}'")
        elif (content := reader.read_mapping(inner, exchange[part], f"a mapping with '{needed}'")) is not None:
            reader.check_keys(inner, content, keys)
            if needed not in content:
                reader.add_problem(inner, f"{reader.format_place(inner)} has no '{needed}': {expected}")
            elif not isinstance(content[needed], str if needed == "url" else int):
                reader.report_wrong((*inner, needed), content[needed], expected)


_VOLATILE_HEADER = re.compile(r"ratelimit|-ms$|^expires$|^last-modified$|request-?id|trace")


def keep_volatile(old: Sequence[JsonObject], new: list[JsonDict]) -> list[JsonDict]:
    """Keep exchanges of an older recording that differ in durations alone, and in headers that always do: a second
    recording then gives the same file."""
    same = [
        index < len(old) and _remove_volatile(old[index]) == _remove_volatile(exchange)
        for index, exchange in enumerate(new)
    ]
    return [dict(old[index]) if same[index] else exchange for index, exchange in enumerate(new)]


def _remove_volatile(exchange: JsonObject) -> JsonDict:
    response = {key: value for key, value in exchange["response"].items() if key != "duration_ms"}
    headers = response.get("headers") or {}
    response["headers"] = {key: value for key, value in headers.items() if not _VOLATILE_HEADER.search(key)}
    return {"request": exchange["request"], "response": response}


def write_http_cassette(path: Path, exchanges: list[JsonDict], redacted: Sequence[str] = ()) -> None:
    """Write a recording, in one step. `redacted` is where a model said a secret."""
    data: JsonDict = {"evalkit_http_cassette": HTTP_CASSETTE_VERSION, "recorded": True}
    data |= {"redacted": list(redacted)} if redacted else {}
    data["exchanges"] = exchanges
    write_atomically(path, (HEADER + dump(data)).encode())
