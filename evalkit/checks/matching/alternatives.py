"""Which alternative of each OneOf is in force. A OneOf inside an alternative that is not chosen has none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import product
from math import prod
from typing import TypeVar

from evalkit.checks.matching.plan import Leaf, Node, OneOf, Position, list_children, walk

Choices = Mapping[Position, int]
T = TypeVar("T")


def count_combinations(node: Node) -> int:
    """How many ways to choose there are."""
    counts = (count_combinations(child) for child in list_children(node))
    return sum(counts) if isinstance(node, OneOf) else prod(counts)


def list_combinations(node: Node, position: Position = ()) -> list[dict[Position, int]]:
    """Every way to choose, earliest alternatives first."""
    below = [list_combinations(child, (*position, step)) for step, child in enumerate(list_children(node))]
    if isinstance(node, OneOf):
        return [{position: step, **inner} for step, inners in enumerate(below) for inner in inners]
    return [{place: step for inner in inners for place, step in inner.items()} for inners in product(*below)]


def find_best(
    root: Node,
    attempt: Callable[[Choices], T],
    key: Callable[[T], tuple[float, ...]],
    tries: int,
    promising: Callable[[], Choices],
) -> T:
    """The attempt of least key; on ties that with the earliest alternatives.

    Every combination is tried where these are no more than `tries`; otherwise a promising one is improved one OneOf
    after the other, as long as the tries last.
    """
    if count_combinations(root) <= tries:
        return min(map(attempt, list_combinations(root)), key=key)
    choices: dict[Position, int] = {}
    _follow(root, (), promising(), choices)
    outcome = attempt(choices)
    for position in [position for position, node in walk(root) if isinstance(node, OneOf)]:
        for varied in _list_variants(root, choices, position)[: max(0, tries)]:
            tries -= 1
            tried = attempt(varied)
            if key(tried) < key(outcome):
                choices, outcome = varied, tried
    return outcome


def _list_variants(root: Node, choices: Choices, position: Position) -> list[dict[Position, int]]:
    """`choices` with each alternative at `position`, if that is in force; what is new below it takes its first."""
    if position not in choices:
        return []
    node = next(node for place, node in walk(root) if place == position)
    varied: list[dict[Position, int]] = [{} for _ in list_children(node)]
    for step, variant in enumerate(varied):
        _follow(root, (), {**choices, position: step}, variant)
    return varied


def _follow(node: Node, position: Position, preferred: Choices, result: dict[Position, int]) -> None:
    below = list(enumerate(list_children(node)))
    if isinstance(node, OneOf):
        result[position] = step = preferred.get(position, 0)
        below = below[step : step + 1]
    for step, child in below:
        _follow(child, (*position, step), preferred, result)


def find_choices(root: Node, used: Collection[int], minimums: Mapping[int, int]) -> dict[Position, int]:
    """The alternatives that an assignment chose: those with a leaf in `used`, else the first that may stay empty.

    `used` holds leaf ids, `least` the number of calls that each leaf id needs.
    """
    result: dict[Position, int] = {}
    _decide(root, (), used, minimums, result)
    return result


def _decide(
    node: Node, position: Position, used: Collection[int], minimums: Mapping[int, int], result: dict[Position, int]
) -> None:
    below = list(enumerate(list_children(node)))
    if isinstance(node, OneOf):
        filled = (step for step, child in below if any(n.id in used for _, n in walk(child) if isinstance(n, Leaf)))
        empty = (step for step, child in below if _may_stay_empty(child, minimums))
        result[position] = step = next(filled, next(empty, 0))
        below = below[step : step + 1]
    for step, child in below:
        _decide(child, (*position, step), used, minimums, result)


def _may_stay_empty(node: Node, minimums: Mapping[int, int]) -> bool:
    if isinstance(node, Leaf):
        return not minimums[node.id]
    empties = (_may_stay_empty(child, minimums) for child in list_children(node))
    return any(empties) if isinstance(node, OneOf) else all(empties)
