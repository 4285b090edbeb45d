"""Matchers of lists: items found somewhere, in any order, each of a kind, one of a kind, and lengths."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from msgspec.structs import replace

from evalkit.operators.assignment import covers_left, maximum_matching
from evalkit.operators.difference import unexpected_item
from evalkit.operators.equality import ARRAY, OBJECT, STRING, canonical, kind
from evalkit.operators.matcher import MAX_DIFFERENCES, WRONG, Matcher, Mismatch, Path, Resolve
from evalkit.operators.shown import shown
from evalkit.operators.values import Equal

_NEAR = 10  # how many leftover items are still held against each other to find the nearest


class Unordered(Matcher, frozen=True):
    """A list of exactly these items in any order: as many actual items, each expected one paired with one of them."""

    items: tuple[Matcher, ...]

    composite = True
    exact = True

    @property
    def has_templates(self) -> bool:
        return any(item.has_templates for item in self.items)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({ARRAY})

    def _fits(self, actual: Any) -> bool:
        if kind(actual) != ARRAY:
            return False
        return len(actual) == len(self.items) if self.exact else len(actual) >= len(self.items)

    def holds(self, actual: Any) -> bool:
        if not self._fits(actual):
            return False
        choices = _choices(self.items, actual, lambda item, value: item.holds(value), stop=True)
        return len(choices) == len(self.items) and covers_left(choices)

    def equals(self, actual: Any) -> bool:
        if not self._fits(actual):
            return False
        return covers_left(_choices(self.items, actual, lambda item, value: item.equals(value)))

    def differences(self, actual: Any, path: Path) -> list[Mismatch]:
        if kind(actual) != ARRAY:
            return [self.mismatch(actual, path)]
        paired = maximum_matching(_choices(self.items, actual, lambda item, value: item.matches(value)))
        taken = set(paired)
        lost = [item for item, at in zip(self.items, paired, strict=True) if at is None]
        spare = [at for at in range(len(actual)) if at not in taken]
        found: list[Mismatch] = []
        for item in lost:
            near = _nearest_item(item, spare, actual, path) if max(len(lost), len(spare)) <= _NEAR else None
            if near is None:
                found.append(Mismatch(path, WRONG, f"no item is {item.describe()}", item.written(), actual))
            else:
                spare.remove(near[0])
                found += near[1]
        surplus = spare[: MAX_DIFFERENCES + 1] if self.exact else []
        return found + [unexpected_item((*path, at), actual[at]) for at in surplus]

    def wording(self) -> str:
        return f"in any order [{', '.join(item.wording() for item in self.items)}]"

    def written(self) -> Any:
        return {"$unordered": [item.written() for item in self.items]}

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, items=tuple(item.bind(resolve) for item in self.items))


class Found(Unordered, frozen=True):
    """A list in which all these items are found, each by an item of its own: the rule of `arguments_contain`."""

    exact = False

    def equals(self, actual: Any) -> bool:
        return (
            kind(actual) == ARRAY
            and len(actual) == len(self.items)
            and all(item.equals(value) for item, value in zip(self.items, actual, strict=True))
        )

    def wording(self) -> str:
        return f"a list with [{', '.join(item.wording() for item in self.items)}]"

    def written(self) -> Any:
        return [item.written() for item in self.items]


def _choices(
    items: tuple[Matcher, ...], actual: list[Any], fits: Callable[[Matcher, Any], bool], *, stop: bool = False
) -> list[list[int]]:
    """For each item the indices of the values that it accepts. `stop`: at the first item that accepts none."""
    by_value: dict[Any, list[int]] | None = None
    choices: list[list[int]] = []
    for item in items:
        if type(item) is Equal:
            # Plain items are looked up, so that a long list of them is not compared with each value.
            if by_value is None:
                by_value = {}
                for at, value in enumerate(actual):
                    by_value.setdefault(canonical(value), []).append(at)
            key = canonical(item.value)
            choices.append(by_value.get(key, []) if key is not None else [])
        else:
            choices.append([at for at, value in enumerate(actual) if fits(item, value)])
        if stop and not choices[-1]:
            break
    return choices


def _nearest_item(item: Matcher, spare: list[int], actual: list[Any], path: Path) -> tuple[int, list[Mismatch]] | None:
    """The leftover mapping or list that differs least from what `item` wanted, and how; None if none is of its kind."""
    candidates = [at for at in spare if kind(actual[at]) in (OBJECT, ARRAY) and kind(actual[at]) in item.kinds]
    explained = [(at, item.explain(actual[at], (*path, at))) for at in candidates]
    return min(explained, key=lambda pair: len(pair[1]), default=None)


class HasItem(Matcher, frozen=True):
    """`$contains` with anything but a text: a list with such an item."""

    item: Matcher
    name: str = "$contains"

    @property
    def has_templates(self) -> bool:
        return self.item.has_templates

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({ARRAY})

    def holds(self, actual: Any) -> bool:
        return kind(actual) == ARRAY and any(self.item.holds(value) for value in actual)

    def wording(self) -> str:
        return f"a list with an item that is {self.item.wording()}"

    def written(self) -> Any:
        return {self.name: self.item.written()}

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, item=self.item.bind(resolve))


class Each(Matcher, frozen=True):
    """A list whose items are all so. An empty list only where `$len` stands beside it."""

    item: Matcher
    may_be_empty: bool = False

    composite = True

    @property
    def has_templates(self) -> bool:
        return self.item.has_templates

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({ARRAY})

    def holds(self, actual: Any) -> bool:
        if kind(actual) != ARRAY or not (actual or self.may_be_empty):
            return False
        return all(self.item.holds(value) for value in actual)

    def equals(self, actual: Any) -> bool:
        return self.matches(actual) and all(self.item.equals(value) for value in actual)

    def differences(self, actual: Any, path: Path) -> list[Mismatch]:
        if kind(actual) != ARRAY or not actual:
            return [self.mismatch(actual, path)]
        found = (wrong for at, value in enumerate(actual) for wrong in self.item.explain(value, (*path, at)))
        return list(islice(found, MAX_DIFFERENCES + 1))

    def wording(self) -> str:
        return f"a list of which each item is {self.item.wording()}"

    def written(self) -> Any:
        return {"$each": self.item.written()}

    def hint(self, actual: Any) -> str:
        empty = kind(actual) == ARRAY and not actual
        return " ($each accepts an empty list only with $len beside it)" if empty else Matcher.hint(self, actual)

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, item=self.item.bind(resolve))


class Length(Matcher, frozen=True):
    """A string, list or mapping whose length (characters, items, keys) is so."""

    length: Matcher

    @property
    def has_templates(self) -> bool:
        return self.length.has_templates

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({STRING, ARRAY, OBJECT})

    def holds(self, actual: Any) -> bool:
        return kind(actual) in self.kinds and self.length.holds(len(actual))

    def wording(self) -> str:
        return f"a length that is {self.length.wording()}"

    def written(self) -> Any:
        return {"$len": self.length.written()}

    def wrong(self, actual: Any) -> str:
        if kind(actual) not in self.kinds:
            return f"expected a string, list or mapping with {self.describe()}, got {shown(actual)}"
        return f"expected {self.describe()}, got length {len(actual)}: {shown(actual)}"

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, length=self.length.bind(resolve))
