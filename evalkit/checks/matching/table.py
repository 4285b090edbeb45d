"""Which call fits which leaf: asked when needed, and never twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evalkit.checks.matching.plan import ActualCall, Leaf

_NO, _YES = 1, 2  # 0: not asked yet
_DIGITS = bytes([ord("0"), ord("0"), ord("1")]) + bytes(253)


class FitTable:
    """Leaves by their number in the plan, calls by their number in the run; only pairs of one name are asked about."""

    __slots__ = ("_ask", "_distances", "_masks", "_measure", "_rows", "actual", "leaves", "named")

    def __init__(
        self,
        leaves: Sequence[Leaf],
        actual: Sequence[ActualCall],
        fits: Callable[[int, int], bool],
        distance: Callable[[int, int], float],
    ) -> None:
        self.leaves = leaves
        self.actual = actual
        self.named: dict[str, list[int]] = {}
        for number, leaf in enumerate(leaves):
            self.named.setdefault(leaf.name, []).append(number)
        self._ask, self._measure = fits, distance
        self._rows = [bytearray(len(leaves)) for _ in actual]
        self._masks: dict[int, int] = {}
        self._distances: dict[tuple[int, int], float] = {}

    def is_fit(self, leaf: int, call: int) -> bool:
        """Whether they fit; both must have one name."""
        row = self._rows[call]
        answer = row[leaf]
        if not answer:
            answer = row[leaf] = _YES if self._ask(self.leaves[leaf].id, self.actual[call].index) else _NO
        return answer == _YES

    def record(self, leaf: int, call: int, fits: bool) -> None:
        """Remember what was asked elsewhere."""
        self._rows[call][leaf] = _YES if fits else _NO

    def find_fitting(self, call: int) -> int:
        """The leaves that the call fits, as bits. Asks for all leaves of its name."""
        mask = self._masks.get(call)
        if mask is None:
            for leaf in self.list_candidates(call):
                self.is_fit(leaf, call)
            mask = self._masks[call] = int(self._rows[call][::-1].translate(_DIGITS), 2)
        return mask

    def has_fitting(self, call: int) -> bool:
        """Whether `fitting` is free of charge."""
        return call in self._masks

    def has_same_name(self, leaf: int, call: int) -> bool:
        """Whether the call is one of the function that the leaf expects."""
        return self.leaves[leaf].name == self.actual[call].name

    def list_candidates(self, call: int) -> Sequence[int]:
        """The leaves of the call's name."""
        return self.named.get(self.actual[call].name, ())

    def measure_distance(self, leaf: int, call: int) -> float:
        """How far the call is from fitting, in [0, 1]; anything else is moved there."""
        key = (leaf, call)
        distance = self._distances.get(key)
        if distance is None:
            measured = self._measure(self.leaves[leaf].id, self.actual[call].index)
            distance = self._distances[key] = min(measured, 1.0) if measured > 0.0 else 0.0
        return distance
