"""Matchers of values, mappings and lists: the three ways in which an expectation without operators is held."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from evalkit.model.template import Template, render
from evalkit.operators.assignment import maximum_matching
from evalkit.operators.difference import missing_key, type_hint, unexpected_key, value_differences
from evalkit.operators.equality import ARRAY, KINDS, OBJECT, STRING, json_equal, kind
from evalkit.operators.matcher import MISSING, UNEXPECTED, WRONG, Matcher, Mismatch, Path, Resolve, Undecided
from evalkit.operators.phrases import find_words, fold_text
from evalkit.operators.shown import WINDOW, shown, window

_SHOWN_DIFFERENCES = 100  # of one value; more help nobody, and an enormous list has millions


@dataclass(frozen=True, slots=True, eq=False)
class Equal(Matcher):
    """The same JSON value. `has_nan`: somewhere in it, so that `==` can't be trusted to refuse."""

    value: Any
    has_nan: bool = False

    def __eq__(self, other: object) -> bool:
        return type(other) is Equal and json_equal(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]  # the value may be a mapping

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({kind(self.value)})

    def holds(self, actual: Any) -> bool:
        # `==` is several times faster, and what it calls different is different, but for NaN. It can't accept:
        # it takes true for 1, and an object may call itself equal to anything.
        if not self.has_nan:
            try:
                if self.value != actual:
                    return False
            except Exception:
                return json_equal(self.value, actual)
        return json_equal(self.value, actual)

    matches = holds

    def differences(self, actual: Any, path: Path) -> list[Mismatch]:
        found = value_differences(self.value, actual, path)
        listed = list(islice(found, _SHOWN_DIFFERENCES))
        if next(found, None) is not None:
            listed.append(
                Mismatch(path, WRONG, f"differs in more than {_SHOWN_DIFFERENCES} places", self.value, actual)
            )
        return listed

    def describe(self) -> str:
        return shown(self.value)

    def written(self) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class Words(Matcher):
    """A text that contains `text`, by the rule of `arguments_contain` (`evalkit.operators.phrases`)."""

    text: str
    folded: str

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({STRING})

    def holds(self, actual: Any) -> bool:
        return kind(actual) == STRING and (actual == self.text or find_words(fold_text(actual), self.folded) >= 0)

    def equals(self, actual: Any) -> bool:
        return json_equal(self.text, actual)

    def describe(self) -> str:
        return f"a text that contains {shown(self.text)}"

    def written(self) -> Any:
        return self.text

    def wrong(self, actual: Any) -> str:
        if kind(actual) != STRING:
            return f"expected {self.describe()}, got {shown(actual)}{type_hint(self.text, actual)}"
        folded = fold_text(actual)
        inside = folded.find(self.folded)
        if inside >= 0:
            end = inside + len(self.folded)
            return f"expected {self.describe()}, got {window(folded, inside, end)} (only inside a longer word)"
        if len(actual) <= 4 * WINDOW:
            return f"expected {self.describe()}, got {shown(actual)}"
        at, length = _nearest_place(folded, self.folded)
        return f"expected {self.describe()}, got {window(folded, at, at + length)}"


def _nearest_place(text: str, phrase: str) -> tuple[int, int]:
    """Where the longest beginning of `phrase` stands in `text`, and its length."""
    low, high = 0, len(phrase)
    while low < high:  # a beginning is found wherever a longer one is, so halving is enough
        middle = (low + high + 1) // 2
        if phrase[:middle] in text:
            low = middle
        else:
            high = middle - 1
    return text.find(phrase[:low]), low


@dataclass(frozen=True, slots=True)
class Mapping(Matcher):
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
        if not self.matches(actual):
            return False
        listed = dict(self.items)
        return len(actual.keys() - listed.keys()) == 0 and all(
            item.equals(actual[key]) for key, item in self.items if key in actual
        )

    def differences(self, actual: Any, path: Path) -> list[Mismatch]:
        if kind(actual) != OBJECT:
            return [self.mismatch(actual, path)]
        found: list[Mismatch] = []
        listed = dict(self.items)
        for key, item in self.items:
            if key in actual:
                found += item.explain(actual[key], (*path, key))
            elif not item.accepts_absence:
                found.append(missing_key((*path, key), item.written(), item.describe(), actual, listed))
        if self.closed:
            found += [unexpected_key(path, key, actual[key], listed) for key in actual if key not in listed]
        return found

    def describe(self) -> str:
        inner = ", ".join(f"{shown(key)}: {item.describe()}" for key, item in self.items)
        return f"{{{inner}}}" if self.closed else f"a mapping with {{{inner}}}"

    def written(self) -> Any:
        return {key: item.written() for key, item in self.items}

    def wrong(self, actual: Any) -> str:
        hint = type_hint({}, actual)
        return f"expected {self.describe()}, got {shown(actual)}{hint}"

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, items=tuple((key, item.bind(resolve)) for key, item in self.items))


@dataclass(frozen=True, slots=True)
class Items(Matcher):
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
        found: list[Mismatch] = []
        for index, (item, value) in enumerate(zip(self.items, actual, strict=False)):
            found += item.explain(value, (*path, index))
        for index in range(len(actual), len(self.items)):
            item = self.items[index]
            found.append(Mismatch((*path, index), MISSING, f"missing, expected {item.describe()}", item.written()))
        for index in range(len(self.items), len(actual)):
            message = f"not expected, got {shown(actual[index])}"
            found.append(Mismatch((*path, index), UNEXPECTED, message, None, actual[index]))
        return found

    def describe(self) -> str:
        return f"[{', '.join(item.describe() for item in self.items)}]"

    def written(self) -> Any:
        return [item.written() for item in self.items]

    def wrong(self, actual: Any) -> str:
        return f"expected {self.describe()}, got {shown(actual)}{type_hint([], actual)}"

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, items=tuple(item.bind(resolve) for item in self.items))


@dataclass(frozen=True, slots=True)
class Pending(Matcher):
    """A string with templates in it. Nothing matches before `bind` has put a value in its place."""

    template: Template
    mode: str

    @property
    def has_templates(self) -> bool:
        return True

    @property
    def kinds(self) -> frozenset[str]:
        return KINDS

    def holds(self, actual: Any) -> bool:
        raise Undecided(f"the template {shown(str(self.template))} has no value yet")

    def describe(self) -> str:
        return f"the value of {shown(str(self.template))}"

    def written(self) -> Any:
        return str(self.template)

    def bind(self, resolve: Resolve) -> Matcher:
        from evalkit.operators.compile import compile_rendered

        return compile_rendered(render(self.template, resolve), self.mode)


def pairing(items: tuple[Matcher, ...], actual: list[Any]) -> list[int | None]:
    """For each matcher the index of the value it is paired with, as many as possible, each value at most once."""
    return maximum_matching([[at for at, value in enumerate(actual) if item.holds(value)] for item in items])
