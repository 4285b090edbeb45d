"""Values from agents and callers as JSON data: what is none is replaced by its text, and named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_SAFE_DEPTH = 100
MAX_SAFE_CONTAINERS = 200_000


def to_json_safe(value: Any) -> tuple[Any, str | None]:
    """`value` as JSON data, and what was wrong with it (None: nothing; `value` itself comes back then).

    Cycles, nesting beyond 100, more than 200,000 lists and mappings, keys that are not strings, and objects that JSON
    doesn't know are replaced by text.
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return value, None
    reader = _SafeCopier()
    try:
        copy = reader.copy(value, "", 0, frozenset())
    except Exception as error:  # a mapping whose methods raise
        return f"({type(value).__name__})", f"reading it raised {type(error).__name__}"
    return (value, None) if reader.problem is None else (copy, reader.problem)


class _SafeCopier:
    """Copies a value as JSON data and remembers the first thing that was none."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self._containers = 0

    def copy(self, value: Any, path: str, depth: int, above: frozenset[int]) -> Any:
        if value is None or isinstance(value, (str, bool, int, float)):
            return value
        self._containers += 1
        why = self._find_refusal(value, depth, above)
        if why is not None:
            self.problem = self.problem or f"{path or 'the value'} {why}"
            return f"({why})"
        above = above | {id(value)}
        if isinstance(value, Mapping):
            return {
                self._copy_key(key, path): self.copy(item, f"{path}.{key}" if path else str(key), depth + 1, above)
                for key, item in value.items()
            }
        return [self.copy(item, f"{path}[{index}]", depth + 1, above) for index, item in enumerate(value)]

    def _find_refusal(self, value: Any, depth: int, above: frozenset[int]) -> str | None:
        if not isinstance(value, (Mapping, list, tuple)):
            return f"is a {type(value).__name__}"
        if id(value) in above:
            return "contains itself"
        if depth > MAX_SAFE_DEPTH:
            return f"is nested deeper than {MAX_SAFE_DEPTH}"
        return (
            f"holds more than {MAX_SAFE_CONTAINERS:,} lists and mappings"
            if self._containers > MAX_SAFE_CONTAINERS
            else None
        )

    def _copy_key(self, key: Any, path: str) -> str:
        if not isinstance(key, str):
            self.problem = self.problem or f"{path or 'the value'} has the key {key!r}, which is no string"
        return str(key)
