"""What a run could not see of itself, as it becomes known."""

from __future__ import annotations

from collections.abc import Callable, Collection
from fnmatch import fnmatch

from evalkit.records.unobserved import CHILD, PROGRAM, SERVICE, Unobserved


class UnseenParts:
    """The parts of one run that nothing saw. Demands that something did not happen are not met then."""

    def __init__(self) -> None:
        self.was_served = False  # a program or service came to the run's own server
        self.note_lost: Callable[[str], None] | None = None  # in a forked process, whose records are lost
        self._parts: list[Unobserved] = []

    def note(self, kind: str, what: str, source: str = "") -> None:
        """Note a part, of one of the kinds in `evalkit.records.unobserved`."""
        part = Unobserved(kind, what, source)
        self.lose(part.describe())
        if part not in self._parts:
            self._parts.append(part)

    def lose(self, what: str) -> None:
        """Say what is recorded here, if this is a forked process, in which records are lost."""
        if self.note_lost is not None:
            self.note_lost(what)

    def drop_services(self, harmless: Collection[str]) -> None:
        """Drop the services that fit one of the patterns `harmless`: no model and no function is there."""
        self._parts = [
            part
            for part in self._parts
            if part.kind != SERVICE or not any(fnmatch(part.what, pattern) for pattern in harmless)
        ]

    def list_unseen(self) -> tuple[Unobserved, ...]:
        """List what nothing saw: no programs and services where one came to the run's own server."""
        came = (PROGRAM, SERVICE, CHILD) if self.was_served else ()
        return tuple(part for part in self._parts if part.source or part.kind not in came)
