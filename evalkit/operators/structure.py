"""Matchers of mappings and lists, key by key and item by item."""

from __future__ import annotations

from itertools import islice
from typing import Any

from msgspec.structs import replace

from evalkit.operators.equality import ARRAY, OBJECT, kind
from evalkit.operators.matcher import MAX_DIFFERENCES, Matcher, Mismatch, Path, Resolve
from evalkit.operators.shown import shown

_ALIGNED = 40  # lists of different lengths are aligned before they are explained, up to so many items


class Keyed(Matcher, frozen=True):
    """A mapping with these keys. `closed`: and no other."""

    items: tuple[tuple[str, Matcher], ...]
    closed: bool

    composite = True

    @property
    def has_templates(self) -> bool:
        return any(item.has_templates for _, item in self.items)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({OBJECT})

    def holds(self, actual: Any) -> bool:
        if kind(actual) != OBJECT:
            return False
        present = 0
        for key, item in self.items:
            if key in actual:
                present += 1
                if not item.holds(actual[key]):
                    return False
            elif not item.accepts_absence:
                return False
        return not self.closed or present == len(actual)

    def equals(self, actual: Any) -> bool:
        if type(actual) is dict and len(actual) > len(self.items):
            return False  # of a mapping that contains what is expected, the usual answer
        if not self.matches(actual):
            return False
        sent = [(item, actual[key]) for key, item in self.items if key in actual]
        return len(sent) == len(actual) and all(item.equals(value) for item, value in sent)

    def differences(self, actual: Any, path: Path) -> list[Mismatch]:
        if kind(actual) != OBJECT:
            return [self.mismatch(actual, path)]
        from evalkit.operators.difference import missing_key, unexpected_key

        found: list[Mismatch] = []
        listed = dict(self.items)
        for key, item in self.items:
            if key in actual:
                found += item.explain(actual[key], (*path, key))
            elif not item.accepts_absence:
                found.append(missing_key((*path, key), item.written(), item.describe(), actual, listed))
        if self.closed:
            extra = (unexpected_key(path, key, value) for key, value in actual.items() if key not in listed)
            found += islice(extra, MAX_DIFFERENCES + 1)
        return found

    def wording(self) -> str:
        inner = ", ".join(f"{shown(key)}: {item.wording()}" for key, item in self.items)
        return f"{{{inner}}}" if self.closed else f"a mapping with {{{inner}}}"

    def written(self) -> Any:
        return {key: item.written() for key, item in self.items}

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, items=tuple((key, item.bind(resolve)) for key, item in self.items))


class Items(Matcher, frozen=True):
    """A list of exactly these items, in this order."""

    items: tuple[Matcher, ...]

    composite = True

    @property
    def has_templates(self) -> bool:
        return any(item.has_templates for item in self.items)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({ARRAY})

    def holds(self, actual: Any) -> bool:
        return (
            kind(actual) == ARRAY
            and len(actual) == len(self.items)
            and all(item.holds(value) for item, value in zip(self.items, actual, strict=True))
        )

    def equals(self, actual: Any) -> bool:
        return self.matches(actual) and all(m.equals(value) for m, value in zip(self.items, actual, strict=True))

    def differences(self, actual: Any, path: Path) -> list[Mismatch]:
        if kind(actual) != ARRAY:
            return [self.mismatch(actual, path)]
        from evalkit.operators.difference import missing_item, unexpected_item

        found: list[Mismatch] = []
        for start, end, actual_start, actual_end in self._blocks(actual):
            common = min(end - start, actual_end - actual_start)
            for offset in range(common):
                at = actual_start + offset
                found += self.items[start + offset].explain(actual[at], (*path, at))
            for index in range(start + common, end):
                item = self.items[index]
                found.append(missing_item((*path, index), item.written(), item.describe()))
            surplus = range(actual_start + common, actual_end)[: MAX_DIFFERENCES + 1]
            found += [unexpected_item((*path, at), actual[at]) for at in surplus]
        return found

    def _blocks(self, actual: list[Any]) -> list[tuple[int, int, int, int]]:
        """The stretches between the items that match in a longest common subsequence, as in `difference`."""
        size, actual_size = len(self.items), len(actual)
        if size == actual_size or max(size, actual_size) > _ALIGNED:
            return [(0, size, 0, actual_size)]
        fits = [[item.matches(value) for value in actual] for item in self.items]
        best = [[0] * (actual_size + 1) for _ in range(size + 1)]  # best[i][k]: matches in items[i:], actual[k:]
        for i in reversed(range(size)):
            for k in reversed(range(actual_size)):
                best[i][k] = best[i + 1][k + 1] + 1 if fits[i][k] else max(best[i + 1][k], best[i][k + 1])
        blocks, i, k, start, actual_start = [], 0, 0, 0, 0
        while i < size and k < actual_size:
            if fits[i][k]:
                blocks.append((start, i, actual_start, k))
                i, k = i + 1, k + 1
                start, actual_start = i, k
            elif best[i + 1][k] >= best[i][k + 1]:
                i += 1
            else:
                k += 1
        return [*blocks, (start, size, actual_start, actual_size)]

    def wording(self) -> str:
        return f"[{', '.join(item.wording() for item in self.items)}]"

    def written(self) -> Any:
        return [item.written() for item in self.items]

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, items=tuple(item.bind(resolve) for item in self.items))
