"""What makes one pairing better than another, as one whole number per pair; and the best pairing of a few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evalkit.checks.matching.bipartite import FitTable
from evalkit.checks.matching.hungarian import find_cheapest_pairs

EXACT = 4_096  # pairs up to which explanations are optimal; beyond, they are cheaper and the verdict is the same
_STEPS = 10**6  # resolution of distances


class CallSlot(NamedTuple):
    """Room for one call of a leaf. Not `required`: it may stay empty, and then nothing is missing."""

    leaf: int
    required: bool
    mismatch: bool = True  # whether a call that does not fit may stand here


class Weights:
    """Scores that add up: first pairs that fit, then required places, then pairs of the name, then least distance."""

    def __init__(self, table: FitTable, most_pairs: int) -> None:
        self._table = table
        self._pair = _STEPS * (most_pairs + 1)
        self._required = self._pair * (most_pairs + 1)
        self._fits = self._required * (most_pairs + 1)

    def score(self, slot: CallSlot, call: int) -> int | None:
        """What the pair adds; None: it may not be made. The two must have one name."""
        worth = self._pair + (self._required if slot.required else 0)
        if self._table.is_fit(slot.leaf, call):
            return worth + self._fits
        if not slot.mismatch:
            return None
        return worth - round(self._table.measure_distance(slot.leaf, call) * _STEPS)


def find_best_pairs(slots: Sequence[CallSlot], calls: Sequence[int], table: FitTable) -> dict[int, int]:
    """The best pairing call -> leaf of places and calls that all have one name, whatever their order.

    On ties the earliest calls, and in their order. Beyond `EXACT` possible pairs the first call takes the first
    place that may take it, required places first.
    """
    if len(slots) * len(calls) > EXACT:
        open_slots = sorted((slot for slot in slots if slot.mismatch), key=lambda slot: not slot.required)
        return {call: slot.leaf for call, slot in zip(calls, open_slots, strict=False)}
    weights = Weights(table, min(len(slots), len(calls)))
    scores = [[weights.score(slot, call) for call in calls] for slot in slots]
    spread = len(slots) * len(calls) + 1  # more than any i * j below: earlier calls first, then their order
    unit = spread * (len(calls) + 1) * (len(calls) + 1)  # more than all of these together
    cost = [
        [0 if score is None else j * spread - i * j - score * unit for j, score in enumerate(row)]
        for i, row in enumerate(scores)
    ]
    return {calls[j]: slots[i].leaf for i, j in find_cheapest_pairs(cost) if scores[i][j] is not None}
