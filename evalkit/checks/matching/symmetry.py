"""What nothing can tell apart: parts of one shape whose leaves fit the same calls, and calls that fit the same leaves.

Which of the parts is further on, and which of the calls went into a bag, makes no difference to what can still happen.
"""

from __future__ import annotations

from typing import Any

from evalkit.checks.matching.cover import list_bits
from evalkit.checks.matching.parts import Bag, Chain, Choice, LeafPart, ParallelPart, Part, Rules, Shuffle
from evalkit.checks.matching.table import FitTable


class Symmetry:
    """Gives states that differ only by an exchange of such parts or calls one key."""

    def __init__(self, root: Part, table: FitTable) -> None:
        self._table = table
        self._twins: dict[Shuffle, list[list[int]]] = {}  # of its parts, those that are alike
        self._bags: dict[tuple[Bag, int], object] = {}
        self._build_signature(root)

    def find_key(self, part: Part, state: Any) -> object:
        """The state, or that of a twin."""
        if isinstance(part, LeafPart) or state is None:
            return state
        if isinstance(part, Bag):
            return self._describe_contents(part, state)
        if isinstance(part, Shuffle):
            keys = [self.find_key(inner, state[i]) for i, inner in enumerate(part.parts)]
            for twins in self._twins[part]:
                ordered = sorted((keys[i] for i in twins), key=repr)
                for i, key in zip(twins, ordered, strict=True):
                    keys[i] = key
            return tuple(keys)
        first, inner = state
        if isinstance(part, ParallelPart):
            return first, self.find_key(part.part, inner)
        assert isinstance(part, (Chain, Choice))
        return first, self.find_key(part.parts[first], inner)

    def _describe_contents(self, bag: Bag, calls: int) -> object:
        """Of each call, which leaves of the bag it fits; the leaves in an order that twins have in common."""
        contents = self._bags.get((bag, calls))
        if contents is None:
            leaves = sorted(bag.leaves, key=lambda leaf: self._build_leaf_signature(leaf, bag.rules))
            fitting = (self._table.find_fitting(call) for call in list_bits(calls))
            contents = tuple(sorted(tuple(mask >> leaf & 1 for leaf in leaves) for mask in fitting))
            self._bags[bag, calls] = contents
        return contents

    def _build_signature(self, part: Part) -> object:
        """Equal for two parts exactly if they have the same shape and their leaves fit the same calls."""
        if isinstance(part, LeafPart):
            return self._build_leaf_signature(part.leaf, part.rules)
        if isinstance(part, Bag):
            return "bag", tuple(sorted(self._build_leaf_signature(leaf, part.rules) for leaf in part.leaves))
        if isinstance(part, ParallelPart):
            return "together", self._build_signature(part.part)
        assert isinstance(part, (Chain, Choice, Shuffle))
        signatures = [self._build_signature(inner) for inner in part.parts]
        if isinstance(part, Shuffle):
            alike: dict[object, list[int]] = {}
            for i, signature in enumerate(signatures):
                alike.setdefault(signature, []).append(i)
            self._twins[part] = [twins for twins in alike.values() if len(twins) > 1]
        return type(part).__name__, tuple(signatures)

    def _build_leaf_signature(self, leaf: int, rules: Rules) -> tuple[int, int, int]:
        calls = range(len(self._table.actual))
        fitting = sum((self._table.find_fitting(call) >> leaf & 1) << call for call in calls)
        return fitting, rules.minimums[leaf], rules.maximums[leaf]
