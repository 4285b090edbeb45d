"""The interception of HTTP clients: one per process, which finds the player of each request.

vcrpy's own way is to patch the clients for one cassette at a time, for the whole process. Here its stubs are installed
once, as long as any player is open, in front of a router: it finds the player of the case in whose context the request
is sent; without one the request goes out unchanged. That holds for httpx, httpx2 and aiohttp. For http.client and all
that is built on it (urllib, urllib3, requests, botocore, httplib2) vcrpy exchanges classes, and changes them back for a
moment with each connection, in which other threads get the real ones. So here the methods of http.client are patched:
a request is collected instead of sent, and a recorded response is given to http.client as bytes, so that everything
above sees what it would see live. Each request is looked up, also on connections that were kept alive.

Clients that are imported later, inside an agent, are patched right after their import.
"""

from __future__ import annotations

import functools
import inspect
import io
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from evalkit.cassettes.http import websocket_observer as ws
from evalkit.cassettes.http.messages import HttpRequest, HttpResponse
from evalkit.cassettes.http.observer import Observer, make_read_chunk, tee_aiohttp, tee_http_client, tee_httpx
from evalkit.cassettes.http.player import PendingExchange, Player
from evalkit.cassettes.http.request_toggle import RequestToggle, ToggledRequest
from evalkit.cassettes.http.unobserved import carry
from evalkit.jsonvalue import JsonDict, JsonObject

if TYPE_CHECKING:
    from http.client import HTTPResponse

Method = Callable[..., Any]  # of a client library's class
Maker = Callable[[Method], Method]  # from a real method to the one in its place
Traffic = Player | RequestToggle | Observer  # what handles the requests of a run

_lock = threading.RLock()
_users = 0
_undo: list[Callable[[], None]] = []
_patched: set[str] = set()
_is_hooked = False
_bypasses = 0
_is_bypassed: ContextVar[bool] = ContextVar("evalkit_http_passing", default=False)
_find_current: Callable[[], Traffic | None] = lambda: None  # noqa: E731 - until `install`


def install(find_current: Callable[[], Traffic | None]) -> None:
    """Catch requests from now on; `find_current` returns what handles those of the code that sends one. `uninstall`
    undoes it."""
    global _users, _find_current, _is_hooked
    with _lock:
        _users += 1
        if _users > 1:
            return
        _find_current = find_current
        for name in CLIENTS:
            if name in sys.modules:
                _patch_module(name)
        if _is_hooked:
            return
        _is_hooked = True
        import wrapt  # comes with vcrpy

        for name in CLIENTS:
            if name not in sys.modules:
                wrapt.register_post_import_hook(_patch_imported_module, name)


def uninstall() -> None:
    """Release one use of the interception; the last one removes it."""
    global _users
    with _lock:
        _users -= 1
        if not _users:
            while _undo:
                _undo.pop()()
            _patched.clear()


@contextmanager
def bypass_interception() -> Iterator[None]:
    """Let requests go out unchanged: evalkit's own, which are no agent's."""
    global _bypasses
    token = _is_bypassed.set(True)
    with _lock:
        _bypasses += 1
    try:
        yield
    finally:
        with _lock:
            _bypasses -= 1
        _is_bypassed.reset(token)


def bypass_here() -> None:
    """Let all requests of this context go out unchanged, to its end: of a task that belongs to no case."""
    _is_bypassed.set(True)


def is_bypassed(*, anywhere: bool = False) -> bool:
    """Tell whether the code here sends a request of evalkit's own; `anywhere`: or might, as a thread that looks up the
    name for it."""
    return _is_bypassed.get() or (anywhere and _bypasses > 0)


def find_player(authority: str) -> Player | None:
    """Find the player of a request to ``host`` or ``host:port``; None if it goes its own way."""
    if _is_bypassed.get():
        return None
    player = _find_current()
    return player if isinstance(player, Player) and player.can_handle(authority.lower()) else None


def find_toggle() -> RequestToggle | None:
    """Find what asks the model services of this code in the other way; None where nothing does."""
    traffic = None if _is_bypassed.get() else _find_current()
    return traffic if isinstance(traffic, RequestToggle) else None


def find_observer() -> Observer | None:
    """Find what reads the requests of this code on their way; None where nothing does."""
    traffic = None if _is_bypassed.get() else _find_current()
    return traffic if isinstance(traffic, Observer) else getattr(traffic, "observer", None)


def _patch_imported_module(module: ModuleType) -> None:
    with _lock:
        if _users:
            _patch_module(module.__name__)


def _patch_module(name: str) -> None:
    if name not in _patched:
        _patched.add(name)
        for class_name, method, maker in CLIENTS[name]:
            _replace_method(getattr(sys.modules[name], class_name), method, maker)


# The real method that was patched last, and what was made of it.
_replacements: dict[tuple[type, str], tuple[Method, Method]] = {}


def _replace_method(owner: type, method: str, maker: Maker) -> None:
    real = vars(owner)[method]
    cached, ours = _replacements.get((owner, method), (None, None))
    if cached is not real or ours is None:
        ours = functools.wraps(real)(maker(real))
        _replacements[owner, method] = real, ours
    setattr(owner, method, ours)

    def undo() -> None:
        if vars(owner).get(method) is ours:  # otherwise somebody patched over it, and ours lets everything pass
            setattr(owner, method, real)

    _undo.append(undo)


# -- http.client

FindPlayer = Callable[[str], Player | None]


class Connection(Protocol):
    """A connection of http.client, or of a library that is built on it."""

    host: str
    port: int | None
    default_port: int
    sock: object
    response_class: type[HTTPResponse]
    _method: str
    _tunnel_host: str | None
    _tunnel_port: int | None

    def connect(self) -> None: ...

    def send(self, data: bytes) -> None: ...

    def close(self) -> None: ...


_GATHERED = "_evalkit_gathered"  # on a connection: the player, and the bytes of the request so far
_OBSERVED = "_evalkit_observed"  # on a connection: the bytes of a request that is read on its way
_REAL = "_evalkit_real"  # on a connection: the request is really being sent


class NoSocket:
    """A placeholder for a connection's socket until it is certain whether one is needed."""

    def settimeout(self, timeout: float | None) -> None: ...

    def setsockopt(self, *option: object) -> None: ...

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...


class _ResponseBytes:
    """The bytes of a response, in place of the socket from which http.client reads."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._content)


def make_connect(real: Method, find: FindPlayer) -> Method:
    """Make `connect`, which urllib3 calls before it sends anything over TLS."""

    def connect(self: Connection) -> None:
        if _REAL in vars(self) or find(_get_authority(self)) is None:
            with carry():
                real(self)
            return
        self.sock = NoSocket()
        for flag in ("is_verified", "proxy_is_verified"):
            if hasattr(self, flag):
                setattr(self, flag, True)  # no certificate was seen, and none is missing

    return connect


def make_send(real: Method, find: FindPlayer) -> Method:
    """Build `send` of a connection, which gathers a request that a cassette answers."""

    def send(self: Connection, data: object) -> None:
        if _GATHERED not in vars(self):
            player = None if _REAL in vars(self) else find(_get_authority(self, data))
            if player is None:
                if isinstance(data, bytes) and data.startswith(b"POST ") and (toggle := find_toggle()) is not None:
                    toggle.note_client(data.split(b" ", 2)[1].decode("latin-1"), "http.client")
                if _REAL not in vars(self) and find_observer() is not None:
                    data = b"".join(_split_data(data)) if not isinstance(data, bytes) else data
                    vars(self).setdefault(_OBSERVED, bytearray()).extend(data)
                real(self, data)
                return
            vars(self)[_GATHERED] = (player, bytearray())
            if self.sock is None:
                self.sock = NoSocket()  # urllib3 sets its timeout
        for piece in _split_data(data):
            vars(self)[_GATHERED][1].extend(piece)

    return send


def make_getresponse(real: Method, find: FindPlayer) -> Method:
    """Build `getresponse` of a connection, which answers a gathered request."""

    def getresponse(self: Connection) -> HTTPResponse:
        gathered = vars(self).pop(_GATHERED, None)
        if gathered is None:
            sent, observer = vars(self).pop(_OBSERVED, None), find_observer()
            observation = None
            if sent is not None and observer is not None:
                observation = observer.observe(_parse_request(self, bytes(sent)))
            try:
                live: HTTPResponse = real(self)
            except BaseException as error:
                if observation is not None:
                    observation.fail(error)
                raise
            return live if observation is None else tee_http_client(live, observation)
        player, content = gathered
        outcome = player.begin(_parse_request(self, bytes(content)))
        if isinstance(outcome, HttpResponse):
            response = _build_response(self, outcome)
            self.close()
            return response
        since = perf_counter()
        answer = _fetch_live_response(self, bytes(content), real)
        outcome.record_response(answer, (perf_counter() - since) * 1000)
        return _build_response(self, answer)

    return getresponse


def make_close(real: Method, find: FindPlayer) -> Method:
    """Build `close` of a connection, which forgets a gathered request."""

    def close(self: Connection) -> None:
        vars(self).pop(_GATHERED, None)
        real(self)

    return close


def _fetch_live_response(connection: Connection, content: bytes, getresponse: Method) -> HttpResponse:
    """Send the collected request and read the whole response."""
    vars(connection)[_REAL] = True
    try:
        if isinstance(connection.sock, NoSocket):
            connection.sock = None
        if connection.sock is None:
            connection.connect()
        connection.send(content)
        response = getresponse(connection)
        body = response.read()
    finally:
        vars(connection).pop(_REAL, None)
    return HttpResponse(response.status, response.reason or "", tuple(response.getheaders()), body)


def _build_response(connection: Connection, recorded: HttpResponse) -> HTTPResponse:
    """Build http.client's response from recorded bytes."""
    gone = ("transfer-encoding", "content-length", "connection")
    headers = [(name, value) for name, value in recorded.headers if name.lower() not in gone]
    length = recorded.get_header("content-length") if connection._method == "HEAD" else str(len(recorded.body))
    if length and recorded.status >= 200 and recorded.status not in (204, 304):
        headers.append(("content-length", length))
    head = f"HTTP/1.1 {recorded.status} {recorded.reason}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
    content = head.encode("latin-1", "replace") + recorded.body
    reader: Any = _ResponseBytes(content)
    response = connection.response_class(reader, method=connection._method)
    response.begin()
    return response


def _parse_request(connection: Connection, content: bytes) -> HttpRequest:
    head, _, body = content.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, *_ = [*first.split(" "), "", ""]
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        chunks, buffer = body, bytearray()
        while chunks:
            size, _, rest = chunks.partition(b"\r\n")
            length = int(size.partition(b";")[0] or b"0", 16)
            if not length:
                break
            buffer += rest[:length]
            chunks = rest[length + 2 :]
        body = bytes(buffer)
    if not target.startswith(("http://", "https://")):
        scheme = "https" if connection.default_port == 443 else "http"
        target = f"{scheme}://{_get_authority(connection)}{target}"
    return HttpRequest(method, target, body, headers.get("content-type", ""))


def _get_authority(connection: Connection, data: object = b"") -> str:
    """Return ``host`` or ``host:port``, of the server behind a proxy rather than the proxy."""
    if isinstance(data, bytes) and b" http://" in data[:20]:
        return urlsplit(data.split(b" ", 2)[1].decode("latin-1")).netloc
    tunnel = getattr(connection, "_tunnel_host", None)
    host = tunnel or connection.host
    port = connection._tunnel_port if tunnel else connection.port
    display_host = f"[{host}]" if ":" in host else host
    return display_host if port in (None, connection.default_port) else f"{display_host}:{port}"


def _split_data(data: object) -> Iterable[bytes]:
    if isinstance(data, (bytes, bytearray, memoryview)):
        yield bytes(data)
    elif isinstance(data, str):
        yield data.encode("latin-1")
    elif hasattr(data, "read"):
        yield from _split_data(data.read())
    elif isinstance(data, Iterable):
        for piece in data:
            yield from _split_data(piece)
    else:
        raise TypeError(f"an HTTP body is bytes or an iterable of them, got {data!r}")


# -- vcrpy's stubs


class VcrRequest(Protocol):
    """A request of vcrpy's. aiohttp's stub gives a body as the caller gave it: data, a form, text or bytes."""

    method: str
    uri: str
    body: object
    headers: Mapping[str, str]
    evalkit_found: HttpResponse | PendingExchange
    evalkit_since: float


class Router:
    """A stand-in for vcrpy's cassette. The outcome for a request is stored on the request."""

    write_protected = False

    def can_play_response_for(self, request: VcrRequest) -> bool:
        """Tell whether the response is recorded. Raises where it should be, and is not."""
        body, content_type = request.body, str(request.headers.get("content-type", ""))
        if isinstance(body, bytes):
            content = body
        elif body is None:
            content = b""
        elif isinstance(body, (dict, list)):
            content, content_type = json.dumps(body, default=str).encode(), content_type or "application/json"
        elif hasattr(body, "read"):
            content = body.read()
        else:
            content = str(body).encode()
        sent = HttpRequest(request.method, str(request.uri), content, content_type)
        player = find_player(_parse_authority(sent.url))
        if player is None:
            return False
        outcome = player.begin(sent)
        request.evalkit_found, request.evalkit_since = outcome, perf_counter()
        return isinstance(outcome, HttpResponse)

    def play_response(self, request: VcrRequest) -> JsonDict:
        answer = request.evalkit_found
        assert isinstance(answer, HttpResponse)
        headers: dict[str, list[str]] = {}
        for name, value in answer.headers:
            headers.setdefault(name, []).append(value)
        status = {"code": answer.status, "message": answer.reason}
        return {"status": status, "headers": headers, "body": {"string": answer.body}}

    def append(self, request: VcrRequest, response: JsonObject) -> None:
        outcome = getattr(request, "evalkit_found", None)
        if isinstance(outcome, PendingExchange):
            headers = tuple((name, value) for name, values in response["headers"].items() for value in values)
            status, body = response["status"], response["body"].get("string") or b""
            answer = HttpResponse(status["code"], status["message"] or "", headers, body)
            outcome.record_response(answer, (perf_counter() - request.evalkit_since) * 1000)

    def filter_request(self, request: VcrRequest) -> VcrRequest:
        return request

    def find_requests_with_most_matches(self, request: VcrRequest) -> list[tuple[VcrRequest, list[str], list[str]]]:
        """Return the request itself: aiohttp's stub looks up the targets of redirects, which have their own
        exchanges."""
        return [(request, [], [])]


def _parse_authority(url: object) -> str:
    return urlsplit(str(url)).netloc.rpartition("@")[2]


def build_stub(client: str, method: str) -> Maker:
    """Build vcrpy's stub for one method of a client library: a function from the real method to its replacement."""
    router = Router()
    if client == "aiohttp":
        from vcr.stubs.aiohttp_stubs import vcr_request

        return lambda real: vcr_request(router, real)
    import importlib

    from vcr.stubs.httpx_stubs import vcr_handle_async_request, vcr_handle_request

    library = importlib.import_module(client)
    stub = vcr_handle_request if method == "handle_request" else vcr_handle_async_request
    return lambda real: stub(router, real, library)


def carry_connections(real: Method) -> Method:
    """Wrap the real method of a client, whose connections are carried."""

    @functools.wraps(real)
    def send(*args: Any, **options: Any) -> Any:
        with carry():
            return real(*args, **options)

    @functools.wraps(real)
    async def send_async(*args: Any, **options: Any) -> Any:
        with carry():
            return await real(*args, **options)

    return send_async if inspect.iscoroutinefunction(real) else send


def _make_stubbed(library: str, method: str, real: Method) -> Method:
    """Make a method that sends requests without a player by the real one, and others by vcrpy's stub.

    The stub is imported with the first of them: vcrpy imports every client library that is installed.
    """

    @functools.cache
    def get_stub() -> Method:
        return build_stub(library, method)(carry_connections(real))

    def handle_request(self: object, request: Any) -> object:
        if find_player(_parse_authority(request.url)) is not None:
            return get_stub()(self, request)
        toggle = find_toggle()
        if toggle is None:
            observer = find_observer()
            if observer is None:
                return real(self, request)
            observe = observe_async if method == "handle_async_request" else observe_sync
            return observe(library, functools.partial(real, self), request, observer)
        send = send_toggled_async if method == "handle_async_request" else send_toggled
        return send(library, functools.partial(real, self), request, toggle)

    def handle_session_request(self: Any, verb: str, url: object, **options: object) -> object:
        url = self._build_url(url)  # a session may have a base URL, which vcrpy's stub does not know
        if find_player(_parse_authority(url)) is not None:
            return get_stub()(self, verb, url, **options)
        if verb == "POST" and (toggle := find_toggle()) is not None:
            toggle.note_client(str(url), "aiohttp")
        if (observer := find_observer()) is not None:
            return observe_session(functools.partial(real, self), verb, url, options, observer)
        return real(self, verb, url, **options)

    return handle_session_request if library == "aiohttp" else handle_request


# -- requests that are read on their way


def observe_sync(library: str, send: Method, request: Any, observer: Observer) -> Any:
    """Send a request of httpx, and read its response as its client does."""
    observation = observer.observe(_read_request(request, request.read()))
    if observation is None:
        with carry():
            return send(request)
    try:
        with carry():
            response = send(request)
    except BaseException as error:
        observation.fail(error)
        raise
    return tee_httpx(sys.modules[library], response, observation)


async def observe_async(library: str, send: Method, request: Any, observer: Observer) -> Any:
    """Do the same for an asynchronous client."""
    observation = observer.observe(_read_request(request, await request.aread()))
    if observation is None:
        with carry():
            return await send(request)
    try:
        with carry():
            response = await send(request)
    except BaseException as error:
        observation.fail(error)
        raise
    return tee_httpx(sys.modules[library], response, observation)


async def observe_session(send: Method, verb: str, url: object, options: dict[str, Any], observer: Observer) -> Any:
    """Do the same for aiohttp."""
    body: Any = options.get("json", options.get("data"))
    content = json.dumps(body).encode() if isinstance(body, (dict, list)) else body if isinstance(body, bytes) else b""
    content = body.encode() if isinstance(body, str) else content
    observation = observer.observe(HttpRequest(verb, str(url), content))
    if str(url).startswith(("ws:", "wss:")) or "sec-websocket-key" in {
        str(k).lower() for k in options.get("headers") or ()
    }:
        observer.note_channel(urlsplit(str(url)).netloc)
    if observation is None:
        with carry():
            return await send(verb, url, **options)
    try:
        with carry():
            response = await send(verb, url, **options)
    except BaseException as error:
        observation.fail(error)
        raise
    return tee_aiohttp(response, observation)


# -- requests in the other way, of httpx and httpx2


def send_toggled(library: str, send: Method, request: Any, toggle: RequestToggle) -> Any:
    """Send a request of httpx in the other way, and return the response in the form that its client wants."""
    toggled = toggle.toggle(_read_request(request, request.read()))
    if toggled is None:
        observer = find_observer()
        return send(request) if observer is None else observe_sync(library, send, request, observer)
    response = send(_build_request(library, request, toggled))
    response.read()
    return _restore_response(library, response, toggled, toggle)


async def send_toggled_async(library: str, send: Method, request: Any, toggle: RequestToggle) -> Any:
    """Do the same for an asynchronous client."""
    toggled = toggle.toggle(_read_request(request, await request.aread()))
    if toggled is None:
        observer = find_observer()
        return await (send(request) if observer is None else observe_async(library, send, request, observer))
    response = await send(_build_request(library, request, toggled))
    await response.aread()
    return _restore_response(library, response, toggled, toggle)


def _read_request(request: Any, body: bytes) -> HttpRequest:
    return HttpRequest(request.method, str(request.url), body, request.headers.get("content-type", ""))


def _build_request(library: str, request: Any, toggled: ToggledRequest) -> Any:
    new = sys.modules[library].Request
    headers = [(key, value) for key, value in request.headers.multi_items() if key.lower() not in _LENGTHS]
    changed = toggled.request
    return new(changed.method, changed.url, headers=headers, content=changed.body, extensions=request.extensions)


def _restore_response(library: str, response: Any, toggled: ToggledRequest, toggle: RequestToggle) -> Any:
    headers = [(key, value) for key, value in response.headers.multi_items() if key.lower() not in _LENGTHS]
    restored = toggle.restore(toggled, HttpResponse(response.status_code, "", tuple(headers), response.content))
    stream = sys.modules[library].ByteStream(restored.body)
    return sys.modules[library].Response(restored.status, headers=list(restored.headers), stream=stream)


_LENGTHS = ("content-length", "content-encoding", "transfer-encoding")


# -- what is patched: module -> classes, methods, and what makes the replacement


def _list_patches(make: Callable[[Method, FindPlayer], Method], *places: str) -> list[tuple[str, str, Maker]]:
    """List the places, ``Class.method``, whose methods `make` replaces."""
    return [(*_split_place(place), lambda real: make(real, find_player)) for place in places]


def _list_stubs(library: str, *places: str) -> list[tuple[str, str, Maker]]:
    """List the places, ``Class.method``, that vcrpy has stubs for."""
    return [
        (owner, method, functools.partial(_make_stubbed, library, method))
        for owner, method in map(_split_place, places)
    ]


def _split_place(place: str) -> tuple[str, str]:
    owner, _, method = place.partition(".")
    return owner, method


_TRANSPORTS = ("HTTPTransport.handle_request", "AsyncHTTPTransport.handle_async_request")
CLIENTS: dict[str, list[tuple[str, str, Maker]]] = {
    "http.client": [
        *_list_patches(make_connect, "HTTPConnection.connect", "HTTPSConnection.connect"),
        *_list_patches(make_send, "HTTPConnection.send"),
        *_list_patches(make_getresponse, "HTTPConnection.getresponse"),
        *_list_patches(make_close, "HTTPConnection.close"),
    ],
    "urllib3.connection": _list_patches(make_connect, "HTTPConnection.connect", "HTTPSConnection.connect"),
    "httplib2": _list_patches(make_connect, "HTTPConnectionWithTimeout.connect", "HTTPSConnectionWithTimeout.connect"),
    "httpx": _list_stubs("httpx", *_TRANSPORTS),
    "httpx2": _list_stubs("httpx2", *_TRANSPORTS),
    "websockets.asyncio.connection": [
        ("Connection", "send", lambda real: ws.make_send(find_observer, is_async=True)(real)),
        ("Connection", "recv", lambda real: ws.make_recv(find_observer, is_async=True)(real)),
    ],
    "websockets.sync.connection": [
        ("Connection", "send", lambda real: ws.make_send(find_observer, is_async=False)(real)),
        ("Connection", "recv", lambda real: ws.make_recv(find_observer, is_async=False)(real)),
    ],
    "aiohttp": [
        *_list_stubs("aiohttp", "ClientSession._request"),
        ("StreamReader", "_read_nowait_chunk", make_read_chunk),
    ],
}
