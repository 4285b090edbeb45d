"""The traffic of one run: each request of its agent's own clients is played, recorded, asked in the other way, or
passed on; and whatever comes of it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from evalkit.locks import create_reentrant_lock
from evalkit.records.parts import InputPart
from evalkit.records.settings import REQUEST_TOGGLE, Settings, goes_live

if TYPE_CHECKING:
    from evalkit.models.cassettes.http.messages import HttpRequest, HttpResponse
    from evalkit.models.cassettes.http.observer import Observer
    from evalkit.models.cassettes.http.player import Player
    from evalkit.models.cassettes.http.tee import BrokenExchange, Tee


class ToggledRequest(Struct, frozen=True):
    """A request as it is asked instead of `original`. `restore` returns its response in the form that the client wants,
    and raises ProviderError."""

    request: HttpRequest
    original: HttpRequest
    restore: Callable[[HttpResponse], HttpResponse]


class RequestToggle(Protocol):
    """Has model services asked in the other way in a run: streamed for whole, or whole for streamed."""

    can_intercept: bool  # the requests of clients in this process

    def toggle(self, request: HttpRequest) -> ToggledRequest | None:
        """Return the request in the other way; None for one that goes out as it is."""

    def note_client(self, url: str, client: str) -> None:
        """Note a request of a client library whose requests can't be changed."""

    def add_obstacle(self, obstacle: str) -> None:
        """Add why a request could not be asked in the other way."""

    def close(self) -> None:
        """End the run: requests of code that still runs go out as they are."""


def plays_requests(settings: Settings) -> bool:
    """Return whether requests of agents' own clients are played or recorded; else they go out unchanged."""
    return not goes_live(settings) and settings.http.cassettes is not False


def find_request_toggle(settings: Settings) -> RequestToggle | None:
    """Return what asks model services in the other way in this run; None in every other."""
    toggle: RequestToggle | None = settings.extra.get(REQUEST_TOGGLE)
    return toggle


class TrafficParts(Struct, frozen=True):
    """What handles the requests of a run: its player, if they are played or recorded; what asks in the other way, if
    anything does; and the observer, always."""

    observer: Observer
    player: Player | None = None
    request_toggle: RequestToggle | None = None

    def close(self) -> None:
        """End the run: responses that are still read are on record as far as they came."""
        for part in (self.player, self.request_toggle, self.observer):
            if part is not None:
                part.close()


class Traffic:
    """The traffic of a run. What handles it is built with the first request: most runs have none.

    `is_played`: requests are played or recorded. `input_files` are images and files of the case, which recorded
    requests hold as their hashes.
    """

    def __init__(self, build: Callable[[list[InputPart]], TrafficParts], *, is_played: bool = False) -> None:
        self.is_played = is_played
        self.is_open = True
        self.input_files: list[InputPart] = []
        self._build = build
        self._lock = create_reentrant_lock()
        self._built: TrafficParts | None = None

    @property
    def _parts(self) -> TrafficParts:
        with self._lock:
            if self._built is None:
                self._built = self._build(self.input_files)
                if not self.is_open:
                    self._built.close()
            return self._built

    @property
    def observer(self) -> Observer:
        return self._parts.observer

    @property
    def player(self) -> Player | None:
        return self._parts.player if self.is_played else None

    @property
    def used_player(self) -> Player | None:
        """The player, if any request was made."""
        return None if self._built is None else self._built.player

    @property
    def request_toggle(self) -> RequestToggle | None:
        return self._parts.request_toggle

    def begin(self, request: HttpRequest) -> HttpResponse | BrokenExchange | Tee | None:
        """Return the recorded response or failure; or what the response from the network is fed to, None if nobody
        reads it.

        Raises MissingCassetteError, StaleCassetteError, SpecError, and BudgetSpentError.
        """
        if self.player is not None and self.player.can_handle(request.host):
            return self.player.begin(request)
        return self.observer.observe(request)

    def toggle(self, request: HttpRequest) -> ToggledRequest | None:
        """Return the request in the other way; None for one that goes out as it is."""
        return None if self.request_toggle is None else self.request_toggle.toggle(request)

    def restore(self, toggled: ToggledRequest, response: HttpResponse) -> HttpResponse:
        """Return the response to a request in the other way in the form that its client wants. Raises ProviderError."""
        restored = toggled.restore(response)
        self.observer.listener.on_response(toggled.original, restored, 0.0, is_live=True)
        return restored

    def note_client(self, method: str, url: str, client: str) -> None:
        """Note a request of a client library whose requests can't be asked in the other way."""
        if self.request_toggle is not None and method.upper() == "POST":
            self.request_toggle.note_client(url, client)

    def list_running(self) -> list[Tee]:
        """List the replies of models that are waited for."""
        if self._built is None:
            return []
        return [*self.observer.list_running(), *([] if self.player is None else self.player.list_running())]

    def note_unplayable(self, url: str) -> None:
        """Note a request that no cassette holds, to which there will be no answer on replay."""
        if self.player is not None:
            self.player.unplayable[url] = None

    def close(self) -> None:
        """End the run: requests of code that still runs are refused, or are on record nowhere."""
        with self._lock:
            self.is_open = False
            if self._built is not None:
                self._built.close()
