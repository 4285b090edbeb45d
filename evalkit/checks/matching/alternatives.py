"""Which alternative of each OneOf is in force. A OneOf inside an alternative that is not chosen has none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import product
from math import prod
from typing import TypeVar

from evalkit.checks.matching.plan import Leaf, Node, OneOf, Position, children, walk

Choices = Mapping[Position, int]
T = TypeVar("T")


def count(node: Node) -> int:
    """How many ways to choose there are."""
    counts = (count(child) for child in children(node))
    return sum(counts) if isinstance(node, OneOf) else prod(counts)


def combinations(node: Node, position: Position = ()) -> list[dict[Position, int]]:
    """Every way to choose, earliest alternatives first."""
    below = [combinations(child, (*position, step)) for step, child in enumerate(children(node))]
    if isinstance(node, OneOf):
        return [{position: step, **inner} for step, inners in enumerate(below) for inner in inners]
    return [{place: step for inner in inners for place, step in inner.items()} for inners in product(*below)]


def best(
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
    if count(root) <= tries:
        return min(map(attempt, combinations(root)), key=key)
    choices: dict[Position, int] = {}
    _follow(root, (), promising(), choices)
    found = attempt(choices)
    for position in [position for position, node in walk(root) if isinstance(node, OneOf)]:
        for varied in _variants(root, choices, position)[: max(0, tries)]:
            tries -= 1
            tried = attempt(varied)
            if key(tried) < key(found):
                choices, found = varied, tried
    return found


def _variants(root: Node, choices: Choices, position: Position) -> list[dict[Position, int]]:
    """`choices` with each alternative at `position`, if that is in force; what is new below it takes its first."""
    if position not in choices:
        return []
    node = next(node for place, node in walk(root) if place == position)
    varied: list[dict[Position, int]] = [{} for _ in children(node)]
    for step, found in enumerate(varied):
        _follow(root, (), {**choices, position: step}, found)
    return varied


def _follow(node: Node, position: Position, wanted: Choices, found: dict[Position, int]) -> None:
    below = list(enumerate(children(node)))
    if isinstance(node, OneOf):
        found[position] = step = wanted.get(position, 0)
        below = below[step : step + 1]
    for step, child in below:
        _follow(child, (*position, step), wanted, found)


def decided(root: Node, used: Collection[int], least: Mapping[int, int]) -> dict[Position, int]:
    """The alternatives that an assignment chose: those with a leaf in `used`, else the first that may stay empty.

    `used` holds leaf ids, `least` the number of calls that each leaf id needs.
    """
    found: dict[Position, int] = {}
    _decide(root, (), used, least, found)
    return found


def _decide(
    node: Node, position: Position, used: Collection[int], least: Mapping[int, int], found: dict[Position, int]
) -> None:
    below = list(enumerate(children(node)))
    if isinstance(node, OneOf):
        held = (step for step, child in below if any(n.id in used for _, n in walk(child) if isinstance(n, Leaf)))
        empty = (step for step, child in below if _may_stay_empty(child, least))
        found[position] = step = next(held, next(empty, 0))
        below = below[step : step + 1]
    for step, child in below:
        _decide(child, (*position, step), used, least, found)


def _may_stay_empty(node: Node, least: Mapping[int, int]) -> bool:
    if isinstance(node, Leaf):
        return not least[node.id]
    empties = (_may_stay_empty(child, least) for child in children(node))
    return any(empties) if isinstance(node, OneOf) else all(empties)
