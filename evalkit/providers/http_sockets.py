"""http.client, and with it urllib, urllib3, requests, botocore and httplib2, caught where bytes meet the socket.

A request is gathered instead of sent. When its response is asked for, it is looked up, and the answer is given to
http.client as bytes to read, so that everything above sees what it would see live. No class is exchanged: each method
here asks for each request whose it is, connections that were kept alive included.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from evalkit.providers.http_messages import HttpRequest, HttpResponse
from evalkit.providers.http_tape import Player

FindPlayer = Callable[[str], Player | None]

_GATHERED = "_evalkit_gathered"  # on a connection: the tape, and the bytes of the request so far
_REAL = "_evalkit_real"  # on a connection: the request is really being sent


class NoSocket:
    """In the place of a connection's socket until it is known whether one is needed."""

    def settimeout(self, timeout: float | None) -> None: ...

    def setsockopt(self, *option: Any) -> None: ...

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...


class _ResponseBytes:
    """What http.client reads a response from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._content)


def make_connect(real: Callable[[Any], None], find: FindPlayer) -> Callable[[Any], None]:
    """`connect`, which urllib3 calls before it sends anything over TLS."""

    def connect(self: Any) -> None:
        if _REAL in vars(self) or find(_get_authority(self)) is None:
            return real(self)
        self.sock = NoSocket()
        for flag in ("is_verified", "proxy_is_verified"):
            if hasattr(self, flag):
                setattr(self, flag, True)  # no certificate was seen, and none is missing
        return None

    return connect


def make_send(real: Callable[[Any, Any], None], find: FindPlayer) -> Callable[[Any, Any], None]:
    def send(self: Any, data: Any) -> None:
        if _REAL in vars(self):
            return real(self, data)
        if _GATHERED not in vars(self):
            player = find(_get_authority(self, data))
            if player is None:
                return real(self, data)
            vars(self)[_GATHERED] = (player, bytearray())
            if self.sock is None:
                self.sock = NoSocket()  # urllib3 sets its timeout
        for piece in _split_data(data):
            vars(self)[_GATHERED][1].extend(piece)
        return None

    return send


def make_getresponse(real: Callable[[Any], Any], find: FindPlayer) -> Callable[[Any], Any]:
    def getresponse(self: Any) -> Any:
        gathered = vars(self).pop(_GATHERED, None)
        if gathered is None:
            return real(self)
        player, content = gathered
        outcome = player.begin(_parse_request(self, bytes(content)))
        if isinstance(outcome, HttpResponse):
            response = _build_response(self, outcome)
            self.close()
            return response
        since = perf_counter()
        answer = _fetch_live_response(self, bytes(content), real)
        outcome.answered(answer, (perf_counter() - since) * 1000)
        return _build_response(self, answer)

    return getresponse


def make_close(real: Callable[[Any], None], find: FindPlayer) -> Callable[[Any], None]:
    def close(self: Any) -> None:
        vars(self).pop(_GATHERED, None)
        real(self)

    return close


def _fetch_live_response(connection: Any, content: bytes, getresponse: Callable[[Any], Any]) -> HttpResponse:
    """Send what was gathered and read the whole response."""
    vars(connection)[_REAL] = True
    try:
        if isinstance(connection.sock, NoSocket):
            connection.sock = None
        if connection.sock is None:
            connection.connect()
        connection.send(content)
        response = getresponse(connection)
        body = response.read()
    finally:
        vars(connection).pop(_REAL, None)
    return HttpResponse(response.status, response.reason or "", tuple(response.getheaders()), body)


def _build_response(connection: Any, recorded: HttpResponse) -> Any:
    """`answer` as http.client's response, read from bytes."""
    gone = ("transfer-encoding", "content-length", "connection")
    headers = [(name, value) for name, value in recorded.headers if name.lower() not in gone]
    length = recorded.get_header("content-length") if connection._method == "HEAD" else str(len(recorded.body))
    if length and recorded.status >= 200 and recorded.status not in (204, 304):
        headers.append(("content-length", length))
    head = f"HTTP/1.1 {recorded.status} {recorded.reason}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
    content = head.encode("latin-1", "replace") + recorded.body
    response = connection.response_class(_ResponseBytes(content), method=connection._method)
    response.begin()
    return response


def _parse_request(connection: Any, content: bytes) -> HttpRequest:
    head, _, body = content.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, *_ = [*first.split(" "), "", ""]
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = _join_chunks(body)
    if not target.startswith(("http://", "https://")):
        scheme = "https" if connection.default_port == 443 else "http"
        target = f"{scheme}://{_get_authority(connection)}{target}"
    return HttpRequest(method, target, body, headers.get("content-type", ""))


def _get_authority(connection: Any, data: Any = b"") -> str:
    """``host`` or ``host:port``, of the server behind a proxy rather than the proxy."""
    if isinstance(data, bytes) and b" http://" in data[:20]:
        return urlsplit(data.split(b" ", 2)[1].decode("latin-1")).netloc
    tunnel = getattr(connection, "_tunnel_host", None)
    host = tunnel or connection.host
    port = connection._tunnel_port if tunnel else connection.port
    display_host = f"[{host}]" if ":" in host else host
    return display_host if port in (None, connection.default_port) else f"{display_host}:{port}"


def _split_data(data: Any) -> Iterable[bytes]:
    if isinstance(data, (bytes, bytearray, memoryview)):
        yield bytes(data)
    elif isinstance(data, str):
        yield data.encode("latin-1")
    elif hasattr(data, "read"):
        content = data.read()
        yield content.encode("latin-1") if isinstance(content, str) else content
    else:
        for piece in data:
            yield from _split_data(piece)


def _join_chunks(body: bytes) -> bytes:
    """A body without the sizes between its chunks."""
    content = bytearray()
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size.partition(b";")[0] or b"0", 16)
        if not length:
            break
        content += rest[:length]
        body = rest[length + 2 :]
    return bytes(content)
