"""Matchers of numbers. Booleans and numeric strings are not numbers; NaN is below, above and near nothing."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any

from evalkit.operators.equality import NUMBER, kind
from evalkit.operators.matcher import Matcher
from evalkit.operators.shown import shown

SIGNS = {"$gt": ">", "$ge": "≥", "$lt": "<", "$le": "≤"}
_TESTS = {"$gt": operator.gt, "$ge": operator.ge, "$lt": operator.lt, "$le": operator.le}

DEFAULT_RELATIVE = Fraction(1, 10**6)
DEFAULT_ABSOLUTE = Fraction(1, 10**12)


class Numeric(Matcher, frozen=True):
    """What matchers of numbers share."""

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({NUMBER})


class Compared(Numeric, frozen=True):
    """`$gt`, `$ge`, `$lt` or `$le`."""

    name: str
    bound: int | float

    def holds(self, actual: Any) -> bool:
        return kind(actual) == NUMBER and _TESTS[self.name](actual, self.bound)

    def wording(self) -> str:
        return f"a number {SIGNS[self.name]} {shown(self.bound)}"

    def written(self) -> Any:
        return {self.name: self.bound}


class Between(Numeric, frozen=True):
    """A number in the closed interval."""

    low: int | float
    high: int | float

    def holds(self, actual: Any) -> bool:
        return kind(actual) == NUMBER and bool(self.low <= actual <= self.high)

    def wording(self) -> str:
        return f"a number from {shown(self.low)} to {shown(self.high)}"

    def written(self) -> Any:
        return {"$between": [self.low, self.high]}


class Approx(Numeric, frozen=True):
    """A number at most `$abs` or `$rel` times the expected one away, whichever is more.

    With neither: as `pytest.approx`, a millionth of the expected number, and at least 1e-12. Numbers are compared as
    the decimals that are written, so that 3.13 is within 0.01 of 3.14, which binary fractions deny.
    """

    value: int | float
    absolute: int | float | None = None
    relative: int | float | None = None

    def holds(self, actual: Any) -> bool:
        if not finite(actual):
            return False
        return abs(_exact(actual) - _exact(self.value)) <= self._tolerance()

    def _tolerance(self) -> Fraction:
        if self.absolute is None and self.relative is None:
            return max(DEFAULT_ABSOLUTE, DEFAULT_RELATIVE * abs(_exact(self.value)))
        return max(_exact(self.absolute or 0), _exact(self.relative or 0) * abs(_exact(self.value)))

    def wording(self) -> str:
        if self.relative is None and self.absolute is None:
            return f"approximately {shown(self.value)}"
        words = [f"{shown(self.absolute)}"] if self.absolute is not None else []
        words += [f"{shown(self.relative)} of it"] if self.relative is not None else []
        return f"{shown(self.value)} ± {' or '.join(words)}"

    def hint(self, actual: Any) -> str:
        if not finite(actual):
            return Numeric.hint(self, actual)
        try:
            return f" ({float(abs(_exact(actual) - _exact(self.value))):g} away)"
        except OverflowError:
            return ""

    def written(self) -> Any:
        pairs = {"$approx": self.value, "$abs": self.absolute, "$rel": self.relative}
        return {name: value for name, value in pairs.items() if value is not None}


def finite(value: Any) -> bool:
    """Whether `value` is a number, and neither infinite nor NaN."""
    return kind(value) == NUMBER and (isinstance(value, int) or math.isfinite(value))


def _exact(value: int | float) -> Fraction:
    """The number as it is written: the shortest decimal that denotes it, not the binary fraction behind it."""
    return Fraction(int(value)) if isinstance(value, int) else Fraction(float.__repr__(value))
