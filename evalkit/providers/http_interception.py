"""Where the requests of HTTP clients are caught: one interception per process asks, request by request, whose it is.

vcrpy's own way is to patch the clients for one cassette at a time, for the whole process. Here its stubs are installed
once, as long as any tape is open, and stand before a router: the tape of the case whose context the request comes
from, or nobody's, and then the request goes its way untouched. That holds for httpx, httpx2 and aiohttp. For
http.client and all that is built on it (urllib, urllib3, requests, botocore, httplib2) vcrpy exchanges classes, and
changes them back for a moment with each connection, in which other threads get the real ones; so `http_sockets` does
that part.

Clients that are imported later, inside an agent, are caught too: each is patched right after its import.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from evalkit.providers.http_sockets import closing, connecting, responding, sending
from evalkit.providers.http_tape import HttpTape

Maker = Callable[[Any], Any]  # from a real method to the one in its place

_lock = threading.RLock()
_users = 0
_undo: list[Callable[[], None]] = []
_patched: set[str] = set()
_is_hooked = False
_passing: ContextVar[bool] = ContextVar("evalkit_http_passing", default=False)


def _nobody() -> HttpTape | None:
    return None


_find: Callable[[], HttpTape | None] = _nobody


def install(find: Callable[[], HttpTape | None]) -> None:
    """Catch requests from now on; `find` tells whose the one is that is being sent. To be undone by `uninstall`."""
    global _users, _find
    with _lock:
        _users += 1
        if _users > 1:
            return
        _find = find
        for name in CLIENTS:
            if name in sys.modules:
                _patch(name)
        _hook_imports()


def uninstall() -> None:
    """One user less; the last one takes the interception away."""
    global _users
    with _lock:
        _users -= 1
        if not _users:
            while _undo:
                _undo.pop()()
            _patched.clear()


@contextmanager
def passing() -> Iterator[None]:
    """Inside, requests go out as they are: evalkit's own, which are no agent's."""
    token = _passing.set(True)
    try:
        yield
    finally:
        _passing.reset(token)


def tape_for(authority: str) -> HttpTape | None:
    """The tape that a request to ``host`` or ``host:port`` is of, if it is of any."""
    if _passing.get():
        return None
    tape = _find()
    return tape if tape is not None and tape.concerns(authority.lower()) else None


def _hook_imports() -> None:
    global _is_hooked
    if _is_hooked:
        return
    _is_hooked = True
    import wrapt  # comes with vcrpy

    for name in CLIENTS:
        if name not in sys.modules:
            wrapt.register_post_import_hook(lambda module: _imported(module.__name__), name)


def _imported(name: str) -> None:
    with _lock:
        if _users:
            _patch(name)


def _patch(name: str) -> None:
    if name not in _patched:
        _patched.add(name)
        for class_name, method, maker in CLIENTS[name]():
            _replace(getattr(sys.modules[name], class_name), method, maker)


_made: dict[tuple[type, str], tuple[Any, Any]] = {}  # the real method that was patched last, and what was made of it


def _replace(owner: Any, method: str, maker: Maker) -> None:
    real = vars(owner)[method]
    known, ours = _made.get((owner, method), (None, None))
    if known is not real:
        ours = functools.wraps(real)(maker(real))
        _made[owner, method] = real, ours
    setattr(owner, method, ours)

    def undo() -> None:
        if vars(owner).get(method) is ours:  # otherwise somebody patched over it, and ours lets everything pass
            setattr(owner, method, real)

    _undo.append(undo)


# -- what is patched: module -> classes, methods, and what makes the replacement

_Parts = list[tuple[str, str, Maker]]


def _sockets() -> _Parts:
    makers = {"connect": connecting, "send": sending, "getresponse": responding, "close": closing}
    parts: _Parts = [("HTTPConnection", name, functools.partial(_with_find, make)) for name, make in makers.items()]
    return [*parts, ("HTTPSConnection", "connect", functools.partial(_with_find, connecting))]


def _with_find(make: Any, real: Any) -> Any:
    return make(real, tape_for)


def _connects(*classes: str) -> Callable[[], _Parts]:
    return lambda: [(name, "connect", functools.partial(_with_find, connecting)) for name in classes]


def _transports(library: str) -> Callable[[], _Parts]:
    def parts() -> _Parts:
        methods = {"HTTPTransport": "handle_request", "AsyncHTTPTransport": "handle_async_request"}
        return [(name, method, functools.partial(_stubbed, library, method)) for name, method in methods.items()]

    return parts


def _sessions() -> _Parts:
    return [("ClientSession", "_request", functools.partial(_stubbed, "aiohttp", "_request"))]


def _stubbed(library: str, method: str, real: Any) -> Any:
    """The real method for requests that are nobody's, and else vcrpy's stub, which is imported with the first of them:
    vcrpy imports every client library that is installed."""

    @functools.cache
    def stub() -> Any:
        from evalkit.providers.http_stubs import stub_for

        return stub_for(library, method)(real)

    def caught(self: Any, request: Any) -> Any:
        return (real if tape_for(_authority(request.url)) is None else stub())(self, request)

    def caught_in_session(self: Any, verb: str, url: Any, **options: Any) -> Any:
        url = self._build_url(url)  # a session may have a base URL, which vcrpy's stub does not know
        return (real if tape_for(_authority(url)) is None else stub())(self, verb, url, **options)

    return caught_in_session if library == "aiohttp" else caught


def _authority(url: Any) -> str:
    return urlsplit(str(url)).netloc.rpartition("@")[2]


CLIENTS: dict[str, Callable[[], _Parts]] = {
    "http.client": _sockets,
    "urllib3.connection": _connects("HTTPConnection", "HTTPSConnection"),
    "httplib2": _connects("HTTPConnectionWithTimeout", "HTTPSConnectionWithTimeout"),
    "httpx": _transports("httpx"),
    "httpx2": _transports("httpx2"),
    "aiohttp": _sessions,
}
