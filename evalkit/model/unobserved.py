"""Parts of a run that nothing saw: each may hold calls that are not on record. And how to say that it holds none.

Whoever meets such a part notes it with its kind (`Task.note_unobserved`); the words are made here, where a message is
written. Demands that something did not happen hold only for runs without such parts: `evalkit.checks.absence`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

CONNECTION, CHANNEL, THREAD, CHILD, FORK = "connection", "channel", "thread", "child", "fork"
PROGRAM, SERVICE, ADAPTER, ARGUMENTS = "program", "service", "adapter", "arguments"

# By kind: what was not seen, and how to go on. Both may name `what`.
_WORDS: Mapping[str, tuple[str, str]] = {
    CONNECTION: (
        "a connection to {what}, which no known HTTP client carried: a model may have been asked there",
        'If no model is there, say so in [tool.evalkit.http]: ignore_hosts = ["{what}"]',
    ),
    CHANNEL: (
        "a channel to {what} that nothing reads, as a WebSocket: a model may have been asked there",
        'If no model is there, say so in [tool.evalkit.http]: ignore_hosts = ["{what}"]',
    ),
    THREAD: (
        "a request to the model at {what}, from a thread that belongs to none of the cases that ran",
        "Tie what runs in that thread to its case with evalkit.bind(function), or run one case at a time "
        "(--evalkit-concurrency 1)",
    ),
    CHILD: (
        "a program that the agent started, {what}: it may have asked a model, or called functions",
        'If it does neither, say so in [tool.evalkit.http]: harmless_programs = ["{what}"]',
    ),
    FORK: (
        "what a process that the agent forked did: {what}",
        "Call functions and models in the agent's own process, or in a thread",
    ),
    PROGRAM: (
        "the program {what}: it came neither to its functions (EVALKIT_FUNCTIONS_URL, EVALKIT_MCP_URL) nor to the "
        "model services that it is given (OPENAI_BASE_URL, ...)",
        "Have it ask there, or export its spans (spans: true). If it asks no model and calls nothing elsewhere, say so "
        'in [tool.evalkit.http]: harmless_programs = ["{what}"]',
    ),
    SERVICE: (
        "the service at {what}: it came neither to its functions_url nor to its mcp_url",
        "Have it call its functions there, or export its spans (spans: true). If it asks no model and calls nothing "
        'elsewhere, say so in [tool.evalkit.http]: harmless_programs = ["{what}"]',
    ),
    ADAPTER: (
        "the turns of {what}, a version that this evalkit does not know, whose requests did not pass it",
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
