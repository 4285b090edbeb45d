"""vcrpy's stubs before a router in place of a cassette: each request is asked of the tape of its own context."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from evalkit.providers.http_interception import find_player
from evalkit.providers.http_messages import HttpRequest, HttpResponse
from evalkit.providers.http_tape import PendingExchange


class Router:
    """What vcrpy's stubs take for a cassette. What was found for a request is kept on the request."""

    write_protected = False

    def can_play_response_for(self, request: Any) -> bool:
        """Whether the answer is recorded. Raises where it should be, and is not."""
        sent = _to_http_request(request)
        player = find_player(urlsplit(sent.url).netloc.rpartition("@")[2])
        if player is None:
            return False
        outcome = player.begin(sent)
        request.evalkit_found, request.evalkit_since = outcome, perf_counter()
        return isinstance(outcome, HttpResponse)

    def play_response(self, request: Any) -> dict[str, Any]:
        answer: HttpResponse = request.evalkit_found
        headers: dict[str, list[str]] = {}
        for name, value in answer.headers:
            headers.setdefault(name, []).append(value)
        status = {"code": answer.status, "message": answer.reason}
        return {"status": status, "headers": headers, "body": {"string": answer.body}}

    def append(self, request: Any, response: Mapping[str, Any]) -> None:
        outcome = getattr(request, "evalkit_found", None)
        if isinstance(outcome, PendingExchange):
            headers = tuple((name, value) for name, values in response["headers"].items() for value in values)
            status, body = response["status"], response["body"].get("string") or b""
            answer = HttpResponse(status["code"], status["message"] or "", headers, body)
            outcome.record_response(answer, (perf_counter() - request.evalkit_since) * 1000)

    def filter_request(self, request: Any) -> Any:
        return request

    def find_requests_with_most_matches(self, request: Any) -> list[tuple[Any, list[str], list[str]]]:
        """aiohttp's stub asks this for the requests that redirects lead to: they stand in the cassette themselves."""
        return [(request, [], [])]


def _to_http_request(request: Any) -> HttpRequest:
    """A request of vcrpy's as ours. aiohttp's stub gives a body as the caller gave it: data, a form, text or bytes."""
    body, content_type = request.body, str(request.headers.get("content-type", ""))
    if isinstance(body, bytes):
        content = body
    elif body is None:
        content = b""
    elif isinstance(body, (dict, list)):
        content, content_type = json.dumps(body, default=str).encode(), content_type or "application/json"
    elif hasattr(body, "read"):
        content = body.read()
    else:
        content = str(body).encode()
    return HttpRequest(request.method, str(request.uri), content, content_type)


def build_stub(client: str, method: str) -> Callable[[Any], Any]:
    """vcrpy's stub for one method of a client library: given the real method, it makes the one to call instead."""
    router = Router()
    if client == "aiohttp":
        from vcr.stubs.aiohttp_stubs import vcr_request

        return lambda real: vcr_request(router, real)
    import importlib

    from vcr.stubs.httpx_stubs import vcr_handle_async_request, vcr_handle_request

    library = importlib.import_module(client)
    stub = vcr_handle_request if method == "handle_request" else vcr_handle_async_request
    return lambda real: stub(router, real, library)
