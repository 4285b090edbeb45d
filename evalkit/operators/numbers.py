"""Operators of numbers. Booleans and numeric strings are not numbers; NaN is below, above and near nothing."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import TypeGuard

from evalkit.jsonvalue import NUMBER, JsonValue, is_list, is_number
from evalkit.operators.base import Matcher, Operand, Operator
from evalkit.text.format import format_value

SIGNS = {"$gt": ">", "$ge": "≥", "$lt": "<", "$le": "≤"}
_TESTS = {"$gt": operator.gt, "$ge": operator.ge, "$lt": operator.lt, "$le": operator.le}

DEFAULT_RELATIVE = Fraction(1, 10**6)
DEFAULT_ABSOLUTE = Fraction(1, 10**12)


class Numeric(Matcher, frozen=True):
    """Base of the matchers of numbers."""

    kinds = frozenset({NUMBER})


class Compared(Numeric, frozen=True):
    """`$gt`, `$ge`, `$lt` or `$le`."""

    name: str
    bound: int | float

    def evaluate(self, actual: object) -> bool:
        return is_number(actual) and _TESTS[self.name](actual, self.bound)

    def describe_fully(self) -> str:
        return f"a number {SIGNS[self.name]} {format_value(self.bound)}"

    def to_data(self) -> JsonValue:
        return {self.name: self.bound}


class Between(Numeric, frozen=True):
    """A number in the closed interval."""

    low: int | float
    high: int | float

    def evaluate(self, actual: object) -> bool:
        return is_number(actual) and bool(self.low <= actual <= self.high)

    def describe_fully(self) -> str:
        return f"a number from {format_value(self.low)} to {format_value(self.high)}"

    def to_data(self) -> JsonValue:
        return {"$between": [self.low, self.high]}


class Approx(Numeric, frozen=True):
    """A number at most `$abs` or `$rel` times the expected one away, whichever is more.

    With neither: as `pytest.approx`, a millionth of the expected number, and at least 1e-12. Numbers are compared as
    the decimals that are written, so that 3.13 is within 0.01 of 3.14, which binary fractions deny.
    """

    value: int | float
    absolute: int | float | None = None
    relative: int | float | None = None

    def evaluate(self, actual: object) -> bool:
        if not is_finite(actual):
            return False
        absolute, relative = _to_fraction(self.absolute or 0), _to_fraction(self.relative or 0)
        if self.absolute is None and self.relative is None:
            absolute, relative = DEFAULT_ABSOLUTE, DEFAULT_RELATIVE
        expected = _to_fraction(self.value)
        return abs(_to_fraction(actual) - expected) <= max(absolute, relative * abs(expected))

    def describe_fully(self) -> str:
        if self.relative is None and self.absolute is None:
            return f"approximately {format_value(self.value)}"
        words = [f"{format_value(self.absolute)}"] if self.absolute is not None else []
        words += [f"{format_value(self.relative)} of it"] if self.relative is not None else []
        return f"{format_value(self.value)} ± {' or '.join(words)}"

    def build_hint(self, actual: object) -> str:
        if not is_finite(actual):
            return Numeric.build_hint(self, actual)
        try:
            return f" ({float(abs(_to_fraction(actual) - _to_fraction(self.value))):g} away)"
        except OverflowError:
            return ""

    def to_data(self) -> JsonValue:
        pairs = {"$approx": self.value, "$abs": self.absolute, "$rel": self.relative}
        return {name: value for name, value in pairs.items() if value is not None}


def is_finite(value: object) -> TypeGuard[int | float]:
    """Return whether `value` is a number, and neither infinite nor NaN."""
    return is_number(value) and (isinstance(value, int) or math.isfinite(value))


def _to_fraction(value: int | float) -> Fraction:
    """Return the number as it is written: the shortest decimal that denotes it, not the binary fraction behind it."""
    return Fraction(int(value)) if isinstance(value, int) else Fraction(float.__repr__(value))


# ---- how they are built ----


def _build_compared(operand: Operand) -> Matcher:
    if not is_finite(operand.value):
        return operand.refuse("a number", operand.suggest_number(operand.value))
    return Compared(operand.name, operand.value)


def _build_between(operand: Operand) -> Matcher:
    limits = operand.value
    is_pair = is_list(limits) and len(limits) == 2
    if not is_pair or not all(is_finite(limit) for limit in limits):
        hints = [operand.suggest_number(limit) for limit in limits] if is_pair else []
        return operand.refuse("[low, high], two numbers", next(filter(None, hints), ""))
    if limits[0] > limits[1]:
        return operand.refuse("the lower number first")
    return Between(*limits)


def _build_approx(operand: Operand) -> Matcher:
    if not is_finite(operand.value):
        return operand.refuse("a number", operand.suggest_number(operand.value))
    for name in ("$abs", "$rel"):
        size = operand.siblings.get(name)
        if name in operand.siblings and (size is None or not is_finite(size) or size < 0):
            message = f"{name} wants a number that is not negative, got {format_value(size)}"
            place = (*operand.path[:-1], name)
            return operand.compiler.add_problem(place, message + operand.suggest_number(size))
    return Approx(operand.value, operand.siblings.get("$abs"), operand.siblings.get("$rel"))


KEYS = (
    Operator(
        name="$approx",
        example={"$approx": 3.14, "$abs": 0.01},
        doc="a number within `$abs` or `$rel` times the number, whichever is more",
        build=_build_approx,
        synonyms=("$close_to", "$near"),
    ),
    Operator(name="$gt", example={"$gt": 5}, doc="a greater number", build=_build_compared),
    Operator(
        name="$ge",
        example={"$ge": 5},
        doc="a number at least so great",
        build=_build_compared,
        synonyms=("$gte", "$min", "$minimum"),
    ),
    Operator(name="$lt", example={"$lt": 5}, doc="a smaller number", build=_build_compared),
    Operator(
        name="$le",
        example={"$le": 5},
        doc="a number at most so great",
        build=_build_compared,
        synonyms=("$lte", "$max", "$maximum"),
    ),
    Operator(
        name="$between",
        example={"$between": [1, 3]},
        doc="a number from low to high, both included",
        build=_build_between,
        synonyms=("$range",),
    ),
)
