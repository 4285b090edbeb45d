"""Calls and the leaves that they fit as a bipartite graph, and maximum matchings in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from evalkit.checks.matching.plan import ActualCall, Leaf

_NO, _YES = 1, 2  # 0: not asked yet
_DIGITS = bytes([ord("0"), ord("0"), ord("1")]) + bytes(253)


class FitTable:
    """The pairs of leaf and call that fit: asked when needed, never twice, and only for pairs of one name.

    Leaves have the number of their place in the plan, calls that of their place in the run.
    """

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
        """Return whether they fit; both must have one name."""
        row = self._rows[call]
        answer = row[leaf]
        if not answer:
            answer = row[leaf] = _YES if self._ask(self.leaves[leaf].id, self.actual[call].index) else _NO
        return answer == _YES

    def record(self, leaf: int, call: int, fits: bool) -> None:
        """Record an answer that was got elsewhere."""
        self._rows[call][leaf] = _YES if fits else _NO

    def find_fitting(self, call: int) -> int:
        """Return the leaves that the call fits, as bits. Asks for all leaves of its name."""
        mask = self._masks.get(call)
        if mask is None:
            for leaf in self.list_candidates(call):
                self.is_fit(leaf, call)
            mask = self._masks[call] = int(self._rows[call][::-1].translate(_DIGITS), 2)
        return mask

    def has_fitting(self, call: int) -> bool:
        """Return whether `find_fitting` needs no more questions."""
        return call in self._masks

    def has_same_name(self, leaf: int, call: int) -> bool:
        """Return whether the call is one of the function that the leaf expects."""
        return self.leaves[leaf].name == self.actual[call].name

    def list_candidates(self, call: int) -> Sequence[int]:
        """Return the leaves of the call's name."""
        return self.named.get(self.actual[call].name, ())

    def measure_distance(self, leaf: int, call: int) -> float:
        """Return how far the call is from fitting, moved into [0, 1]."""
        key = (leaf, call)
        distance = self._distances.get(key)
        if distance is None:
            measured = self._measure(self.leaves[leaf].id, self.actual[call].index)
            distance = self._distances[key] = min(measured, 1.0) if measured > 0.0 else 0.0
        return distance


_MAX_SINGLE_QUESTIONS = 32  # so many unvisited leaves are asked one by one: most visited ones need not be asked at all


def list_bits(mask: int) -> Iterator[int]:
    """Iterate over the numbers of the bits that are set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class BipartiteMatching:
    """A matching of calls to leaves with room for several, grown call by call along augmenting paths (Kuhn).

    A call once covered stays covered, and so does a place once filled; only the partners change.

    Adding the calls in order therefore covers the earliest calls that can be covered. Filling the required places
    first (`room` = least numbers), then widening to the greatest numbers and adding the rest covers as many calls as
    possible and, among such matchings, as many required places (Mendelsohn and Dulmage).
    """

    __slots__ = ("_dead", "_members", "_open", "_room", "_table", "load", "owner")

    def __init__(self, table: FitTable, leaves: Iterable[int], room: Sequence[int]) -> None:
        self._table = table
        self.load: dict[int, list[int]] = {leaf: [] for leaf in leaves}  # leaf -> its calls
        self.owner: dict[int, int] = {}  # call -> its leaf
        self._members: dict[str, int] = {}
        for leaf in self.load:
            name = table.leaves[leaf].name
            self._members[name] = self._members.get(name, 0) | 1 << leaf
        self.widen(room)

    def widen(self, room: Sequence[int]) -> None:
        """Give the leaves more room."""
        self._room = room
        self._dead = 0  # leaves from which no path led to room; none ever will until there is more of it
        self._open: dict[str, list[int]] = {}
        for leaf, calls in self.load.items():
            if len(calls) < room[leaf]:
                self._open.setdefault(self._table.leaves[leaf].name, []).append(leaf)

    def copy(self) -> BipartiteMatching:
        """Return an independent copy."""
        twin = object.__new__(BipartiteMatching)
        twin._table, twin._members, twin._room, twin._dead = self._table, self._members, self._room, self._dead
        twin.load = {leaf: calls.copy() for leaf, calls in self.load.items()}
        twin.owner = self.owner.copy()
        twin._open = {name: leaves.copy() for name, leaves in self._open.items()}
        return twin

    def add(self, call: int) -> bool:
        """Cover one more call if that is possible without uncovering another."""
        name = self._table.actual[call].name
        for leaf in self._open.get(name, ()):
            if self._table.is_fit(leaf, call):
                self._move(call, leaf)
                self._close_if_full(leaf)
                return True
        return name in self._members and self._reroute(call, name)

    def _move(self, call: int, leaf: int) -> int | None:
        """Put the call there; return the leaf that it leaves, if any."""
        previous = self.owner.get(call)
        if previous is not None:
            self.load[previous].remove(call)
        self.owner[call] = leaf
        self.load[leaf].append(call)
        return previous

    def _close_if_full(self, leaf: int) -> None:
        if len(self.load[leaf]) == self._room[leaf]:
            self._open[self._table.leaves[leaf].name].remove(leaf)

    def _reroute(self, call: int, name: str) -> bool:
        reached: dict[int, int] = {}  # leaf -> the call that could move to it
        unvisited = self._members[name] & ~self._dead
        queue = [call]
        for current in queue:
            if self._table.has_fitting(current) or unvisited.bit_count() > _MAX_SINGLE_QUESTIONS:
                newly_reached = self._table.find_fitting(current) & unvisited
            else:
                fitting = (leaf for leaf in list_bits(unvisited) if self._table.is_fit(leaf, current))
                newly_reached = sum(1 << leaf for leaf in fitting)
            unvisited &= ~newly_reached
            for leaf in list_bits(newly_reached):
                reached[leaf] = current
                if len(self.load[leaf]) < self._room[leaf]:
                    # Move the calls along the path that ends in `leaf`; the one that began it finds a place there.
                    end: int | None = leaf
                    while end is not None:
                        end = self._move(reached[end], end)
                    self._close_if_full(leaf)
                    return True
                queue.extend(self.load[leaf])
            if not unvisited:
                break
        for leaf in reached:
            self._dead |= 1 << leaf
        return False


def match_calls(
    table: FitTable, leaves: Iterable[int], minimums: Sequence[int], maximums: Sequence[int], calls: Iterable[int]
) -> BipartiteMatching:
    """Match as many of the calls as possible, with as many required places filled as possible."""
    matching = BipartiteMatching(table, leaves, minimums)
    remaining = [call for call in calls if not matching.add(call)]
    matching.widen(maximums)
    for call in remaining:
        matching.add(call)
    return matching
