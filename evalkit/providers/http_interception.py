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

from evalkit.providers.http_sockets import make_close, make_connect, make_getresponse, make_send
from evalkit.providers.http_tape import Player

Maker = Callable[[Any], Any]  # from a real method to the one in its place

_lock = threading.RLock()
_users = 0
_undo: list[Callable[[], None]] = []
_patched: set[str] = set()
_is_hooked = False
_is_bypassed: ContextVar[bool] = ContextVar("evalkit_http_passing", default=False)


def _find_no_player() -> Player | None:
    return None


_find_current: Callable[[], Player | None] = _find_no_player


def install(find_current: Callable[[], Player | None]) -> None:
    """Catch requests from now on; `find` tells whose the one is that is being sent. To be undone by `uninstall`."""
    global _users, _find_current
    with _lock:
        _users += 1
        if _users > 1:
            return
        _find_current = find_current
        for name in CLIENTS:
            if name in sys.modules:
                _patch_module(name)
        _register_import_hooks()


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
def bypass_interception() -> Iterator[None]:
    """Inside, requests go out as they are: evalkit's own, which are no agent's."""
    token = _is_bypassed.set(True)
    try:
        yield
    finally:
        _is_bypassed.reset(token)


def find_player(authority: str) -> Player | None:
    """The tape that a request to ``host`` or ``host:port`` is of, if it is of any."""
    if _is_bypassed.get():
        return None
    player = _find_current()
    return player if player is not None and player.can_handle(authority.lower()) else None


def _register_import_hooks() -> None:
    global _is_hooked
    if _is_hooked:
        return
    _is_hooked = True
    import wrapt  # comes with vcrpy

    for name in CLIENTS:
        if name not in sys.modules:
            wrapt.register_post_import_hook(lambda module: _patch_imported(module.__name__), name)


def _patch_imported(name: str) -> None:
    with _lock:
        if _users:
            _patch_module(name)


def _patch_module(name: str) -> None:
    if name not in _patched:
        _patched.add(name)
        for class_name, method, maker in CLIENTS[name]():
            _replace_method(getattr(sys.modules[name], class_name), method, maker)


_replacements: dict[
    tuple[type, str], tuple[Any, Any]
] = {}  # the real method that was patched last, and what was made of it


def _replace_method(owner: Any, method: str, maker: Maker) -> None:
    real = vars(owner)[method]
    cached, ours = _replacements.get((owner, method), (None, None))
    if cached is not real:
        ours = functools.wraps(real)(maker(real))
        _replacements[owner, method] = real, ours
    setattr(owner, method, ours)

    def undo() -> None:
        if vars(owner).get(method) is ours:  # otherwise somebody patched over it, and ours lets everything pass
            setattr(owner, method, real)

    _undo.append(undo)


# -- what is patched: module -> classes, methods, and what makes the replacement

_Patches = list[tuple[str, str, Maker]]


def _list_socket_patches() -> _Patches:
    makers = {"connect": make_connect, "send": make_send, "getresponse": make_getresponse, "close": make_close}
    parts: _Patches = [
        ("HTTPConnection", name, functools.partial(_bind_player_lookup, make)) for name, make in makers.items()
    ]
    return [*parts, ("HTTPSConnection", "connect", functools.partial(_bind_player_lookup, make_connect))]


def _bind_player_lookup(make: Any, real: Any) -> Any:
    return make(real, find_player)


def _make_connect_lister(*classes: str) -> Callable[[], _Patches]:
    return lambda: [(name, "connect", functools.partial(_bind_player_lookup, make_connect)) for name in classes]


def _make_transport_lister(library: str) -> Callable[[], _Patches]:
    def list_patches() -> _Patches:
        methods = {"HTTPTransport": "handle_request", "AsyncHTTPTransport": "handle_async_request"}
        return [(name, method, functools.partial(_make_stubbed, library, method)) for name, method in methods.items()]

    return list_patches


def _list_session_patches() -> _Patches:
    return [("ClientSession", "_request", functools.partial(_make_stubbed, "aiohttp", "_request"))]


def _make_stubbed(library: str, method: str, real: Any) -> Any:
    """The real method for requests that are nobody's, and else vcrpy's stub, which is imported with the first of them:
    vcrpy imports every client library that is installed."""

    @functools.cache
    def get_stub() -> Any:
        from evalkit.providers.http_stubs import build_stub

        return build_stub(library, method)(real)

    def handle_request(self: Any, request: Any) -> Any:
        return (real if find_player(_parse_authority(request.url)) is None else get_stub())(self, request)

    def handle_session_request(self: Any, verb: str, url: Any, **options: Any) -> Any:
        url = self._build_url(url)  # a session may have a base URL, which vcrpy's stub does not know
        return (real if find_player(_parse_authority(url)) is None else get_stub())(self, verb, url, **options)

    return handle_session_request if library == "aiohttp" else handle_request


def _parse_authority(url: Any) -> str:
    return urlsplit(str(url)).netloc.rpartition("@")[2]


CLIENTS: dict[str, Callable[[], _Patches]] = {
    "http.client": _list_socket_patches,
    "urllib3.connection": _make_connect_lister("HTTPConnection", "HTTPSConnection"),
    "httplib2": _make_connect_lister("HTTPConnectionWithTimeout", "HTTPSConnectionWithTimeout"),
    "httpx": _make_transport_lister("httpx"),
    "httpx2": _make_transport_lister("httpx2"),
    "aiohttp": _list_session_patches,
}
