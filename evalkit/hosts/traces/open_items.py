"""Calls that have no answer yet, and the like: which of them is meant by what a log holds later."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from evalkit.hosts.traces.log_formats import FunctionAnswer

T = TypeVar("T")


class OpenItems(Generic[T]):
    """Items in the order in which they were added, each taken once, by one of its keys, without a search."""

    def __init__(self) -> None:
        self._items: dict[int, T] = {}
        self._numbers: dict[Hashable, deque[int]] = {}  # by key; also of items that were taken by another key
        self._count = 0

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def add(self, item: T, *keys: Hashable) -> None:
        self._items[self._count] = item
        for key in keys:
            self._numbers.setdefault(key, deque()).append(self._count)
        self._count += 1

    def take(self, *keys: Hashable) -> T | None:
        """Remove and return the first item with the first of `keys`, else with the second, ...; None: there is none."""
        for key in keys:
            numbers = self._numbers.get(key)
            while numbers:
                number = numbers.popleft()
                if number in self._items:
                    return self._items.pop(number)
        return None


class OpenCalls(OpenItems[T]):
    """Calls, of which an answer takes the first one with its id, else with its name; with neither, the first."""

    def add_call(self, item: T, name: str, call_id: str | None) -> None:
        self.add(item, ("id", call_id), ("name", name), None)

    def take_call(self, answer: FunctionAnswer) -> T | None:
        keys: list[Hashable] = [key for key in (("id", answer.call_id), ("name", answer.name)) if key[1] is not None]
        return self.take(*(keys or [None]))
