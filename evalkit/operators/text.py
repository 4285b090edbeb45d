"""Matchers of texts: patterns under a time limit, parts, beginnings and ends. Case-sensitive unless they say `i`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from evalkit.operators.difference import numeric_hint, type_hint
from evalkit.operators.equality import ARRAY, STRING, json_equal, kind
from evalkit.operators.matcher import Matcher, Undecided
from evalkit.operators.phrases import fold_case
from evalkit.operators.shown import WINDOW, shown, window

if TYPE_CHECKING:
    import regex

TIME_LIMIT_S = 1.0  # of one match; patterns of cases take microseconds, those that backtrack take forever

_timed_out: dict[tuple[str, str, str], bool] = {}  # so that a hopeless match is waited for once
_REMEMBERED = 1000


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> regex.Pattern[str]:
    """The compiled pattern. Raises `regex.error` for one that does not parse."""
    import regex

    return regex.compile(pattern)


def pattern_problem(pattern: str) -> str:
    """What is wrong with a pattern, or "" if nothing is."""
    import regex

    try:
        compiled(pattern)
    except regex.error as error:
        return f"is no valid pattern: {error}"
    return ""


@dataclass(frozen=True, slots=True)
class Pattern(Matcher):
    """`$regex`: the whole string matches. `$search`: a part of it does."""

    name: str
    pattern: str

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({STRING})

    def holds(self, actual: Any) -> bool:
        if kind(actual) != STRING:
            return False
        key = (self.name, self.pattern, actual)
        if _timed_out and key in _timed_out:
            raise Undecided(self._too_slow(actual))
        expression = compiled(self.pattern)
        try:
            find = expression.fullmatch if self.name == "$regex" else expression.search
            return find(actual, timeout=TIME_LIMIT_S) is not None
        except TimeoutError:
            if len(_timed_out) < _REMEMBERED:
                _timed_out[key] = True
            raise Undecided(self._too_slow(actual)) from None

    def _too_slow(self, actual: str) -> str:
        return (
            f"{self.name} {shown(self.pattern)} gave up after {TIME_LIMIT_S:g} s on a text of {len(actual)} "
            "characters; simplify the pattern (nested repetitions like (a+)+ are the usual cause)"
        )

    def describe(self) -> str:
        where = "that matches" if self.name == "$regex" else "with a part that matches"
        return f"a string {where} {shown(self.pattern)}"

    def written(self) -> Any:
        return {self.name: self.pattern}

    def wrong(self, actual: Any) -> str:
        message = f"expected {self.describe()}, got {shown(actual)}"
        if kind(actual) != STRING:
            return message + _not_text(actual)
        if self.name == "$regex" and Pattern("$search", self.pattern).matches(actual):
            return f"{message} (a part matches; $regex is about the whole string, $search about a part)"
        return message


@dataclass(frozen=True, slots=True)
class Contains(Matcher):
    """`$contains`, `$icontains`: a part of a string, or an item of a list."""

    name: str
    part: Any

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({STRING, ARRAY} if kind(self.part) == STRING else {ARRAY})

    def holds(self, actual: Any) -> bool:
        of_kind = kind(actual)
        if of_kind == STRING and kind(self.part) == STRING:
            return self._fold(self.part) in self._fold(actual)
        if of_kind == ARRAY:
            return any(self._same(item) for item in actual)
        return False

    def _same(self, item: Any) -> bool:
        if kind(item) == kind(self.part) == STRING:
            return bool(self._fold(item) == self._fold(self.part))
        return json_equal(self.part, item)

    def _fold(self, text: str) -> str:
        return fold_case(text) if self.name == "$icontains" else text

    def describe(self) -> str:
        case = " in any case" if self.name == "$icontains" else ""
        if kind(self.part) == STRING:
            return f"a string or list with {shown(self.part)} in it{case}"
        return f"a list with the item {shown(self.part)}"

    def written(self) -> Any:
        return {self.name: self.part}

    def wrong(self, actual: Any) -> str:
        message = f"expected {self.describe()}, got {shown(actual)}"
        if kind(actual) == kind(self.part) == STRING:
            other = self.name == "$contains" and fold_case(self.part) in fold_case(actual)
            return message + (" (it is there in another case)" if other else "")
        return message + type_hint(self.part, actual)


@dataclass(frozen=True, slots=True)
class Edge(Matcher):
    """`$starts_with`, `$ends_with`."""

    name: str
    text: str

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({STRING})

    def holds(self, actual: Any) -> bool:
        if kind(actual) != STRING:
            return False
        return str.startswith(actual, self.text) if self.name == "$starts_with" else str.endswith(actual, self.text)

    def describe(self) -> str:
        return f"a string that {self.name[1:].replace('_', ' ')} {shown(self.text)}"

    def written(self) -> Any:
        return {self.name: self.text}

    def wrong(self, actual: Any) -> str:
        if kind(actual) != STRING:
            return f"expected {self.describe()}, got {shown(actual)}{_not_text(actual)}"
        reach = len(self.text)
        first, last = (0, reach) if self.name == "$starts_with" else (max(0, len(actual) - reach), len(actual))
        edge = actual[first:last]
        hint = " (in another case)" if fold_case(edge) == fold_case(self.text) else ""
        part = shown(actual) if len(actual) <= 2 * WINDOW else window(actual, first, last)
        return f"expected {self.describe()}, got {part}{hint}"


def _not_text(actual: Any) -> str:
    return numeric_hint(actual, wanted=STRING)
