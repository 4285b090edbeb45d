"""The model's side for programs with a model client of their own, in whatever language.

A program is told by its environment (`OPENAI_BASE_URL`, ...) to ask the run's own server instead of the service. There
its requests are answered from the case's HTTP cassette, recorded into it, or passed on, as those of a client in this
process are: the turns, and every call that the model asked for, are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Protocol

from msgspec import Struct

from evalkit.agents.remote.server import UnreachableError, send_request
from evalkit.cassettes.http.interception import bypass_interception
from evalkit.cassettes.http.messages import HttpRequest, HttpResponse, find_credentials, get_phrase
from evalkit.cassettes.http.model_exchanges import read_http_exchange
from evalkit.cassettes.http.player import Player
from evalkit.cassettes.http.request_toggle import RequestToggle
from evalkit.cassettes.http.tee import Tee
from evalkit.errors import BudgetSpentError, EvalkitError, ProviderError
from evalkit.model.transcript import ModelTurn
from evalkit.providers.budget import ClientBudget
from evalkit.wire.records import Exchange
from evalkit.wire.table import read_failed_exchange

MAX_REPLY = 50_000_000  # bytes of a model's reply
# What belongs to one connection, and is not passed on.
_OWN_HEADERS = frozenset(
    ("host", "connection", "content-length", "transfer-encoding", "accept-encoding", "expect", "keep-alive", "te")
)


class ModelService(Struct, frozen=True):
    """A model's service: where the run's server stands in for it, and the variables that clients read."""

    mount: str  # below the run's server
    url: str
    url_variable: str
    key_variable: str


SERVICES = (
    ModelService("openai/v1", "https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    ModelService("gemini", "https://generativelanguage.googleapis.com", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
    ModelService("anthropic", "https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
)


class RelayTask(Protocol):
    """The part of a task that the relay works on."""

    @property
    def http_player(self) -> Player | None: ...

    request_toggle: RequestToggle | None
    client_budget: ClientBudget | None
    is_live: bool

    def record_fault(self, error: EvalkitError) -> None: ...
    def record_exchange(self, exchange: Exchange, *, waited_ms: float = 0.0) -> ModelTurn | None: ...
    def watch_request(self, service: str) -> AbstractContextManager[None]: ...


def build_model_environment(
    task: RelayTask, base: str, inherited: Mapping[str, str | None], case_env: Mapping[str, str | None]
) -> dict[str, str]:
    """Build the variables that lead a program's model clients to the server at `base`; {} where nothing is to be seen.

    What the case itself says stays. Offline a client that wants a key, and has none, gets one that opens nothing.
    """
    if task.http_player is None and not task.is_live:
        return {}
    env: dict[str, str] = {}
    for service in SERVICES:
        if service.url_variable not in case_env:
            env[service.url_variable] = f"{base}/{service.mount}"
            if not task.is_live and not {**inherited, **case_env}.get(service.key_variable):
                env[service.key_variable] = "offline"
    return env


class ModelRelay:
    """Answers requests to model services. `upstreams`: where the clients would have gone, by variable, if not to the
    service's own URL.
    """

    def __init__(self, task: RelayTask, upstreams: Mapping[str, str | None]) -> None:
        self._task = task
        self._upstreams = upstreams

    def find_url(self, path: str, query: str) -> str | None:
        """Return the URL that a request for `path` is meant for; None if it is no model service's."""
        for service in SERVICES:
            if path.startswith(f"{service.mount}/"):
                base = (self._upstreams.get(service.url_variable) or service.url).rstrip("/")
                return f"{base}{path.removeprefix(service.mount)}{f'?{query}' if query else ''}"
        return None

    async def answer(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Return the response from the cassette or the service. Raises EvalkitError, which is on record then."""
        request = HttpRequest(method, url, body, headers.get("content-type", ""), find_credentials(headers.items()))
        player = self._task.http_player
        if player is not None and player.can_handle(request.host):
            outcome = player.begin(request)
            if isinstance(outcome, HttpResponse):
                return outcome
            return await self._forward(request, headers, outcome)
        try:
            if self._task.client_budget is not None:
                self._task.client_budget.check()
        except BudgetSpentError as error:
            self._task.record_fault(error)
            raise
        return await self._forward(request, headers, None)

    async def _forward(self, request: HttpRequest, headers: Mapping[str, str], exchange: Tee | None) -> HttpResponse:
        passed_on = {name: value for name, value in headers.items() if name not in _OWN_HEADERS}
        toggle = self._task.request_toggle
        toggled = None if toggle is None else toggle.toggle(request)
        sent = request if toggled is None else toggled.request
        start = perf_counter()
        try:
            with bypass_interception(), self._task.watch_request(request.url):
                answer = await send_request(sent.method, sent.url, passed_on, sent.body, limit=MAX_REPLY)
        except UnreachableError as error:
            failed = read_failed_exchange(request.method, request.url, request.body, str(error))
            if exchange is not None:
                exchange.fail(error)
            elif failed is not None:
                self._task.record_exchange(failed, waited_ms=(perf_counter() - start) * 1000)
            raise ProviderError(f"the model's service failed: {request.method} {request.url}: {error}") from None
        response = HttpResponse(answer.status, get_phrase(answer.status), tuple(answer.headers.items()), answer.body)
        if toggle is not None and toggled is not None:
            response = toggle.restore(toggled, response)
        duration_ms = (perf_counter() - start) * 1000
        if exchange is not None:
            exchange.record_response(response)
        elif (read := read_http_exchange(request, response, duration_ms)) is not None:
            turn = self._task.record_exchange(read.mark_break(), waited_ms=duration_ms)
            if turn is not None and self._task.client_budget is not None:
                self._task.client_budget.add(turn)
        return response
