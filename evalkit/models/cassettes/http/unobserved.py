"""Connections that no interception carries: an audit hook sees who opens them, and not what they say.

A connection that an intercepted client opens is carried: what goes over it is read, or answered from a cassette. Any
other one may lead to a model, unless its port or its library is that of a database, a queue or the like. It counts for
the case that opened it, and for each later case in which something is sent over it: clients keep connections.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from time import monotonic

from msgspec import Struct, field

from evalkit.locks import create_reentrant_lock
from evalkit.models.cassettes.http.other_services import OTHER_CLIENTS, OTHER_PORTS, is_opened_by

_carried: ContextVar[bool] = ContextVar("evalkit_carried", default=False)
_INTERNET = (socket.AF_INET, socket.AF_INET6)
# "127.0.0.1:PORT" of every functions server that is up. Requests to it are function calls, which are not recorded.
OWN_HOSTS: set[str] = set()
OWN_PEERS: set[str] = set()  # "host:port" of the services that are agents: evalkit itself connects to them
# Clients whose traffic is intercepted while cases run; outside of cases they open connections as themselves.
_CLIENTS = frozenset({"aiohappyeyeballs", "aiohttp", "http", "httpcore", "httpcore2", "httpx", "httpx2", "urllib3"})
_MOST = 10_000  # connections that are remembered


class Connection(Struct, eq=False):
    """A connection that nobody carries. `owner` is the run that opened it; None: it is over, or it was none."""

    descriptor: int
    host: str
    port: int
    owner: object = None
    is_read: bool = False  # a library's messages are read above it
    opened: float = field(default_factory=monotonic)

    def is_open(self) -> bool:
        """Return whether the descriptor still leads to this peer. A socket under TLS has another object by now."""
        with suppress(OSError), _borrow(self.descriptor) as sock:
            return bool(sock.getpeername()[:2] == (self.host, self.port))
        return False

    def count_sent(self) -> int | None:
        """Return how much was sent over it so far; None where the system does not say."""
        # Linux: the number of segments with data that went out, a field of `struct tcp_info`.
        with suppress(OSError, AttributeError, struct.error), _borrow(self.descriptor) as sock:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            count: int = struct.unpack_from("=I", info, 156)[0]
            return count
        return None


@contextmanager
def _borrow(descriptor: int) -> Iterator[socket.socket]:
    """Make a socket of a descriptor that belongs to another one, and leave it open."""
    sock = socket.socket(fileno=descriptor)
    try:
        yield sock
    finally:
        sock.detach()


FindOwner = Callable[[str, int], object]

OUTSIDE = object()  # what `find_owner` returns for code of no case whose connections count all the same
_lock = create_reentrant_lock()
_connections: list[Connection] = []
_listening: list[tuple[int, object]] = []  # descriptors of servers, and the runs whose agents opened them
_is_hooked = False
_find_owner: FindOwner | None = None


@contextmanager
def carry() -> Iterator[None]:
    """Mark connections that are opened inside as those of an intercepted client."""
    token = _carried.set(True)
    try:
        yield
    finally:
        _carried.reset(token)


def watch(find_owner: FindOwner | None) -> None:
    """Remember each connection that nobody carries, from now on; None: stop. The hook itself stays for ever.

    `find_owner` returns the run whose code connects to a host and port, OUTSIDE for code of no case, or None for what
    counts nowhere.
    """
    global _is_hooked, _find_owner
    _find_owner = find_owner
    if find_owner is not None and not _is_hooked:
        _is_hooked = True
        sys.addaudithook(_audit)


def mark_read(host: str, port: int) -> None:
    """Leave out the connections to a peer whose messages are read after all."""
    with _lock:
        for connection in _connections:
            connection.is_read |= (connection.host, connection.port) == (host, port)


def measure_open(strangers: Collection[object]) -> dict[Connection, int | None]:
    """Measure what was sent so far over each open connection, but for those of `strangers`."""
    with _lock:
        _connections[:] = [c for c in _connections if c.owner is not None or c.is_open()]
        return {c: c.count_sent() for c in _connections if c.owner not in strangers and c.is_open()}


def list_used(older: Mapping[Connection, int | None]) -> list[Connection]:
    """List the connections over which something was sent since `measure_open`. Where the system does not say what was
    sent, an open one may have been used."""
    return [c for c, count in older.items() if c.is_open() and (count is None or c.count_sent() != count)]


def list_opened(owner: object, since: float = 0.0) -> list[Connection]:
    """List the connections that `owner` has opened since a moment."""
    with _lock:
        return [c for c in _connections if c.owner is owner and c.opened >= since]


def forget(owner: object) -> None:
    """Forget whose the connections of a run that is over were; those that are open count for later runs."""
    with _lock:
        _connections[:] = [c for c in _connections if c.owner is not owner or c.is_open()]
        for connection in _connections:
            connection.owner = None if connection.owner is owner else connection.owner
        _listening[:] = [(descriptor, opener) for descriptor, opener in _listening if opener is not owner]


def _get_port(descriptor: int) -> int:
    with suppress(OSError), _borrow(descriptor) as sock:
        name = sock.getsockname()  # of another socket by now, perhaps, whose name is a text
        return int(name[1]) if isinstance(name, tuple) else 0
    return 0


def _audit(event: str, args: tuple[object, ...]) -> None:
    if event not in ("socket.connect", "socket.bind") or _find_owner is None or _carried.get():
        return
    sock, address = args[0], args[1]
    if not isinstance(sock, socket.SocketType) or sock.family not in _INTERNET or not isinstance(address, tuple):
        return
    if sock.type & 0xF != socket.SOCK_STREAM:
        return
    host, port = str(address[0]), address[1]
    if event == "socket.connect" and (port in OTHER_PORTS or f"{host}:{port}" in OWN_PEERS):
        return
    owner = _find_owner(host, int(port))
    if owner is None:
        return
    others = OTHER_CLIENTS | _CLIENTS if owner is OUTSIDE else OTHER_CLIENTS
    if event == "socket.connect" and is_opened_by(sys._getframe(1), others):
        return
    with _lock:
        if event == "socket.bind":
            _listening.append((sock.fileno(), owner))
        elif host in ("127.0.0.1", "::1") and (owner, port) in {(who, _get_port(fd)) for fd, who in _listening}:
            return  # a server that the agent itself has opened in this run: what that does is seen
        elif len(_connections) < _MOST:
            _connections.append(Connection(sock.fileno(), host, int(port), None if owner is OUTSIDE else owner))
