"""Maximum bipartite matching: which expected item meets which actual one, so that as many as possible meet.

Greedy pairing is wrong as soon as an item fits several others. Here each unmatched item on the left looks for an
augmenting path (Kuhn 1955; Berge's theorem), breadth first, without recursion. What a search in vain has seen
can't be part of a later path, so all such searches together look at each pair once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


def find_maximum_matching(choices: Sequence[Sequence[int]]) -> list[int | None]:
    """For each left item the right item it is paired with, or None, in a pairing of the greatest possible size.

    `choices[i]` are the right items that left item `i` accepts, best first. Deterministic: without a conflict every
    item gets its first choice, and of items that compete the earlier ones are paired.
    """
    pairing = _Matching(choices)
    for item in range(len(choices)):
        pairing.add(item)
    return pairing.partner_of_item


def can_pair_all(choices: Sequence[Sequence[int]]) -> bool:
    """Whether every left item can be paired with a right item of its own."""
    pairing = _Matching(choices)
    return all(pairing.add(item) for item in range(len(choices)))


class _Matching:
    def __init__(self, choices: Sequence[Sequence[int]]) -> None:
        self.choices = choices
        self.partner_of_item: list[int | None] = [None] * len(choices)
        self.item_of_partner: dict[int, int] = {}
        self.exhausted: set[int] = set()  # right items from which no free one can be reached

    def add(self, root: int) -> bool:
        """Pair `root`, moving others where needed. False if the pairing can't grow by it."""
        came_from: dict[int, int] = {}  # right item -> the left item from which the search reached it
        queue = deque([root])
        while queue:
            item = queue.popleft()
            for candidate in self.choices[item]:
                if candidate in came_from or candidate in self.exhausted:
                    continue
                came_from[candidate] = item
                if candidate not in self.item_of_partner:
                    self._apply_path(candidate, came_from)
                    return True
                queue.append(self.item_of_partner[candidate])
        self.exhausted.update(came_from)
        return False

    def _apply_path(self, free: int, came_from: dict[int, int]) -> None:
        """Give `free` to the item that found it, that item's former partner to the one before, back to the root."""
        candidate: int | None = free
        while candidate is not None:
            item = came_from[candidate]
            previous = self.partner_of_item[item]
            self.partner_of_item[item], self.item_of_partner[candidate] = candidate, item
            candidate = previous
