"""Maximum bipartite matching: which expected item meets which actual one, so that as many as possible meet.

Greedy pairing is wrong as soon as an item fits several others. Here each unmatched item on the left looks for an
augmenting path (Kuhn 1955; Berge's theorem), breadth first, without recursion. What a search in vain has seen
can't be part of a later path, so all such searches together look at each pair once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


def maximum_matching(choices: Sequence[Sequence[int]]) -> list[int | None]:
    """For each left item the right item it is paired with, or None, in a pairing of the greatest possible size.

    `choices[i]` are the right items that left item `i` accepts, best first. Deterministic: without a conflict every
    item gets its first choice, and of items that compete the earlier ones are paired.
    """
    matching = _Matching(choices)
    for left in range(len(choices)):
        matching.add(left)
    return matching.left_to_right


def covers_left(choices: Sequence[Sequence[int]]) -> bool:
    """Whether every left item can be paired with a right item of its own."""
    matching = _Matching(choices)
    return all(matching.add(left) for left in range(len(choices)))


class _Matching:
    def __init__(self, choices: Sequence[Sequence[int]]) -> None:
        self.choices = choices
        self.left_to_right: list[int | None] = [None] * len(choices)
        self.right_to_left: dict[int, int] = {}
        self.dead: set[int] = set()  # right items from which no free one can be reached

    def add(self, root: int) -> bool:
        """Pair `root`, moving others where needed. False if the pairing can't grow by it."""
        came_from: dict[int, int] = {}  # right item -> the left item from which the search reached it
        queue = deque([root])
        while queue:
            left = queue.popleft()
            for right in self.choices[left]:
                if right in came_from or right in self.dead:
                    continue
                came_from[right] = left
                if right not in self.right_to_left:
                    self._flip(right, came_from)
                    return True
                queue.append(self.right_to_left[right])
        self.dead.update(came_from)
        return False

    def _flip(self, free: int, came_from: dict[int, int]) -> None:
        """Give `free` to the item that found it, that item's former partner to the one before, back to the root."""
        right: int | None = free
        while right is not None:
            left = came_from[right]
            previous = self.left_to_right[left]
            self.left_to_right[left], self.right_to_left[right] = right, left
            right = previous
