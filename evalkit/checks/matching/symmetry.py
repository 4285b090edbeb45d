"""What nothing can tell apart: parts of one shape whose leaves fit the same calls, and calls that fit the same leaves.

Which of the parts is further on, and which of the calls went into a bag, makes no difference to what can still happen.
"""

from __future__ import annotations

from typing import Any

from evalkit.checks.matching.cover import bits
from evalkit.checks.matching.parts import Bag, Chain, Choice, One, Part, Rules, Shuffle, Together
from evalkit.checks.matching.table import Table


class Symmetry:
    """Gives states that differ only by an exchange of such parts or calls one key."""

    def __init__(self, root: Part, table: Table) -> None:
        self._table = table
        self._twins: dict[Shuffle, list[list[int]]] = {}  # of its parts, those that are alike
        self._bags: dict[tuple[Bag, int], object] = {}
        self._signature(root)

    def key(self, part: Part, state: Any) -> object:
        """The state, or that of a twin."""
        if isinstance(part, One) or state is None:
            return state
        if isinstance(part, Bag):
            return self._contents(part, state)
        if isinstance(part, Shuffle):
            keys = [self.key(inner, state[i]) for i, inner in enumerate(part.parts)]
            for twins in self._twins[part]:
                ordered = sorted((keys[i] for i in twins), key=repr)
                for i, key in zip(twins, ordered, strict=True):
                    keys[i] = key
            return tuple(keys)
        first, inner = state
        if isinstance(part, Together):
            return first, self.key(part.part, inner)
        assert isinstance(part, (Chain, Choice))
        return first, self.key(part.parts[first], inner)

    def _contents(self, bag: Bag, calls: int) -> object:
        """Of each call, which leaves of the bag it fits; the leaves in an order that twins have in common."""
        found = self._bags.get((bag, calls))
        if found is None:
            leaves = sorted(bag.leaves, key=lambda leaf: self._leaf(leaf, bag.rules))
            fitting = (self._table.fitting(call) for call in bits(calls))
            found = tuple(sorted(tuple(mask >> leaf & 1 for leaf in leaves) for mask in fitting))
            self._bags[bag, calls] = found
        return found

    def _signature(self, part: Part) -> object:
        """Equal for two parts exactly if they have the same shape and their leaves fit the same calls."""
        if isinstance(part, One):
            return self._leaf(part.leaf, part.rules)
        if isinstance(part, Bag):
            return "bag", tuple(sorted(self._leaf(leaf, part.rules) for leaf in part.leaves))
        if isinstance(part, Together):
            return "together", self._signature(part.part)
        assert isinstance(part, (Chain, Choice, Shuffle))
        signatures = [self._signature(inner) for inner in part.parts]
        if isinstance(part, Shuffle):
            alike: dict[object, list[int]] = {}
            for i, signature in enumerate(signatures):
                alike.setdefault(signature, []).append(i)
            self._twins[part] = [twins for twins in alike.values() if len(twins) > 1]
        return type(part).__name__, tuple(signatures)

    def _leaf(self, leaf: int, rules: Rules) -> tuple[int, int, int]:
        calls = range(len(self._table.actual))
        fitting = sum((self._table.fitting(call) >> leaf & 1) << call for call in calls)
        return fitting, rules.least[leaf], rules.most[leaf]
