"""The traffic of one run: each request of its agent's own clients is played, recorded, asked in the other way, or
passed on; and whatever comes of it is read.
"""

from __future__ import annotations

from evalkit.cassettes.http.messages import HttpRequest, HttpResponse
from evalkit.cassettes.http.observer import Observer
from evalkit.cassettes.http.player import Player
from evalkit.cassettes.http.request_toggle import RequestToggle, ToggledRequest
from evalkit.cassettes.http.tee import Tee


class Traffic:
    """What handles the requests of a run: its player, if they are played or recorded; what asks in the other way, if
    anything does; and the observer, always."""

    def __init__(self, observer: Observer, player: Player | None = None, toggle: RequestToggle | None = None) -> None:
        self.observer = observer
        self.player = player
        self.request_toggle = toggle

    @property
    def is_open(self) -> bool:
        """True until the run is over."""
        return self.observer.is_open

    def begin(self, request: HttpRequest) -> HttpResponse | Tee | None:
        """Return the recorded response; or what the response from the network is fed to, None if nobody reads it.

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
        assert self.request_toggle is not None
        restored = self.request_toggle.restore(toggled, response)
        self.observer.listener.on_response(toggled.original, restored, 0.0, is_live=True)
        return restored

    def note_client(self, method: str, url: str, client: str) -> None:
        """Note a request of a client library whose requests can't be asked in the other way."""
        if self.request_toggle is not None and method.upper() == "POST":
            self.request_toggle.note_client(url, client)

    def list_running(self) -> list[Tee]:
        """List the replies of models that are waited for."""
        return [*self.observer.list_running(), *([] if self.player is None else self.player.list_running())]

    def note_unplayable(self, url: str) -> None:
        """Note a request that no cassette holds, to which there will be no answer on replay."""
        if self.player is not None:
            self.player.unplayable[url] = None

    def close(self) -> None:
        """End the run: responses that are still read are on record as far as they came."""
        for part in (self.player, self.request_toggle, self.observer):
            if part is not None:
                part.close()
