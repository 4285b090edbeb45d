"""The keys of one place: the kernel's own, and behind them those that features have there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from evalkit.hooks import Place, find_key, find_owner, list_keys

K = TypeVar("K")


class KeyTable(Mapping[str, K], Generic[K]):
    """Keys by name. A feature is loaded where its key is looked up, not to know its name.

    `sentence` is the attribute that says what a key means here; one of a feature without it may not stand here.
    """

    def __init__(self, own: dict[str, K], place: Place, sentence: str = "") -> None:
        self.own, self._place, self._sentence = own, place, sentence

    def __contains__(self, name: object) -> bool:
        if name in self.own:
            return True
        if find_owner(self._place, name) is None:
            return False
        return not self._sentence or bool(getattr(find_key(self._place, name), self._sentence))

    def __getitem__(self, name: str) -> K:
        if name in self.own:
            return self.own[name]
        if name not in self:
            raise KeyError(name)
        key: K = find_key(self._place, name)
        return key

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from (name for name in list_keys(self._place) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
