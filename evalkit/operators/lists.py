"""Operators of lists: items found somewhere, in any order, each of a kind, one of a kind, and lengths."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeGuard

from evalkit.errors import KeyPath
from evalkit.jsonvalue import (
    ARRAY,
    NUMBER,
    OBJECT,
    STRING,
    JsonValue,
    get_kind,
    is_list,
    is_mapping,
    is_string,
    to_hashable,
)
from evalkit.operators.base import (
    LIST,
    MAX_DIFFERENCES,
    VALUE,
    WRONG,
    Group,
    Matcher,
    Mismatch,
    Operand,
    Operator,
    Wrapper,
    build_unexpected_item,
)
from evalkit.operators.values import Equal
from evalkit.text.format import format_value

SEARCHED = "in a list that is searched for its items; say it of the whole list, or of each item by $each"
_NEAR = 10  # how many leftover items are still held against each other to find the nearest


class Unordered(Group, frozen=True):
    """A list of exactly these items in any order: as many actual items, each expected one paired with one of them."""

    is_composite = True
    exact = True
    kinds = frozenset({ARRAY})

    def _has_valid_length(self, actual: object) -> TypeGuard[list[object]]:
        if not is_list(actual):
            return False
        return len(actual) == len(self.items) if self.exact else len(actual) >= len(self.items)

    def evaluate(self, actual: object) -> bool:
        if not self._has_valid_length(actual):
            return False
        choices = _find_choices(self.items, actual, lambda item, value: item.evaluate(value), stop=True)
        return len(choices) == len(self.items) and can_pair_all(choices)

    def is_equal(self, actual: object) -> bool:
        if not self._has_valid_length(actual):
            return False
        return can_pair_all(_find_choices(self.items, actual, lambda item, value: item.is_equal(value)))

    def find_differences(self, actual: object, path: KeyPath) -> list[Mismatch]:
        if not is_list(actual):
            return [self.build_mismatch(actual, path)]
        pairing = find_maximum_matching(_find_choices(self.items, actual, lambda item, value: item.is_match(value)))
        unpaired = [item for item, index in zip(self.items, pairing, strict=True) if index is None]
        spare = sorted(set(range(len(actual))).difference(pairing))
        differences: list[Mismatch] = []
        for item in unpaired:
            # The leftover mapping or list that differs least.
            kinds = item.kinds & {OBJECT, ARRAY} if max(len(unpaired), len(spare)) <= _NEAR else frozenset()
            explained = [(at, item.explain(actual[at], (*path, at))) for at in spare if get_kind(actual[at]) in kinds]
            nearest = min(explained, key=lambda pair: len(pair[1]), default=None)
            if nearest is None:
                differences.append(Mismatch(path, WRONG, f"no item is {item.describe()}", item.to_data(), actual))
            else:
                spare.remove(nearest[0])
                differences += nearest[1]
        surplus = spare[: MAX_DIFFERENCES + 1] if self.exact else []
        return differences + [build_unexpected_item((*path, at), actual[at]) for at in surplus]

    def describe_fully(self) -> str:
        return f"in any order [{', '.join(item.describe_fully() for item in self.items)}]"

    def to_data(self) -> JsonValue:
        return {"$unordered": [item.to_data() for item in self.items]}


class ListContaining(Unordered, frozen=True):
    """A list in which all these items are found, each by an item of its own: the rule of `arguments_contain`."""

    exact = False

    def is_equal(self, actual: object) -> bool:
        return (
            is_list(actual)
            and len(actual) == len(self.items)
            and all(item.is_equal(value) for item, value in zip(self.items, actual, strict=True))
        )

    def describe_fully(self) -> str:
        return f"a list with [{', '.join(item.describe_fully() for item in self.items)}]"

    def to_data(self) -> JsonValue:
        return [item.to_data() for item in self.items]


def _find_choices(
    items: tuple[Matcher, ...], actual: list[Any], fits: Callable[[Matcher, Any], bool], *, stop: bool = False
) -> list[list[int]]:
    """List for each item the indices of the values that it accepts; with `stop`, up to the first that accepts none."""
    by_value: dict[Any, list[int]] | None = None
    choices: list[list[int]] = []
    for item in items:
        if type(item) is Equal:
            # Plain items are looked up, so that a long list of them is not compared with each value.
            if by_value is None:
                by_value = {}
                for at, value in enumerate(actual):
                    by_value.setdefault(to_hashable(value), []).append(at)
            key = to_hashable(item.value)
            choices.append(by_value.get(key, []) if key is not None else [])
        else:
            choices.append([at for at, value in enumerate(actual) if fits(item, value)])
        if stop and not choices[-1]:
            break
    return choices


class HasItem(Wrapper, frozen=True):
    """`$contains` with anything but a text: a list with such an item."""

    name: str = "$contains"
    kinds = frozenset({ARRAY})

    def evaluate(self, actual: object) -> bool:
        return is_list(actual) and any(self.inner.evaluate(value) for value in actual)

    def describe_fully(self) -> str:
        return f"a list with an item that is {self.inner.describe_fully()}"

    def to_data(self) -> JsonValue:
        return {self.name: self.inner.to_data()}


class Each(Wrapper, frozen=True):
    """`$each`: a list whose items all match. An empty list only where `$len` stands beside it."""

    may_be_empty: bool = False
    is_composite = True

    kinds = frozenset({ARRAY})

    def evaluate(self, actual: object) -> bool:
        if not is_list(actual) or not (actual or self.may_be_empty):
            return False
        return all(self.inner.evaluate(value) for value in actual)

    def is_equal(self, actual: object) -> bool:
        return is_list(actual) and self.is_match(actual) and all(self.inner.is_equal(value) for value in actual)

    def find_differences(self, actual: object, path: KeyPath) -> list[Mismatch]:
        if not is_list(actual) or not actual:
            return [self.build_mismatch(actual, path)]
        differences = (wrong for at, value in enumerate(actual) for wrong in self.inner.explain(value, (*path, at)))
        return list(islice(differences, MAX_DIFFERENCES + 1))

    def describe_fully(self) -> str:
        return f"a list of which each item is {self.inner.describe_fully()}"

    def to_data(self) -> JsonValue:
        return {"$each": self.inner.to_data()}

    def build_hint(self, actual: object) -> str:
        empty = is_list(actual) and not actual
        return " ($each accepts an empty list only with $len beside it)" if empty else Matcher.build_hint(self, actual)


class Length(Wrapper, frozen=True):
    """`$len`: a string, list or mapping whose length (characters, items, keys) matches."""

    kinds = frozenset({STRING, ARRAY, OBJECT})

    def evaluate(self, actual: object) -> bool:
        length = _get_length(actual)
        return length is not None and self.inner.evaluate(length)

    def describe_fully(self) -> str:
        return f"a length that is {self.inner.describe_fully()}"

    def to_data(self) -> JsonValue:
        return {"$len": self.inner.to_data()}

    def describe_mismatch(self, actual: object) -> str:
        length = _get_length(actual)
        if length is None:
            return f"expected a string, list or mapping with {self.describe()}, got {format_value(actual)}"
        return f"expected {self.describe()}, got length {length}: {format_value(actual)}"


def _get_length(value: object) -> int | None:
    return len(value) if is_string(value) or is_list(value) or is_mapping(value) else None


def find_maximum_matching(choices: Sequence[Sequence[int]]) -> list[int | None]:
    """Pair as many items as possible with a candidate each. Return the candidate of each item, or None.

    `choices[i]` are the right items that left item `i` accepts, best first. Deterministic: without a conflict every
    item gets its first choice, and of items that compete the earlier ones are paired.
    """
    pairing = _Matching(choices)
    for item in range(len(choices)):
        pairing.add(item)
    return pairing.partner_of_item


def can_pair_all(choices: Sequence[Sequence[int]]) -> bool:
    """Return whether every item can be paired with a candidate of its own."""
    pairing = _Matching(choices)
    return all(pairing.add(item) for item in range(len(choices)))


class _Matching:
    def __init__(self, choices: Sequence[Sequence[int]]) -> None:
        self.choices = choices
        self.partner_of_item: list[int | None] = [None] * len(choices)
        self.item_of_partner: dict[int, int] = {}
        self.exhausted: set[int] = set()  # right items from which no free one can be reached

    def add(self, root: int) -> bool:
        """Pair `root`, moving others where needed. False if the pairing can't grow by it."""
        came_from: dict[int, int] = {}  # right item -> the left item from which the search reached it
        queue = deque([root])
        while queue:
            item = queue.popleft()
            for candidate in self.choices[item]:
                if candidate in came_from or candidate in self.exhausted:
                    continue
                came_from[candidate] = item
                if candidate not in self.item_of_partner:
                    # Give it to the item that found it, that item's former partner to the one before, back to the root.
                    free: int | None = candidate
                    while free is not None:
                        item = came_from[free]
                        previous = self.partner_of_item[item]
                        self.partner_of_item[item], self.item_of_partner[free] = free, item
                        free = previous
                    return True
                queue.append(self.item_of_partner[candidate])
        self.exhausted.update(came_from)
        return False


# ---- how they are built ----


def _build_length(operand: Operand) -> Matcher:
    compiler = operand.compiler
    problems = len(compiler.problems)
    length = compiler.compile_nested(operand.value, operand.path, mode="equal", why_not_late="a length is a number")
    if len(compiler.problems) > problems:
        return compiler.placeholder
    if NUMBER not in length.kinds:
        return operand.refuse("a whole number or an operator on numbers", operand.suggest_number(operand.value))
    if reason := compiler.find_contradiction(Length(length)):
        return compiler.add_problem(operand.path, reason)
    return Length(length)


def _build_unordered(operand: Operand) -> Matcher:
    if is_list(operand.value) and not operand.value:
        return Unordered(())
    items = operand.compile_items("a list of items", in_items=True, why_not_late=SEARCHED)
    return Unordered(items) if items else operand.compiler.placeholder


KEYS = (
    Operator(
        name="$len",
        example={"$len": {"$gt": 1}},
        doc="the length of a string, list or mapping: a number or an operator on numbers",
        build=_build_length,
        operand_form=VALUE,
        synonyms=("$size", "$length", "$count"),
    ),
    Operator(
        name="$each",
        example={"$each": {"$gt": 0}},
        doc="every item of a list; an empty list passes only with `$len` beside it",
        build=lambda operand: Each(
            operand.compiler.compile_nested(operand.value, operand.path, in_items=True), "$len" in operand.siblings
        ),
        operand_form=VALUE,
        synonyms=("$every", "$items"),
    ),
    Operator(
        name="$unordered",
        example={"$unordered": [1, 2, 2]},
        doc="a list of exactly these items in any order",
        build=_build_unordered,
        operand_form=LIST,
        synonyms=("$set", "$multiset"),
    ),
)
