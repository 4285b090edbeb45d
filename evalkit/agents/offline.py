"""Offline, an agent's own client reaches nobody on the internet.

With vcrpy its requests are answered from cassettes. Without it they would go out: a bill, a verdict that is another one
tomorrow, and nobody told. So while a case runs, the connections that are made in its context are looked at. Those to a
public address are refused, and the case can't be measured; this machine, containers beside it and private networks are
reached as ever. So is everybody from outside a case.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from evalkit.errors import MissingCassetteError
from evalkit.functions.patching.context_propagation import CURRENT_CASE, start_propagation, stop_propagation
from evalkit.model.settings import Settings

if TYPE_CHECKING:
    from evalkit.agents.task import Task


OWN_PEERS: set[str] = set()  # "host:port" of the services that are agents: it is evalkit that asks them

_NEED = "offline"
_MOST_NAMES = 1000
_lock = threading.Lock()
_ignored_hosts: dict[
    Task, tuple[str, ...]
] = {}  # by run that is cut off: patterns of the hosts that it reaches all the same
_names: dict[str, str] = {}  # by address, the name that was asked for
_undo: list[Callable[[], None]] = []
_getaddrinfo = socket.getaddrinfo


def cut_off(task: Task, settings: Settings) -> None:
    """From now on the run that `task` is reaches nobody, if it is offline and no cassette plays its requests."""
    if task.http_player is not None or settings.model is not None or settings.http.cassettes is False:
        return
    with _lock:
        if not _ignored_hosts:
            _install()
        _ignored_hosts[task] = settings.http.ignore_hosts


def restore(task: Task) -> None:
    """The agent has ended, one that was left behind too."""
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


def _replace(owner: Any, name: str, new: Any) -> None:
    original = vars(owner).get(name)
    setattr(owner, name, new)
    _undo.append(lambda: delattr(owner, name) if original is None else setattr(owner, name, original))


def _wrap_connect(real: Callable[[socket.socket, Any], Any]) -> Callable[[socket.socket, Any], Any]:
    def connect(self: socket.socket, address: Any, /) -> Any:
        # A datagram socket is connected to nobody: that is how programs learn their own address.
        if self.type == socket.SOCK_STREAM and self.family in (socket.AF_INET, socket.AF_INET6):
            host, port = address[:2]
            if _is_public(host):
                try:
                    _refuse(_names.get(host, host), port)
                except MissingCassetteError:
                    self.close()  # clients do so after an OSError alone, and for that they would ask again and again
                    raise
        return real(self, address)

    return connect


def _resolve(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
    """`socket.getaddrinfo`, which remembers the names. One that nobody knows is as good as a public one."""
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
    import ipaddress

    try:
        address = ipaddress.ip_address(host.partition("%")[0])
        return (getattr(address, "ipv4_mapped", None) or address).is_global
    except ValueError:  # a name
        return any(_is_public(str(address[0])) for *_, address in _getaddrinfo(host, None))


def _refuse(host: str, port: object) -> None:
    """MissingCassetteError, if the case of this context is cut off from `host`."""
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
