"""What the record of a run says of the passing from agent to agent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, convert, to_builtins

from evalkit.jsonvalue import JsonDict
from evalkit.records.codec import always_written
from evalkit.records.transcript import Transcript

NAME = "handoffs"
HANDOFF, DELEGATION = ("handoff", "delegation")


class Handoff(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The passing of a run from one agent to another: for good, or as a delegation, until the other has answered."""

    target: str
    source: str | None = None  # None: an agent without a name
    kind: str = always_written(HANDOFF)
    call: int | None = None  # index of the function call after which it happened; None: before any
    user_turn: int = always_written(0)

    def __str__(self) -> str:
        return f"{self.source or '(no name)'} -> {self.target}"


def read_handoffs(data: Any) -> tuple[Handoff, ...]:
    """Return the hand-offs and delegations of the data in a record, in the order of the run."""
    return convert(data or (), tuple[Handoff, ...])


def get_handoffs(transcript: Transcript, kind: str = "") -> tuple[Handoff, ...]:
    """Return the hand-offs and delegations of a run, or those of one `kind`, in their order."""
    listed = read_handoffs(transcript.features.get(NAME))
    return tuple(handoff for handoff in listed if kind in ("", handoff.kind))


def put_handoffs(transcript: Transcript, handoffs: Iterable[Handoff]) -> JsonDict:
    """Return `features` of `transcript` with other hand-offs."""
    rest = {name: data for name, data in transcript.features.items() if name != NAME}
    listed = [to_builtins(handoff) for handoff in handoffs]
    return {**rest, NAME: listed} if listed else rest
