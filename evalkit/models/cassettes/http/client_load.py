"""Servers that are the queue of a run: what agents ask with clients of their own is not held back, but told.

How many requests a server takes at a time is found as for evalkit's own requests: `evalkit.models.providers.window`.
"""

from __future__ import annotations

import time

from msgspec import Struct, field

from evalkit.locks import create_lock
from evalkit.models.providers.window import Window

_LONG_S = 1.0  # a reply that took less waited for nothing that a run would notice


class OwnRequest(Struct, eq=False):
    """A request that an agent's client has sent, when so many `requests` were under way to `host`, itself included."""

    host: str
    at: float
    requests: int


class Server(Struct):
    """What is known of a server, and what is under way to it, in the order of sending."""

    window: Window = field(default_factory=Window)
    under_way: list[OwnRequest] = field(default_factory=list)


class ClientLoad:
    """The requests of agents' own clients to models' services, of all cases of this process."""

    def __init__(self) -> None:
        self._lock = create_lock()
        self._servers: dict[str, Server] = {}

    def begin(self, host: str) -> OwnRequest:
        """Count a request that goes out."""
        with self._lock:
            server = self._servers.setdefault(host, Server())
            request = OwnRequest(host, time.monotonic(), len(server.under_way) + 1)
            server.under_way.append(request)
            return request

    def end(self, request: OwnRequest, *, is_answered: bool) -> None:
        """Count its end, once."""
        with self._lock:
            server = self._servers[request.host]
            if request not in server.under_way:
                return
            overtaken = server.under_way.index(request)
            del server.under_way[overtaken]
            if is_answered:
                server.window.record_reply(request.requests, time.monotonic() - request.at, overtaken)

    def list_places(self) -> dict[str, int]:
        """List the servers that take few requests at a time, with how many they take: those that let one wait long."""
        with self._lock:
            windows = {host: server.window for host, server in self._servers.items()}
        slow = {host: window for host, window in windows.items() if window.longest_s >= _LONG_S}
        found = {host: window.limit for host, window in slow.items() if window.is_found}
        return {host: int(limit) for host, limit in found.items() if limit is not None}


CLIENT_LOAD = ClientLoad()
