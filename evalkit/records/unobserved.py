"""Parts of a run that nothing saw: each may hold calls that are not on record. And how to say that it holds none.

Whoever meets such a part notes it with its kind (`Task.note_unobserved`); the words are made here, where a message is
written. Demands that something did not happen hold only for runs without such parts: `evalkit.checks.absence`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatch

from msgspec import Struct

CONNECTION, CHANNEL, THREAD, CHILD, FORK = "connection", "channel", "thread", "child", "fork"
PROGRAM, SERVICE, ADAPTER, ARGUMENTS = "program", "service", "adapter", "arguments"

# By kind: what was not seen, and how to go on. Both may name `what`.
_WORDS: Mapping[str, tuple[str, str]] = {
    CONNECTION: (
        "what went over a connection to {what}, which no HTTP client that it reads has opened: a model may have been "
        "asked there",
        'If no model is there, say so in pyproject.toml, [tool.evalkit.http]: ignore_hosts = ["{what}"]',
    ),
    CHANNEL: (
        "what went over a WebSocket (or another upgraded connection) to {what}: a model may have been asked there",
        'If no model is there, say so in pyproject.toml, [tool.evalkit.http]: ignore_hosts = ["{what}"]',
    ),
    THREAD: (
        "which case sent a request to the model at {what}: it came from a thread that was there before the cases",
        "Tie what runs in that thread to its case with evalkit.bind(function), or run one case at a time "
        "(--evalkit-concurrency 1)",
    ),
    CHILD: (
        "what the program {what} did, which the agent started: it may have asked a model, or called functions",
        'If it does neither, say so in pyproject.toml, [tool.evalkit.http]: harmless_programs = ["{what}"]',
    ),
    FORK: (
        "what a process that the agent forked did: {what}",
        "Call functions and models in the agent's own process, or in a thread",
    ),
    PROGRAM: (
        "what the program {what} did: it used neither its functions (EVALKIT_FUNCTIONS_URL, EVALKIT_MCP_URL) nor the "
        "model services that it is given (OPENAI_BASE_URL, ...)",
        "Have it use these, or export its spans (spans: true). If it asks no model and calls nothing elsewhere, say so "
        'in pyproject.toml, [tool.evalkit.http]: harmless_programs = ["{what}"]',
    ),
    SERVICE: (
        "what the service at {what} did: it used neither its functions_url nor its mcp_url",
        "Have it call its functions there, or export its spans (spans: true). If it asks no model and calls nothing "
        'elsewhere, say so in pyproject.toml, [tool.evalkit.http]: harmless_programs = ["{what}"]',
    ),
    ADAPTER: (
        "the turns of {what}, a version whose hooks this evalkit does not know; nor did it see requests to a model",
        "Use a version that docs/adapters.md names, or an HTTP client that evalkit reads (docs/ways-in.md)",
    ),
    ARGUMENTS: (
        "the arguments of {what}, which the trace does not hold",
        "Have them recorded: docs/judge-traces.md says how",
    ),
}
KINDS = tuple(_WORDS)


class Unobserved(Struct, frozen=True, omit_defaults=True):
    """A part of a run that was not seen. `kind` is one of KINDS; `what` names it: a place, a program, a function.

    `source` is who saw that, where it was not this process: a program that the agent started.
    """

    kind: str
    what: str
    source: str = ""

    def describe(self) -> str:
        """Describe what was not seen."""
        return _WORDS[self.kind][0].format(what=self.what) + (f" (by {self.source})" if self.source else "")

    def advise(self) -> str:
        """Return what to do about it, in one line."""
        return _WORDS[self.kind][1].format(what=self.what)


def format_unobserved(parts: Iterable[Unobserved]) -> str:
    """Format all parts that were not seen: the first with its advice, and how many there are besides."""
    first, *others = dict.fromkeys(parts)
    more = f" (+{len(others)} more)" if others else ""
    return f"{first.describe()}{more}\n{first.advise()}"


class UnseenParts:
    """The parts of one run that nothing saw. Demands that something did not happen are not met then."""

    def __init__(self) -> None:
        self.was_served = False  # a program or service came to the run's own server
        self.note_lost: Callable[[str], None] | None = None  # in a forked process, whose records are lost
        self._parts: list[Unobserved] = []

    def note(self, kind: str, what: str, source: str = "") -> None:
        """Note a part, of one of the kinds above."""
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
