"""Minimum-cost assignment in a rectangular matrix of whole numbers."""

from __future__ import annotations

from collections.abc import Sequence


def cheapest(cost: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Pairs (row, column), as many as the shorter side has, of least total cost; by row.

    The Hungarian method with potentials (Jonker and Volgenant's shortest augmenting paths), O(rows² · columns) for
    rows <= columns. Whole numbers of any size, so that several aims can be packed into one cost without rounding.
    """
    if not cost or not cost[0]:
        return []
    if len(cost) > len(cost[0]):
        return sorted((row, column) for column, row in cheapest(list(zip(*cost, strict=True))))
    width = len(cost[0])
    row_potential = [0] * len(cost)
    column_potential = [0] * (width + 1)
    row_of: list[int | None] = [None] * (width + 1)  # the last column is where each new row starts
    for row in range(len(cost)):
        _insert(row, cost, row_potential, column_potential, row_of)
    return sorted((row, column) for column, row in enumerate(row_of[:width]) if row is not None)


def _insert(
    row: int,
    cost: Sequence[Sequence[int]],
    row_potential: list[int],
    column_potential: list[int],
    row_of: list[int | None],
) -> None:
    """Give `row` a column along the shortest augmenting path."""
    start = len(row_of) - 1
    row_of[start] = row
    slack: list[int | None] = [None] * start
    came_from = [start] * start
    visited: list[int] = []
    open_columns = list(range(start))
    column = start
    while (current := row_of[column]) is not None:
        visited.append(column)
        costs, base = cost[current], row_potential[current]
        best: int | None = None
        for candidate in open_columns:
            reduced = costs[candidate] - base - column_potential[candidate]
            known = slack[candidate]
            if known is None or reduced < known:
                slack[candidate], came_from[candidate], known = reduced, column, reduced
            if best is None or known < best:
                best, nearest = known, candidate
        assert best is not None  # there are at least as many columns as rows
        for seen in visited:
            owner = row_of[seen]
            assert owner is not None  # only columns with a row are visited
            row_potential[owner] += best
            column_potential[seen] -= best
        for candidate in open_columns:
            waiting = slack[candidate]
            assert waiting is not None  # every open column was reached from the first row
            slack[candidate] = waiting - best
        open_columns.remove(nearest)
        column = nearest
    while column != start:
        previous = came_from[column]
        row_of[column] = row_of[previous]
        column = previous
    row_of[start] = None
