"""How much a text may hold, and how much an alias stands for."""

from __future__ import annotations

from typing import Any

from evalkit.record import record


@record(frozen=True, slots=True)
class Limits:
    """How much one text may hold. `max_nodes` counts keys and values after aliases are expanded."""

    max_bytes: int = 10_000_000
    max_depth: int = 100
    max_nodes: int = 100_000


DEFAULT = Limits()


def expanded_size(value: Any, budget: int) -> tuple[int, int]:
    """Keys and values in `value`, and its levels, with aliases expanded. Stops counting once `budget` is passed."""
    nodes, depth = 0, 0
    level = [value]
    while (level := [item for item in level if item.__class__ in (dict, list)]) and nodes <= budget:
        depth += 1
        inner: list[Any] = []
        for item in level:
            nodes += len(item) * (2 if item.__class__ is dict else 1)
            if nodes > budget:
                break
            inner.extend(item.values() if item.__class__ is dict else item)
        level = inner
    return nodes, depth
