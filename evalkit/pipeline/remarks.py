"""What a run's model turns leave to be said, beside the verdict: calls that were cut off, or written and not made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evalkit.model.transcript import ModelTurn


def find_turn_warnings(turns: Iterable[ModelTurn]) -> Iterator[str]:
    """One line for each turn whose calls were carried out although it did not end as it should: the rest of it is
    lost, and nothing else would say so. How a reply without calls ended is the run's stop reason."""
    for number, turn in enumerate(turns, 1):
        is_cut = turn.finish_message is not None or turn.finish_reason == "length"
        if turn.calls and is_cut:
            detail = f": {turn.finish_message}" if turn.finish_message else ""
            yield f"model turn {number} ended with '{turn.finish_reason}', and its whole calls were carried out{detail}"
