"""Parts that nothing can tell apart: which of them is further on makes no difference to what can still happen."""

from __future__ import annotations

from typing import Any

from evalkit.checks.matching.parts import Bag, Chain, Choice, One, Part, Rules, Shuffle, Together
from evalkit.checks.matching.table import Table


class Symmetry:
    """Gives states that differ only by an exchange of such parts one key."""

    def __init__(self, root: Part, table: Table) -> None:
        self._table = table
        self._twins: dict[Shuffle, list[list[int]]] = {}  # of its parts, those that are alike
        self._signature(root)

    def key(self, part: Part, state: Any) -> object:
        """The state, or that of a twin."""
        if not self._twins or isinstance(part, (One, Bag)) or state is None:
            return state
        if isinstance(part, Shuffle):
            keys = [self.key(inner, state[i]) for i, inner in enumerate(part.parts)]
            for twins in self._twins.get(part, ()):
                ordered = sorted((keys[i] for i in twins), key=repr)
                for i, key in zip(twins, ordered, strict=True):
                    keys[i] = key
            return tuple(keys)
        first, inner = state
        if isinstance(part, Together):
            return first, self.key(part.part, inner)
        assert isinstance(part, (Chain, Choice))
        return first, self.key(part.parts[first], inner)

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
        fitting = sum(1 << call for call in calls if self._table.same_name(leaf, call) and self._table.fits(leaf, call))
        return fitting, rules.least[leaf], rules.most[leaf]
