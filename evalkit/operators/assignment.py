"""Maximum bipartite matching: which expected item meets which actual one, so that as many as possible meet.

Greedy pairing is wrong as soon as an item fits several others. Here each unmatched item on the left looks for an
augmenting path (Kuhn 1955; Berge's theorem), breadth first: O(items x pairs), and no recursion.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


def maximum_matching(choices: Sequence[Sequence[int]]) -> list[int | None]:
    """For each left item the right item it is paired with, or None, in a pairing of the greatest possible size.

    `choices[i]` are the right items that left item `i` accepts, best first. Deterministic; with no conflict
    every item gets its first choice.
    """
    left_to_right: list[int | None] = [None] * len(choices)
    right_to_left: dict[int, int] = {}
    for left in range(len(choices)):
        _augment(left, choices, left_to_right, right_to_left)
    return left_to_right


def _augment(
    root: int,
    choices: Sequence[Sequence[int]],
    left_to_right: list[int | None],
    right_to_left: dict[int, int],
) -> None:
    came_from: dict[int, int] = {}  # right item -> the left item from which the search reached it
    queue = deque([root])
    while queue:
        left = queue.popleft()
        for right in choices[left]:
            if right in came_from:
                continue
            came_from[right] = left
            if right not in right_to_left:
                _flip(right, came_from, left_to_right, right_to_left)
                return
            queue.append(right_to_left[right])


def _flip(
    right: int | None, came_from: dict[int, int], left_to_right: list[int | None], right_to_left: dict[int, int]
) -> None:
    """Give `right` to the item that found it, and so on back along the path to its root."""
    while right is not None:
        left = came_from[right]
        previous = left_to_right[left]
        left_to_right[left], right_to_left[right] = right, left
        right = previous
