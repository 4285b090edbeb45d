"""Minimum-cost assignment in a rectangular matrix of whole numbers."""

from __future__ import annotations

from collections.abc import Sequence


def find_cheapest_pairs(cost: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Pairs (row, column), as many as the shorter side has, of least total cost; by row.

    The Hungarian method with potentials (Jonker and Volgenant's shortest augmenting paths), O(rows² · columns) for
    rows <= columns. Whole numbers of any size, so that several aims can be packed into one cost without rounding.
    """
    if not cost or not cost[0]:
        return []
    if len(cost) > len(cost[0]):
        return sorted((row, column) for column, row in find_cheapest_pairs(list(zip(*cost, strict=True))))
    solver = _AugmentingPaths(cost)
    for row in range(len(cost)):
        solver.insert(row)
    return sorted((row, column) for column, row in enumerate(solver.row_of[:-1]) if row is not None)


class _AugmentingPaths:
    """Rows with a column so far; potentials keep the reduced cost of every pair at 0 or more, and of these at 0."""

    def __init__(self, cost: Sequence[Sequence[int]]) -> None:
        self.cost = cost
        self.start = len(cost[0])  # a column of its own, where each new row starts
        self.row_of: list[int | None] = [None] * (self.start + 1)
        self.row_potential = [0] * len(cost)
        self.column_potential = [0] * (self.start + 1)

    def insert(self, row: int) -> None:
        """Give `row` a column along the shortest augmenting path."""
        self.row_of[self.start] = row
        slack: dict[int, tuple[int | None, int]] = dict.fromkeys(range(self.start), (None, self.start))
        came_from = {self.start: self.start}  # by column that was visited
        column = self.start
        while (current := self.row_of[column]) is not None:
            best, nearest = self._relax(current, column, slack)
            self._shift(best, came_from, slack)
            came_from[nearest] = slack.pop(nearest)[1]
            column = nearest
        while column != self.start:
            previous = came_from[column]
            self.row_of[column] = self.row_of[previous]
            column = previous

    def _relax(self, row: int, column: int, slack: dict[int, tuple[int | None, int]]) -> tuple[int, int]:
        """Whether open columns are nearer by way of `column`; the least distance of one, and which."""
        costs, base = self.cost[row], self.row_potential[row]
        best: tuple[int, int] | None = None
        for candidate, (distance, _) in slack.items():
            reduced = costs[candidate] - base - self.column_potential[candidate]
            if distance is None or reduced < distance:
                slack[candidate], distance = (reduced, column), reduced
            if best is None or distance < best[0]:
                best = distance, candidate
        assert best is not None  # there are at least as many columns as rows
        return best

    def _shift(self, by: int, visited: dict[int, int], slack: dict[int, tuple[int | None, int]]) -> None:
        for column in visited:
            row = self.row_of[column]
            assert row is not None  # only columns with a row are visited
            self.row_potential[row] += by
            self.column_potential[column] -= by
        for column, (distance, origin) in slack.items():
            assert distance is not None  # every open column was reached from the first row
            slack[column] = distance - by, origin
