"""Maximum matching of calls to leaves with room for several, grown call by call along augmenting paths (Kuhn)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from evalkit.checks.matching.table import Table

_FEW = 32  # so many unvisited leaves are asked one by one: most visited ones need not be asked at all


def bits(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class Cover:
    """A matching. A call once covered stays covered, and so does a place once filled; only the partners change.

    Adding the calls in order therefore covers the earliest calls that can be covered. Filling the required places
    first (`room` = least numbers), then widening to the greatest numbers and adding the rest covers as many calls as
    possible and, among such matchings, as many required places (Mendelsohn and Dulmage).
    """

    __slots__ = ("_dead", "_members", "_open", "_room", "_table", "load", "owner")

    def __init__(self, table: Table, leaves: Iterable[int], room: Sequence[int]) -> None:
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

    def copy(self) -> Cover:
        """An independent copy."""
        twin = object.__new__(Cover)
        twin._table, twin._members, twin._room, twin._dead = self._table, self._members, self._room, self._dead
        twin.load = {leaf: calls.copy() for leaf, calls in self.load.items()}
        twin.owner = self.owner.copy()
        twin._open = {name: leaves.copy() for name, leaves in self._open.items()}
        return twin

    def add(self, call: int) -> bool:
        """Cover one more call if that is possible without uncovering another."""
        name = self._table.actual[call].name
        for leaf in self._open.get(name, ()):
            if self._table.fits(leaf, call):
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
            fresh = self._fitting(current, unvisited)
            unvisited &= ~fresh
            for leaf in bits(fresh):
                reached[leaf] = current
                if len(self.load[leaf]) < self._room[leaf]:
                    self._shift(leaf, reached)
                    return True
                queue.extend(self.load[leaf])
            if not unvisited:
                break
        for leaf in reached:
            self._dead |= 1 << leaf
        return False

    def _fitting(self, call: int, among: int) -> int:
        if self._table.known(call) or among.bit_count() > _FEW:
            return self._table.fitting(call) & among
        return sum(1 << leaf for leaf in bits(among) if self._table.fits(leaf, call))

    def _shift(self, leaf: int, reached: dict[int, int]) -> None:
        """Move the calls along the path that ends in `leaf`; the call that began it finds a place at its beginning."""
        end: int | None = leaf
        while end is not None:
            end = self._move(reached[end], end)
        self._close_if_full(leaf)


def cover(
    table: Table, leaves: Iterable[int], least: Sequence[int], most: Sequence[int], calls: Iterable[int]
) -> Cover:
    """As many of the calls as possible, with as many required places filled as possible."""
    found = Cover(table, leaves, least)
    left = [call for call in calls if not found.add(call)]
    found.widen(most)
    for call in left:
        found.add(call)
    return found
