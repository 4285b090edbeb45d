"""The guard that keeps an agent's own client off the internet while a case runs offline.

With vcrpy its requests are answered from cassettes. Without it they would go out unnoticed, cost money, and change the
verdict from day to day. So connections made in the context of a case are checked: those to a public address are
refused, and the case can't be measured. This machine, its containers, private networks, and code outside of cases are
not restricted.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any

from evalkit.agents.task import Task
from evalkit.errors import MissingCassetteError
from evalkit.functions.patching.context_propagation import CURRENT_CASE, start_propagation, stop_propagation
from evalkit.model.settings import Settings

OWN_PEERS: set[str] = set()  # "host:port" of the services that are agents: evalkit itself connects to them

_NEED = "offline"
_MOST_NAMES = 1000
_lock = threading.Lock()
_ignored_hosts: dict[Task, tuple[str, ...]] = {}  # by run that is cut off: patterns of hosts that stay reachable
_names: dict[str, str] = {}  # by address, the name that was looked up
_undo: list[Callable[[], None]] = []
_getaddrinfo = socket.getaddrinfo


def cut_off(task: Task, settings: Settings) -> None:
    """Cut the run of `task` off the internet, if it is offline and no cassette plays its requests."""
    if task.http_player is not None or settings.model is not None or settings.http.cassettes is False:
        return
    with _lock:
        if not _ignored_hosts:
            _install()
        _ignored_hosts[task] = settings.http.ignore_hosts


def restore(task: Task) -> None:
    """End the restriction of `task`: its agent has ended."""
    with _lock:
        if _ignored_hosts.pop(task, None) is not None and not _ignored_hosts:
            while _undo:
                _undo.pop()()
            stop_propagation(_NEED)
            _names.clear()


def _install() -> None:
    global _getaddrinfo
    _getaddrinfo = socket.getaddrinfo
    _replace(socket, "getaddrinfo", _resolve)
    for name in ("connect", "connect_ex"):
        _replace(socket.socket, name, _wrap_connect(getattr(socket.socket, name)))
    start_propagation(_NEED)


def _replace(owner: object, name: str, new: object) -> None:
    original = vars(owner).get(name)
    setattr(owner, name, new)
    _undo.append(lambda: delattr(owner, name) if original is None else setattr(owner, name, original))


def _wrap_connect(real: Callable[[socket.socket, Any], Any]) -> Callable[[socket.socket, Any], Any]:
    def connect(self: socket.socket, address: Any, /) -> Any:
        # Connecting a datagram socket sends nothing: programs learn their own address that way.
        if self.type == socket.SOCK_STREAM and self.family in (socket.AF_INET, socket.AF_INET6):
            host, port = address[:2]
            if _is_public(host):
                try:
                    _refuse(_names.get(host, host), port)
                except MissingCassetteError:
                    self.close()  # clients close it after an OSError alone, after which they would retry
                    raise
        return real(self, address)

    return connect


def _resolve(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
    """Resolve `host` as `socket.getaddrinfo` does, and remember its name. An unknown name counts as public."""
    try:
        addresses = _getaddrinfo(host, port, *args, **kwargs)
    except socket.gaierror:
        if isinstance(host, str) and "." in host:
            _refuse(host, port)
        raise
    if isinstance(host, str) and len(_names) < _MOST_NAMES:
        _names.update((str(address[0]), host) for *_, address in addresses)
    return addresses


def _is_public(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
        return (getattr(address, "ipv4_mapped", None) or address).is_global
    except ValueError:  # a name
        return any(_is_public(str(address[0])) for *_, address in _getaddrinfo(host, None))


def _refuse(host: str, port: object) -> None:
    """Raise MissingCassetteError if the case of this context is cut off from `host`."""
    case = CURRENT_CASE.get()
    task: Any = None if case is None else case.dispatcher.task
    ignored = _ignored_hosts.get(task)
    if ignored is None or f"{host}:{port}" in OWN_PEERS:
        return
    if any(fnmatch(host, pattern) or fnmatch(f"{host}:{port}", pattern) for pattern in ignored):
        return
    error = MissingCassetteError(
        f"offline, and the agent's own client connects to {host}:{port}; without --evalkit-model no case reaches the "
        "internet\nTo record what it asks and play it back: pip install 'pytest-evalkit[vcr]'. In [tool.evalkit.http], "
        f'ignore_hosts = ["{host}"] lets this host through, cassettes = false all of them'
    )
    task.record_fault(error)
    raise error
