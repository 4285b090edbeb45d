"""From the plan as it is written to the parts that are searched: groups in groups of one kind become one."""

from __future__ import annotations

from collections.abc import Mapping

from evalkit.checks.matching.parts import Bag, Chain, Choice, One, Part, Rules, Shuffle, Together
from evalkit.checks.matching.plan import AnyOrder, InOrder, Leaf, Node, OneOf, Position, children


def build(root: Node, rules: Rules, chosen: Mapping[Position, int] | None = None) -> Part:
    """The machine of the plan; `chosen` decides its alternatives beforehand."""
    numbers = {leaf.id: number for number, leaf in enumerate(rules.table.leaves)}
    return _part(root, (), rules, numbers, chosen)


def _part(
    node: Node, position: Position, rules: Rules, numbers: Mapping[int, int], chosen: Mapping[Position, int] | None
) -> Part:
    if isinstance(node, Leaf):
        return One(numbers[node.id], rules)
    steps = range(len(children(node)))
    if isinstance(node, OneOf) and chosen is not None:
        steps = range(chosen[position], chosen[position] + 1)
    inner = [_part(children(node)[step], (*position, step), rules, numbers, chosen) for step in steps]
    if isinstance(node, InOrder):
        return _chain(inner, rules)
    if isinstance(node, AnyOrder):
        return _shuffle(inner, rules)
    if isinstance(node, OneOf):
        return inner[0] if len(inner) == 1 else Choice(tuple(inner))
    together = _shuffle(inner, rules)
    return Together(together, rules) if sum(rules.most[leaf] for leaf in together.leaves) > 1 else together


def _chain(inner: list[Part], rules: Rules) -> Part:
    parts: list[Part] = []
    for part in inner:
        if isinstance(part, Chain):
            parts += part.parts
        elif part.leaves:
            parts.append(part)
    if not parts:
        return Bag((), rules)
    return parts[0] if len(parts) == 1 else Chain(tuple(parts))


def _shuffle(inner: list[Part], rules: Rules) -> Part:
    loose: list[int] = []  # leaves are matched, whatever their number; only what is ordered has to be searched
    parts: list[Part] = []
    for part in inner:
        for each in part.parts if isinstance(part, Shuffle) else (part,):
            if isinstance(each, (One, Bag)):
                loose += each.leaves
            else:
                parts.append(each)
    if len(loose) == 1:
        parts.append(One(loose[0], rules))
    elif loose or not parts:
        parts.append(Bag(tuple(loose), rules))
    return parts[0] if len(parts) == 1 else Shuffle(tuple(parts))
