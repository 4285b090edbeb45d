"""Matchers of mappings and lists, key by key and item by item."""

from __future__ import annotations

from itertools import islice
from typing import Any

from msgspec.structs import replace

from evalkit.operators.equality import ARRAY, OBJECT, get_kind
from evalkit.operators.matcher import MAX_DIFFERENCES, KeyPath, Matcher, Mismatch, Resolve
from evalkit.operators.shown import format_value

_ALIGNED = 40  # lists of different lengths are aligned before they are explained, up to so many items


class MappingMatcher(Matcher, frozen=True):
    """A mapping with these keys. `closed`: and no other."""

    items: tuple[tuple[str, Matcher], ...]
    closed: bool

    is_composite = True

    @property
    def has_templates(self) -> bool:
        return any(item.has_templates for _, item in self.items)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({OBJECT})

    def evaluate(self, actual: Any) -> bool:
        if get_kind(actual) != OBJECT:
            return False
        present = 0
        for key, item in self.items:
            if key in actual:
                present += 1
                if not item.evaluate(actual[key]):
                    return False
            elif not item.accepts_absence:
                return False
        return not self.closed or present == len(actual)

    def is_equal(self, actual: Any) -> bool:
        if type(actual) is dict and len(actual) > len(self.items):
            return False  # of a mapping that contains what is expected, the usual answer
        if not self.is_match(actual):
            return False
        sent = [(item, actual[key]) for key, item in self.items if key in actual]
        return len(sent) == len(actual) and all(item.is_equal(value) for item, value in sent)

    def find_differences(self, actual: Any, path: KeyPath) -> list[Mismatch]:
        if get_kind(actual) != OBJECT:
            return [self.build_mismatch(actual, path)]
        from evalkit.operators.difference import build_missing_key, build_unexpected_key

        differences: list[Mismatch] = []
        entries = dict(self.items)
        for key, item in self.items:
            if key in actual:
                differences += item.explain(actual[key], (*path, key))
            elif not item.accepts_absence:
                differences.append(build_missing_key((*path, key), item.to_data(), item.describe(), actual, entries))
        if self.closed:
            extra = (build_unexpected_key(path, key, value) for key, value in actual.items() if key not in entries)
            differences += islice(extra, MAX_DIFFERENCES + 1)
        return differences

    def describe_fully(self) -> str:
        inner = ", ".join(f"{format_value(key)}: {item.describe_fully()}" for key, item in self.items)
        return f"{{{inner}}}" if self.closed else f"a mapping with {{{inner}}}"

    def to_data(self) -> Any:
        return {key: item.to_data() for key, item in self.items}

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, items=tuple((key, item.bind(resolve)) for key, item in self.items))


class ListMatcher(Matcher, frozen=True):
    """A list of exactly these items, in this order."""

    items: tuple[Matcher, ...]

    is_composite = True

    @property
    def has_templates(self) -> bool:
        return any(item.has_templates for item in self.items)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({ARRAY})

    def evaluate(self, actual: Any) -> bool:
        return (
            get_kind(actual) == ARRAY
            and len(actual) == len(self.items)
            and all(item.evaluate(value) for item, value in zip(self.items, actual, strict=True))
        )

    def is_equal(self, actual: Any) -> bool:
        return self.is_match(actual) and all(m.is_equal(value) for m, value in zip(self.items, actual, strict=True))

    def find_differences(self, actual: Any, path: KeyPath) -> list[Mismatch]:
        if get_kind(actual) != ARRAY:
            return [self.build_mismatch(actual, path)]
        from evalkit.operators.difference import build_missing_item, build_unexpected_item

        differences: list[Mismatch] = []
        for start, end, actual_start, actual_end in self._find_blocks(actual):
            common = min(end - start, actual_end - actual_start)
            for offset in range(common):
                at = actual_start + offset
                differences += self.items[start + offset].explain(actual[at], (*path, at))
            for index in range(start + common, end):
                item = self.items[index]
                differences.append(build_missing_item((*path, index), item.to_data(), item.describe()))
            surplus = range(actual_start + common, actual_end)[: MAX_DIFFERENCES + 1]
            differences += [build_unexpected_item((*path, at), actual[at]) for at in surplus]
        return differences

    def _find_blocks(self, actual: list[Any]) -> list[tuple[int, int, int, int]]:
        """The stretches between the items that match in a longest common subsequence, as in `difference`."""
        size, actual_size = len(self.items), len(actual)
        if size == actual_size or max(size, actual_size) > _ALIGNED:
            return [(0, size, 0, actual_size)]
        fits = [[item.is_match(value) for value in actual] for item in self.items]
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

    def describe_fully(self) -> str:
        return f"[{', '.join(item.describe_fully() for item in self.items)}]"

    def to_data(self) -> Any:
        return [item.to_data() for item in self.items]

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, items=tuple(item.bind(resolve) for item in self.items))
