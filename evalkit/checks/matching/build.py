"""From the plan as it is written to the parts that are searched: groups in groups of one kind become one."""

from __future__ import annotations

from collections.abc import Mapping

from evalkit.checks.matching.parts import Bag, Chain, Choice, LeafPart, ParallelPart, Part, Rules, Shuffle
from evalkit.checks.matching.plan import AnyOrder, InOrder, Leaf, Node, OneOf, Position, list_children


def build_part(root: Node, rules: Rules, chosen: Mapping[Position, int] | None = None) -> Part:
    """The machine of the plan; `chosen` decides its alternatives beforehand."""
    numbers = {leaf.id: number for number, leaf in enumerate(rules.table.leaves)}
    return _build_node(root, (), rules, numbers, chosen)


def _build_node(
    node: Node, position: Position, rules: Rules, numbers: Mapping[int, int], chosen: Mapping[Position, int] | None
) -> Part:
    if isinstance(node, Leaf):
        return LeafPart(numbers[node.id], rules)
    steps = range(len(list_children(node)))
    if isinstance(node, OneOf) and chosen is not None:
        steps = range(chosen[position], chosen[position] + 1)
    inner = [_build_node(list_children(node)[step], (*position, step), rules, numbers, chosen) for step in steps]
    if isinstance(node, InOrder):
        return _build_chain(inner, rules)
    if isinstance(node, AnyOrder):
        return _build_shuffle(inner, rules)
    if isinstance(node, OneOf):
        return inner[0] if len(inner) == 1 else Choice(tuple(inner))
    together = _build_shuffle(inner, rules)
    return ParallelPart(together, rules) if sum(rules.maximums[leaf] for leaf in together.leaves) > 1 else together


def _build_chain(inner: list[Part], rules: Rules) -> Part:
    parts: list[Part] = []
    for part in inner:
        if isinstance(part, Chain):
            parts += part.parts
        elif part.leaves:
            parts.append(part)
    if not parts:
        return Bag((), rules)
    return parts[0] if len(parts) == 1 else Chain(tuple(parts))


def _build_shuffle(inner: list[Part], rules: Rules) -> Part:
    loose: list[int] = []  # leaves are matched, whatever their number; only what is ordered has to be searched
    parts: list[Part] = []
    for part in inner:
        for element in part.parts if isinstance(part, Shuffle) else (part,):
            if isinstance(element, (LeafPart, Bag)):
                loose += element.leaves
            else:
                parts.append(element)
    if len(loose) == 1:
        parts.append(LeafPart(loose[0], rules))
    elif loose or not parts:
        parts.append(Bag(tuple(loose), rules))
    return parts[0] if len(parts) == 1 else Shuffle(tuple(parts))
