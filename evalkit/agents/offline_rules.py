"""The offline guard of one process: where an operation goes to, whether that is the internet, and a check before it.

The standard library alone: child processes load this file by its path, without evalkit.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import socket
import sys
from collections.abc import Callable, Iterable
from fnmatch import fnmatch

# Names that no public server answers for. A name without a dot is one of this network, too.
LOCAL_SUFFIXES = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".intranet", ".svc")
# Services of cloud machines that hand out credentials, beside the link-local ones.
METADATA_ADDRESSES = frozenset({"100.100.100.200", "fd00:ec2::254", "fd20:ce::254"})
LOOKUPS = frozenset({"socket.getaddrinfo", "socket.gethostbyname"})
REVERSE_LOOKUPS = frozenset({"socket.gethostbyaddr", "socket.getnameinfo"})
SENDS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
EVENTS = LOOKUPS | REVERSE_LOOKUPS | SENDS
_INTERNET = (socket.AF_INET, socket.AF_INET6)


def find_destination(event: str, args: tuple[object, ...]) -> tuple[str, object] | None:
    """Find the host and port that an audit event of `EVENTS` reaches; None where it reaches none.

    Connecting a datagram socket sends nothing: programs learn their own address that way.
    """
    subject, *rest = args
    if event in LOOKUPS:
        host = to_text(subject)
        return None if parse_address(host) is not None else (host, rest[0] if rest else None)
    if event == "socket.gethostbyaddr":
        return to_text(subject), None
    address = subject if event == "socket.getnameinfo" else rest[0]
    if event in SENDS:
        if not isinstance(subject, socket.SocketType) or subject.family not in _INTERNET:
            return None
        if event == "socket.connect" and is_datagram(subject) and isinstance(subject, socket.socket):
            return None
    if not isinstance(address, tuple) or len(address) < 2:
        return None
    return to_text(address[0]), address[1]


def is_datagram(sock: socket.SocketType) -> bool:
    """Tell whether `sock` sends datagrams."""
    return sock.type & 0xF == socket.SOCK_DGRAM


def to_text(host: object) -> str:
    """Return a host as text, whatever a client passes for it."""
    return host.decode("ascii", "replace") if isinstance(host, (bytes, bytearray)) else str(host or "")


def is_internet(host: str) -> bool:
    """Tell whether `host`, an address or a name, is beyond this machine and private networks.

    Link-local addresses and the metadata services of clouds count too. Nothing is looked up but the file of hosts.
    """
    address = parse_address(host)
    if address is not None:
        address = getattr(address, "ipv4_mapped", None) or address
        return address.is_global or address.is_link_local or str(address) in METADATA_ADDRESSES
    name = host.rstrip(".").casefold()
    names = list_own_names().get(name)
    if names is not None:
        return any(is_internet(own) for own in names)
    return "." in name and not name.endswith(LOCAL_SUFFIXES)


def parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an address in any form that sockets take (``8.8.8.8``, ``134744072``, ``fe80::1%eth0``); None: a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0].strip("[]"))
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host)) if host and host[0].isdigit() else None
    except (OSError, UnicodeEncodeError):
        return None


def is_ignored(host: str, port: object, patterns: Iterable[str]) -> bool:
    """Tell whether one of the patterns, of hosts or ``host:port``, lets this one through."""
    return any(fnmatch(host, pattern) or fnmatch(f"{host}:{port}", pattern) for pattern in patterns)


@functools.lru_cache(maxsize=1)
def list_own_names() -> dict[str, list[str]]:
    """List the names that this machine answers for itself, with their addresses."""
    names: dict[str, list[str]] = {"": [], "localhost": [], socket.gethostname().casefold(): []}
    try:
        with open("/etc/hosts", encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    except OSError:
        lines = []
    for line in lines:
        address, *own = line.partition("#")[0].split() or [""]
        for name in own if parse_address(address) is not None else ():
            names.setdefault(name.casefold(), []).append(address)
    return names


@functools.lru_cache(maxsize=1)
def list_proxies() -> frozenset[str]:
    """List the ``host:port`` of the environment's proxies, which pass requests on to the internet."""
    variables = {name.lower(): value for name, value in os.environ.items() if value}
    urls = [url for name, url in variables.items() if name.endswith("_proxy") and name != "no_proxy"]
    return frozenset(url.rpartition("//")[2].rpartition("@")[2].partition("/")[0].casefold() for url in urls)


Method = Callable[..., object]


class NetworkGuard:
    """Calls `check(host, port)` before anything that Python can see reaches the internet; `check` raises to refuse it.

    An audit hook sees every socket, also of code that took functions out of `socket` beforehand; it can't be removed,
    and does nothing while the guard is stopped. Methods of sockets are patched besides, for what the hook learns too
    late or not at all: names that `connect` looks up itself, and datagrams of a connected socket.
    """

    MOST_NAMES = 1000

    def __init__(self, check: Callable[[str, object], None]) -> None:
        self._check = check
        self._names: dict[str, str] = {}  # by address, the name that was looked up
        self._is_active = False
        self._is_hooked = False
        self._undo: list[Callable[[], None]] = []
        self._made: dict[tuple[object, str], tuple[Method, Method]] = {}  # what was wrapped last, and what came of it

    @property
    def is_active(self) -> bool:
        return self._is_active

    def start(self) -> None:
        """Check everything from now on. Where the guard is in place already, put back what code has taken out of it."""
        self._names.clear()
        list_own_names()
        list_proxies()
        if not self._is_hooked:
            self._is_hooked = True
            sys.addaudithook(self._audit)
        self._is_active = True
        self.wrap(socket, "getaddrinfo", self._remember_names)
        for name in ("connect", "connect_ex", "sendto"):
            self.wrap(socket.socket, name, self._check_first)
        for name in ("send", "sendall", "sendmsg"):
            self.wrap(socket.socket, name, self._check_peer)

    def stop(self) -> None:
        """Let everything pass again."""
        self._is_active = False
        while self._undo:
            self._undo.pop()()
        self._names.clear()

    def wrap(self, owner: object, name: str, make: Callable[[Method], Method]) -> None:
        """Replace a function by what `make` makes of it, until the guard is stopped. Each case starts the guard, so the
        replacement is kept."""
        own, real = vars(owner).get(name), getattr(owner, name)
        known, replacement = self._made.get((owner, name), (None, None))
        if self._undo and real is replacement:
            return
        if known is not real or replacement is None:
            replacement = make(real)
            self._made[owner, name] = (real, replacement)
        setattr(owner, name, replacement)
        self._undo.append(lambda: delattr(owner, name) if own is None else setattr(owner, name, own))

    def find_name(self, host: str) -> str:
        """Return the name by which an address was looked up, else the address."""
        return self._names.get(host, host)

    def examine(self, host: str, port: object) -> None:
        """Check a destination that is beyond this machine and private networks."""
        if is_internet(host) or f"{host}:{port}".casefold() in list_proxies():
            self._check(self._names.get(host, host), port)

    def _audit(self, event: str, args: tuple[object, ...]) -> None:
        if self._is_active and event in EVENTS:
            destination = find_destination(event, args)
            if destination is not None:
                self.examine(*destination)

    def _remember_names(self, real: Method) -> Method:
        def getaddrinfo(host: object, *args: object, **options: object) -> object:
            addresses = real(host, *args, **options)
            if not isinstance(host, str) or parse_address(host) is not None:
                return addresses
            if isinstance(addresses, list) and len(self._names) < self.MOST_NAMES:
                self._names.update((str(address[0]), host) for *_, address in addresses)
            return addresses

        return functools.wraps(real)(getaddrinfo)

    def _check_first(self, real: Method) -> Method:
        @functools.wraps(real)
        def connect_or_send(self_: socket.socket, *args: object) -> object:
            event = "socket.sendto" if real.__name__ == "sendto" else "socket.connect"
            destination = find_destination(event, (self_, args[-1] if args else None))
            if destination is not None:
                try:
                    self.examine(*destination)
                except Exception:
                    self_.close()  # clients close it after an OSError alone, after which they would retry
                    raise
            return real(self_, *args)

        return connect_or_send

    def _check_peer(self, real: Method) -> Method:
        @functools.wraps(real)
        def send(self_: socket.socket, *args: object) -> object:
            if is_datagram(self_) and self_.family in _INTERNET:
                try:
                    peer = self_.getpeername()
                except OSError:  # not connected: the audit hook sees where it sends to
                    return real(self_, *args)
                self.examine(*peer[:2])
            return real(self_, *args)

        return send
