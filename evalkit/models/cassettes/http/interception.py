"""The interception of HTTP clients: one per process, which finds the traffic of each request.

The clients' methods are patched as long as any run is open. A request is handled by the traffic of the case in whose
context it is sent; without one it goes out unchanged. Clients that are imported later, inside an agent, are patched
right after their import. What patches a client is imported when the client is there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Protocol, cast

from evalkit.lazy import load
from evalkit.locks import create_reentrant_lock
from evalkit.models.cassettes.http.import_hook import PatchAfterImport
from evalkit.models.cassettes.http.traffic import Traffic

Method = Callable[..., Any]  # of a client library's class
Patch = tuple[
    str, str, Callable[[Method], Method]
]  # class ("": the module itself), method, and what makes the one in its place of the real one
FindTraffic = Callable[[], Traffic | None]


class Client(Protocol):
    """A module that knows how a client library sends requests."""

    def list_patches(self, library: str, find: FindTraffic) -> list[Patch]:
        """List what is to be patched in a module of a client library; `find` finds the traffic of a request."""


# Modules of client libraries, and the modules here that patch them.
CLIENTS = {
    "http.client": "evalkit.models.cassettes.http.http_client",
    "urllib3.connection": "evalkit.models.cassettes.http.http_client",
    "urllib3.util.connection": "evalkit.models.cassettes.http.http_client",
    "httplib2": "evalkit.models.cassettes.http.http_client",
    "httpx": "evalkit.models.cassettes.http.httpx_client",
    "httpx2": "evalkit.models.cassettes.http.httpx_client",
    "aiohttp": "evalkit.models.cassettes.http.aiohttp_client",
    "websockets.asyncio.connection": "evalkit.models.cassettes.http.websocket_client",
    "websockets.sync.connection": "evalkit.models.cassettes.http.websocket_client",
}

_lock = create_reentrant_lock()
_users = 0
_undo: list[Callable[[], None]] = []
_patched: set[str] = set()
_bypasses = 0
_is_bypassed: ContextVar[bool] = ContextVar("evalkit_http_passing", default=False)
_find_current: FindTraffic = lambda: None  # noqa: E731 - until `install`


def install(find_current: FindTraffic) -> None:
    """Catch requests from now on; `find_current` returns what handles those of the code that sends one. `uninstall`
    undoes it."""
    global _users, _find_current
    for name in CLIENTS:
        if name in sys.modules:
            load(CLIENTS[name])  # without the lock, for which an import in another thread may wait
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
    load(CLIENTS[module.__name__])
    with _lock:
        if _users:
            _patch_module(module.__name__)


def _patch_module(name: str) -> None:
    if name not in _patched:
        _patched.add(name)
        client = cast("Client", load(CLIENTS[name]))
        for class_name, method, maker in client.list_patches(name, find_traffic):
            module = sys.modules[name]
            _replace_method(getattr(module, class_name) if class_name else module, method, maker)


# The real method that was patched last, and what was made of it.
_replacements: dict[tuple[object, str], tuple[Method, Method]] = {}


def _replace_method(owner: object, method: str, maker: Callable[[Method], Method]) -> None:
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


_import_hook = PatchAfterImport(CLIENTS, _patch_imported_module)
