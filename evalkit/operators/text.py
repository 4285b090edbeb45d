"""Matchers of texts: patterns under a time limit, parts, beginnings and ends. Case-sensitive unless they say `i`."""

from __future__ import annotations

from typing import Any

from evalkit.operators.equality import ARRAY, STRING, kind
from evalkit.operators.matcher import Matcher, Undecided
from evalkit.operators.patterns import compiled, pattern_shown, too_slow
from evalkit.operators.phrases import fold_case
from evalkit.operators.shown import WINDOW, shown, window

TIME_LIMIT_S = 1.0  # of one match; patterns of cases take microseconds, those that backtrack take forever

_given_up: set[tuple[str, str, int, int]] = set()  # so that a hopeless match is waited for once
_REMEMBERED = 1000


class Pattern(Matcher, frozen=True):
    """`$regex`: the whole string matches. `$search`: a part of it does."""

    name: str
    pattern: str

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({STRING})

    def holds(self, actual: Any) -> bool:
        if kind(actual) != STRING:
            return False
        key = (self.name, self.pattern, len(actual), hash(actual))
        expression = compiled(self.pattern)
        try:
            if key not in _given_up:
                find = expression.fullmatch if self.name == "$regex" else expression.search
                return find(actual, timeout=TIME_LIMIT_S) is not None
        except (TimeoutError, MemoryError):
            if len(_given_up) < _REMEMBERED:
                _given_up.add(key)
        raise Undecided(too_slow(self.name, self.pattern, len(actual), TIME_LIMIT_S))

    def wording(self) -> str:
        where = "that matches" if self.name == "$regex" else "with a part that matches"
        return f"a string {where} {pattern_shown(self.pattern)}"

    def written(self) -> Any:
        return {self.name: self.pattern}

    def hint(self, actual: Any) -> str:
        if self.name == "$regex" and Pattern("$search", self.pattern).matches(actual):
            return " (a part of it matches; that is $search, $regex wants the whole string)"
        return Matcher.hint(self, actual)


class Contains(Matcher, frozen=True):
    """`$contains`, `$icontains` with a text: a part of a string, or an item of a list."""

    name: str
    part: str

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({STRING, ARRAY})

    def holds(self, actual: Any) -> bool:
        of_kind = kind(actual)
        if of_kind == STRING:
            return self._fold(self.part) in self._fold(actual)
        part = self._fold(self.part)
        return of_kind == ARRAY and any(kind(item) == STRING and self._fold(item) == part for item in actual)

    def _fold(self, text: str) -> str:
        return fold_case(text) if self.name == "$icontains" else text

    def wording(self) -> str:
        case = ", in any case" if self.name == "$icontains" else ""
        return f"a string or list with {shown(self.part)} in it{case}"

    def written(self) -> Any:
        return {self.name: self.part}

    def hint(self, actual: Any) -> str:
        if self.name == "$contains" and Contains("$icontains", self.part).holds(actual):
            return " (it is there in another case)"
        return Matcher.hint(self, actual)


class Edge(Matcher, frozen=True):
    """`$starts_with`, `$ends_with`."""

    name: str
    text: str

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({STRING})

    def holds(self, actual: Any) -> bool:
        return kind(actual) == STRING and self._edge(actual) == self.text

    def _edge(self, actual: str) -> str:
        length = len(self.text)
        return str.__getitem__(actual, slice(length) if self.name == "$starts_with" else slice(-length, None))

    def wording(self) -> str:
        return f"a string that {self.name[1:].replace('_', ' ')} {shown(self.text)}"

    def written(self) -> Any:
        return {self.name: self.text}

    def wrong(self, actual: Any) -> str:
        if kind(actual) != STRING or len(actual) <= 4 * WINDOW:
            return Matcher.wrong(self, actual)
        end = len(self.text) if self.name == "$starts_with" else len(actual)
        return f"expected {self.describe()}, got {window(actual, end - len(self.text), end)}{self.hint(actual)}"

    def hint(self, actual: Any) -> str:
        if kind(actual) == STRING and fold_case(self._edge(actual)) == fold_case(self.text):
            return " (it does in another case)"
        return Matcher.hint(self, actual)
