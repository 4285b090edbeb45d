"""Rates in percent, exact from the option's text to the printed line."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from evalkit.errors import UsageError

_MOST_NAMES = 10


def parse_percentage(text: str, name: str = "min_pass_rate") -> Fraction:
    """A rate in percent as an exact number. UsageError for what is no percentage, and for 0.99 written for 99."""
    number = str(text).strip().removesuffix("%").rstrip()
    value = Fraction(number) if all(part.isdecimal() for part in number.split(".", 1)) else None
    if value is None or value > 100:
        raise UsageError(f"{name}: {text!r} is not a percentage; write a number from 0 to 100, such as 99 or 99.5")
    if 0 < value <= 1:
        raise UsageError(
            f"{name}: {text} is in percent, and {format_rate(value)} is hardly meant; write {format_number(value * 100)}"
        )
    return value


def format_number(number: Fraction) -> str:
    """A number in decimal, cut (not rounded) after two places: 99.996 must not read as 100."""
    hundredths = number.numerator * 100 // number.denominator
    text = f"{hundredths // 100}.{hundredths % 100:02d}"
    return text.rstrip("0").rstrip(".")


def format_rate(number: Fraction) -> str:
    return f"{format_number(number)} %"


def join_names(ids: Sequence[str]) -> str:
    """The first few of `ids`, and how many more there are."""
    rest = f" and {len(ids) - _MOST_NAMES} more" if len(ids) > _MOST_NAMES else ""
    return ", ".join(ids[:_MOST_NAMES]) + rest


def format_case_count(number: int) -> str:
    return f"{number} case" if number == 1 else f"{number} cases"
