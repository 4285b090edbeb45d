"""Bounds on what case files, recordings and agents may take: memory and time are not theirs to spend.

The defaults are far beyond what honest cases need; `[tool.evalkit.bounds]` changes them. They hold
for a process, and are set when the project's configuration is read.
"""

from __future__ import annotations

from msgspec import Struct

from evalkit.errors import UsageError, did_you_mean


class Bounds(Struct, frozen=True, kw_only=True):
    """The largest that is still read, run or searched; see docs/running.md."""

    file_bytes: int = 10_000_000  # of a case, a suite, mocks, a cassette
    recording_bytes: int = 100_000_000  # of a cassette of HTTP exchanges, and of a file of rows
    part_bytes: int = 20_000_000  # of an image or a file in `parts`
    rows: int = 1_000_000  # of a case file
    runs: int = 10_000  # that `repeat` asks for
    result_characters: int = 10_000_000  # of a text or a mock's result with its templates filled in
    agent_reply_bytes: int = 10_000_000  # of an agent that is a program or a service
    cache_bytes: int = 100_000_000  # of the cache of replies
    matching_states: int = 400_000  # combinations of calls and expectations that are tried


class _Holder:
    bounds = Bounds()


def get_bounds() -> Bounds:
    """Return the bounds of this process."""
    return _Holder.bounds


def set_bounds(bounds: Bounds) -> None:
    """Set the bounds of this process."""
    _Holder.bounds = bounds


def read_bounds(table: object) -> Bounds:
    """Read `[tool.evalkit.bounds]`. Raises UsageError for an unknown name, and for what is no whole number from 1."""
    if not isinstance(table, dict):
        raise UsageError(f" must be a table of whole numbers, got {table!r}")
    for name, value in table.items():
        if name not in Bounds.__struct_fields__:
            raise UsageError(f".{name} is no bound{did_you_mean(name, Bounds.__struct_fields__)}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f".{name} must be a whole number from 1, got {value!r}")
    return Bounds(**table)


def explain_bound(name: str) -> str:
    """Return the end of a message: how to allow more."""
    return f"; `{name}` in [tool.evalkit.bounds] allows more"
