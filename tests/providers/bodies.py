"""Recorded bodies as JSON values."""

from __future__ import annotations

from evalkit.wire.bodies import read_values, split_unread


def parse_values(body: str) -> list[object]:
    """The values of a body. ValueError where one does not parse."""
    values, unread = split_unread(read_values(body.encode("utf-8", "surrogatepass")))
    if unread:
        raise ValueError(str(unread[0]))
    return values
