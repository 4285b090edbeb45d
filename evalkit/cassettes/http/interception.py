"""The interception of HTTP clients: one per process, which finds the traffic of each request.

The clients' methods are patched as long as any run is open. A request is handled by the traffic of the case in whose
context it is sent; without one it goes out unchanged. Clients that are imported later, inside an agent, are patched
right after their import.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from evalkit.cassettes.http import aiohttp_client as aiohttp
from evalkit.cassettes.http import http_client, websocket_client
from evalkit.cassettes.http import httpx_client as httpx
from evalkit.cassettes.http.import_hook import PatchAfterImport
from evalkit.cassettes.http.traffic import Traffic

Method = Callable[..., Any]  # of a client library's class
Maker = Callable[[Method], Method]  # from a real method to the one in its place

_lock = threading.RLock()
_users = 0
_undo: list[Callable[[], None]] = []
_patched: set[str] = set()
_bypasses = 0
_is_bypassed: ContextVar[bool] = ContextVar("evalkit_http_passing", default=False)
_find_current: Callable[[], Traffic | None] = lambda: None  # noqa: E731 - until `install`


def install(find_current: Callable[[], Traffic | None]) -> None:
    """Catch requests from now on; `find_current` returns what handles those of the code that sends one. `uninstall`
    undoes it."""
    global _users, _find_current
    with _lock:
        _users += 1
        if _users > 1:
            return
        _find_current = find_current
        for name in CLIENTS:
            if name in sys.modules:
                _patch_module(name)
        _import_hook.install()


def uninstall() -> None:
    """Release one use of the interception; the last one removes it."""
    global _users
    with _lock:
        _users -= 1
        if not _users:
            _import_hook.uninstall()
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


def find_traffic() -> Traffic | None:
    """Find what handles a request that is sent here; None if it goes its own way."""
    return None if _is_bypassed.get() else _find_current()


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


# -- what is patched: module -> classes, methods, and what makes the replacement


def _list_patches(make: Callable[..., Method], *places: str) -> list[tuple[str, str, Maker]]:
    """List the places, ``Class.method``, whose methods `make` replaces."""
    return [(*_split_place(place), lambda real: make(real, find_traffic)) for place in places]


def _split_place(place: str) -> tuple[str, str]:
    owner, _, method = place.partition(".")
    return owner, method


def _list_transports(library: str) -> list[tuple[str, str, Maker]]:
    return [
        ("HTTPTransport", "handle_request", httpx.make_handle_request(library, find_traffic)),
        ("AsyncHTTPTransport", "handle_async_request", httpx.make_handle_async_request(library, find_traffic)),
    ]


CLIENTS: dict[str, list[tuple[str, str, Maker]]] = {
    "http.client": [
        *_list_patches(http_client.make_connect, "HTTPConnection.connect", "HTTPSConnection.connect"),
        *_list_patches(http_client.make_send, "HTTPConnection.send"),
        *_list_patches(http_client.make_getresponse, "HTTPConnection.getresponse"),
        *_list_patches(http_client.make_close, "HTTPConnection.close"),
    ],
    "urllib3.connection": _list_patches(http_client.make_connect, "HTTPConnection.connect", "HTTPSConnection.connect"),
    "httplib2": _list_patches(
        http_client.make_connect, "HTTPConnectionWithTimeout.connect", "HTTPSConnectionWithTimeout.connect"
    ),
    "httpx": _list_transports("httpx"),
    "httpx2": _list_transports("httpx2"),
    "aiohttp": [
        ("BaseConnector", "connect", aiohttp.make_connect(find_traffic)),
        ("ClientResponse", "start", aiohttp.make_start),
        ("ClientResponse", "close", aiohttp.make_close),
        ("ClientResponse", "release", aiohttp.make_close),
        ("StreamReader", "_read_nowait_chunk", aiohttp.make_read_chunk),
    ],
    "websockets.asyncio.connection": [
        ("Connection", "send", websocket_client.make_send(find_traffic)),
        ("Connection", "recv", websocket_client.make_async_recv),
    ],
    "websockets.sync.connection": [
        ("Connection", "send", websocket_client.make_send(find_traffic)),
        ("Connection", "recv", websocket_client.make_recv),
    ],
}
_import_hook = PatchAfterImport(CLIENTS, _patch_imported_module)
