"""The keys of one place: the kernel's own, and behind them those that features have there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Generic, TypeVar

from evalkit.entries import Place
from evalkit.hooks.loading import find_key, find_owner, list_keys
from evalkit.lazy import load

K = TypeVar("K")


class KeyTable(Mapping[str, K], Generic[K]):
    """Keys by name. `own` are the kernel's, each with the module whose `KEYS` has it.

    A module, or a feature, is imported where its key is looked up, not to know its name. `sentence` is the attribute
    that says what a key means here; one without it may not stand here.
    """

    def __init__(self, own: dict[str, str], place: Place, sentence: str = "") -> None:
        self.own, self._place, self._sentence = own, place, sentence

    def find(self, name: object) -> K | None:
        """Return the key of this name; None if there is none."""
        if not isinstance(name, str):
            return None
        key: K | None = _load_key(self.own[name], name) if name in self.own else find_key(self._place, name)
        return key if key is None or not self._sentence or getattr(key, self._sentence) else None

    def __contains__(self, name: object) -> bool:
        if self._sentence:
            return self.find(name) is not None
        return name in self.own or find_owner(self._place, name) is not None

    def __getitem__(self, name: str) -> K:
        key = self.find(name)
        if key is None:
            raise KeyError(name)
        return key

    def __iter__(self) -> Iterator[str]:
        return (name for name in (*self.own, *list_keys(self._place)) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _load_key(module: str, name: str) -> Any:
    """Return a key of a module. A LookupError is a row of a table that the module does not know."""
    keys = _load_keys(module)
    if name not in keys:
        raise LookupError(f"'{name}' has a row in a table of keys, and no key in KEYS of {module}; add it there")
    return keys[name]


@cache
def _load_keys(module: str) -> Mapping[str, Any]:
    """Return the keys of a module by name."""
    return {key.name: key for key in load(module).KEYS}
