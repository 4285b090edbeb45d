"""The names under which hosts of tool servers offer their functions: ``mcp__shop__find`` is `find` of `shop`."""

from __future__ import annotations

PREFIX = "mcp__"


def is_offered_as(name: str, offered: str) -> bool:
    """Return whether a host offers the function `name` of some server as `offered`."""
    return offered.startswith(PREFIX) and offered.endswith(f"__{name}") and len(offered) > len(PREFIX + name) + 2
