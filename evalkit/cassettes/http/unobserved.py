"""Connections that no interception carried: seen by an audit hook, which knows who opened them and not what they say.

A connection that an intercepted client opens is carried. Any other one, of a run's code to a place that is not known
as something else, may lead to a model.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_carried: ContextVar[bool] = ContextVar("evalkit_carried", default=False)
_INTERNET = (socket.AF_INET, socket.AF_INET6)
# Ports of what is no model's service: SSH, SMTP, DNS, LDAP, syslog, databases, queues, caches, traces by gRPC, statsd.
OTHER_PORTS = frozenset({22, 25, 53, 88, 123, 389, 465, 514, 587, 636, 993, 1433, 1521, 2181, 3306, 4222, 4317, 5432,
    5433, 5671, 5672, 6379, 6380, 6432, 7687, 8125, 9042, 9092, 9094, 9418, 11211, 26379, 27017, 27018})  # fmt: skip
OWN_PEERS: set[str] = set()  # "host:port" of the services that are agents: evalkit itself connects to them
_is_hooked = False
_note: Callable[[str, int], None] | None = None


@contextmanager
def carry() -> Iterator[None]:
    """Mark connections that are opened inside as those of an intercepted client."""
    token = _carried.set(True)
    try:
        yield
    finally:
        _carried.reset(token)


def watch(note: Callable[[str, int], None] | None) -> None:
    """Call `note` for each connection that nobody carries, from now on; None: stop. The hook itself stays for ever."""
    global _is_hooked, _note
    _note = note
    if note is not None and not _is_hooked:
        _is_hooked = True
        sys.addaudithook(_audit)


def _audit(event: str, args: tuple[object, ...]) -> None:
    if event != "socket.connect" or _note is None or _carried.get():
        return
    sock, address = args[0], args[1]
    if getattr(sock, "family", None) not in _INTERNET or not isinstance(address, tuple):
        return
    if getattr(sock, "type", 0) & 0xF != socket.SOCK_STREAM or address[1] in OTHER_PORTS:
        return
    if f"{address[0]}:{address[1]}" not in OWN_PEERS:
        _note(str(address[0]), int(address[1]))
