"""Matchers of texts: patterns under a time limit, parts, beginnings and ends. Case-sensitive unless they say `i`."""

from __future__ import annotations

from typing import Any

from evalkit.operators.equality import ARRAY, STRING, get_kind
from evalkit.operators.matcher import Matcher, Undecided
from evalkit.operators.patterns import compile_pattern, explain_timeout, format_pattern
from evalkit.operators.phrases import fold_case
from evalkit.operators.shown import WINDOW_SIZE, format_value, format_window

TIME_LIMIT_S = 1.0  # of one match; patterns of cases take microseconds, those that backtrack take forever

_timeouts: set[tuple[str, str, int, int]] = set()  # so that a hopeless match is waited for once
_MAX_GIVEN_UP = 1000


class Pattern(Matcher, frozen=True):
    """`$regex`: the whole string matches. `$search`: a part of it does."""

    name: str
    pattern: str

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({STRING})

    def evaluate(self, actual: Any) -> bool:
        if get_kind(actual) != STRING:
            return False
        key = (self.name, self.pattern, len(actual), hash(actual))
        expression = compile_pattern(self.pattern)
        try:
            if key not in _timeouts:
                find = expression.fullmatch if self.name == "$regex" else expression.search
                return find(actual, timeout=TIME_LIMIT_S) is not None
        except (TimeoutError, MemoryError):
            if len(_timeouts) < _MAX_GIVEN_UP:
                _timeouts.add(key)
        raise Undecided(explain_timeout(self.name, self.pattern, len(actual), TIME_LIMIT_S))

    def describe_fully(self) -> str:
        relation = "that matches" if self.name == "$regex" else "with a part that matches"
        return f"a string {relation} {format_pattern(self.pattern)}"

    def to_data(self) -> Any:
        return {self.name: self.pattern}

    def build_hint(self, actual: Any) -> str:
        if self.name == "$regex" and Pattern("$search", self.pattern).is_match(actual):
            return " (a part of it matches; that is $search, $regex wants the whole string)"
        return Matcher.build_hint(self, actual)


class Contains(Matcher, frozen=True):
    """`$contains`, `$icontains` with a text: a part of a string, or an item of a list."""

    name: str
    part: str

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({STRING, ARRAY})

    def evaluate(self, actual: Any) -> bool:
        of_kind = get_kind(actual)
        if of_kind == STRING:
            return self._fold(self.part) in self._fold(actual)
        part = self._fold(self.part)
        return of_kind == ARRAY and any(get_kind(item) == STRING and self._fold(item) == part for item in actual)

    def _fold(self, text: str) -> str:
        return fold_case(text) if self.name == "$icontains" else text

    def describe_fully(self) -> str:
        case = ", in any case" if self.name == "$icontains" else ""
        return f"a string or list with {format_value(self.part)} in it{case}"

    def to_data(self) -> Any:
        return {self.name: self.part}

    def build_hint(self, actual: Any) -> str:
        if self.name == "$contains" and Contains("$icontains", self.part).evaluate(actual):
            return " (it is there in another case)"
        return Matcher.build_hint(self, actual)


class Edge(Matcher, frozen=True):
    """`$starts_with`, `$ends_with`."""

    name: str
    text: str

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({STRING})

    def evaluate(self, actual: Any) -> bool:
        return get_kind(actual) == STRING and self._cut_edge(actual) == self.text

    def _cut_edge(self, actual: str) -> str:
        length = len(self.text)
        return str.__getitem__(actual, slice(length) if self.name == "$starts_with" else slice(-length, None))

    def describe_fully(self) -> str:
        return f"a string that {self.name[1:].replace('_', ' ')} {format_value(self.text)}"

    def to_data(self) -> Any:
        return {self.name: self.text}

    def describe_mismatch(self, actual: Any) -> str:
        if get_kind(actual) != STRING or len(actual) <= 4 * WINDOW_SIZE:
            return Matcher.describe_mismatch(self, actual)
        end = len(self.text) if self.name == "$starts_with" else len(actual)
        return f"expected {self.describe()}, got {format_window(actual, end - len(self.text), end)}{self.build_hint(actual)}"

    def build_hint(self, actual: Any) -> str:
        if get_kind(actual) == STRING and fold_case(self._cut_edge(actual)) == fold_case(self.text):
            return " (it does in another case)"
        return Matcher.build_hint(self, actual)
