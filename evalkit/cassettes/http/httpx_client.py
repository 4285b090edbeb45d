"""Requests of httpx, and of httpx2, which has the same transports: each is one exchange, redirects apart."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from evalkit.cassettes.http.interception import FindTraffic, Patch
from evalkit.cassettes.http.messages import HttpRequest, HttpResponse, find_credentials
from evalkit.cassettes.http.request_toggle import ToggledRequest
from evalkit.cassettes.http.tee import Tee
from evalkit.cassettes.http.traffic import Traffic
from evalkit.cassettes.http.unobserved import carry

_LENGTHS = ("content-length", "content-encoding", "transfer-encoding")


def list_patches(library: str, find: FindTraffic) -> list[Patch]:
    """List what is patched in httpx, or in httpx2."""
    return [
        ("HTTPTransport", "handle_request", make_handle_request(library, find)),
        ("AsyncHTTPTransport", "handle_async_request", make_handle_async_request(library, find)),
    ]


def make_handle_request(library: str, find: FindTraffic) -> Callable[[Any], Any]:
    """Make what takes the place of a transport's `handle_request`."""

    def make(real: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def handle_request(self: object, request: Any) -> Any:
            traffic = find()
            if traffic is None:
                return real(self, request)
            sent = _read_request(request, request.read())
            if (toggled := traffic.toggle(sent)) is not None:
                with carry():
                    response = real(self, _build_request(library, request, toggled))
                    response.read()
                return _restore_response(library, response, toggled, traffic)
            outcome = traffic.begin(sent)
            if isinstance(outcome, HttpResponse):
                return _build_response(library, outcome)
            with _send(outcome):
                response = real(self, request)
            return response if outcome is None else _tee_response(library, response, outcome)

        return handle_request

    return make


def make_handle_async_request(library: str, find: FindTraffic) -> Callable[[Any], Any]:
    """Do the same for an asynchronous transport."""

    def make(real: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        async def handle_async_request(self: object, request: Any) -> Any:
            traffic = find()
            if traffic is None:
                return await real(self, request)
            sent = _read_request(request, await request.aread())
            if (toggled := traffic.toggle(sent)) is not None:
                with carry():
                    response = await real(self, _build_request(library, request, toggled))
                    await response.aread()
                return _restore_response(library, response, toggled, traffic)
            outcome = traffic.begin(sent)
            if isinstance(outcome, HttpResponse):
                return _build_response(library, outcome)
            with _send(outcome):
                response = await real(self, request)
            return response if outcome is None else _tee_response(library, response, outcome)

        return handle_async_request

    return make


@contextmanager
def _send(tee: Tee | None) -> Iterator[None]:
    """Carry a request; that it failed is told to its tee."""
    try:
        with carry():
            yield
    except BaseException as error:
        if tee is not None:
            tee.fail(error)
        raise


class TeeStream:
    """The stream of a response, which feeds a tee."""

    def __init__(self, stream: Any, tee: Tee) -> None:
        self._stream = stream
        self._tee = tee

    def __iter__(self) -> Any:
        try:
            for piece in self._stream:
                self._tee.feed(piece)
                yield piece
        except Exception as error:
            self._tee.fail(error)
            raise
        self._tee.end(is_whole=True)

    async def __aiter__(self) -> Any:
        try:
            async for piece in self._stream:
                self._tee.feed(piece)
                yield piece
        except Exception as error:
            self._tee.fail(error)
            raise
        self._tee.end(is_whole=True)

    def close(self) -> None:
        self._tee.end()
        self._stream.close()

    async def aclose(self) -> None:
        self._tee.end()
        await self._stream.aclose()


def _tee_response(library: str, response: Any, tee: Tee) -> Any:
    tee.begin(response.status_code, response.reason_phrase, tuple(response.headers.multi_items()))
    module: Any = sys.modules[library]

    class Stream(TeeStream, module.SyncByteStream, module.AsyncByteStream):  # type: ignore[misc]
        pass

    response.stream = Stream(response.stream, tee)
    return response


def _read_request(request: Any, body: bytes) -> HttpRequest:
    headers = request.headers
    return HttpRequest(
        request.method, str(request.url), body, headers.get("content-type", ""), find_credentials(headers.multi_items())
    )


def _build_response(library: str, recorded: HttpResponse) -> Any:
    module: Any = sys.modules[library]
    return module.Response(
        recorded.status,
        headers=list(recorded.headers),
        stream=module.ByteStream(recorded.body),
        extensions={"http_version": b"HTTP/1.1", "reason_phrase": recorded.reason.encode("ascii", "ignore")},
    )


# -- requests in the other way


def _build_request(library: str, request: Any, toggled: ToggledRequest) -> Any:
    new = sys.modules[library].Request
    headers = [(key, value) for key, value in request.headers.multi_items() if key.lower() not in _LENGTHS]
    changed = toggled.request
    return new(changed.method, changed.url, headers=headers, content=changed.body, extensions=request.extensions)


def _restore_response(library: str, response: Any, toggled: ToggledRequest, traffic: Traffic) -> Any:
    headers = tuple((key, value) for key, value in response.headers.multi_items() if key.lower() not in _LENGTHS)
    answer = HttpResponse(response.status_code, response.reason_phrase, headers, response.content)
    return _build_response(library, traffic.restore(toggled, answer))
