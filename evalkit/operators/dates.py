"""`$date`: the same instant or the same day, however it is written.

The actual text must say at least as much as the expected one, and agree with it:

- expected a day (``2025-12-31``): that day, or any time on it, on the calendar that the actual text itself uses;
- expected a time without an offset: that wall-clock time, with any offset or none;
- expected a time with an offset: that instant, written in any offset, but not without one.

ISO 8601 calendar dates are read, extended (``2025-12-31T23:59:00+01:00``) and basic (``20251231T235900Z``), with a
space or a lower-case letter where RFC 3339 allows one. ``24:00`` is the end of the day. Fractions of a second
count exactly. Week dates and ordinal dates are not read.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

from msgspec import Struct

from evalkit.jsonvalue import STRING, JsonValue, is_string
from evalkit.operators.base import Matcher, Operand, Operator

_DAY_S = 86_400
_FORM = re.compile(
    r"(\d{4})(-?)(\d\d)\2(\d\d)"
    r"(?:[Tt ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?)?"
    r"(?: ?([Zz])|([+-])(\d\d)(?::?(\d\d))?)?)?",
    re.ASCII,
)


class Moment(Struct, frozen=True):
    """A date or date-time: a day, and perhaps a wall-clock time on it and an offset.

    `day` is the proleptic Gregorian ordinal, `second` counts from midnight, `fraction` are the decimal digits of the
    second without trailing zeros, `offset` is in seconds east of UTC.
    """

    day: int
    second: int | None = None
    fraction: str = ""
    offset: int | None = None

    def is_consistent_with(self, expected: Moment) -> bool:
        """Return whether this moment says at least as much as `expected`, and agrees with it."""
        if expected.second is None:
            return self.day == expected.day
        if self.second is None or self.fraction != expected.fraction:
            return False
        if expected.offset is None:
            return self._count_wall_seconds() == expected._count_wall_seconds()
        if self.offset is None:
            return False
        return self._count_wall_seconds() - self.offset == expected._count_wall_seconds() - expected.offset

    def _count_wall_seconds(self) -> int:
        return self.day * _DAY_S + (self.second or 0)


@lru_cache(maxsize=4096)
def parse_moment(text: str) -> Moment | None:
    """Read the date or date-time that `text` denotes; None if it denotes none."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    year, _, month, of_month, hour, minute, second, fraction, zulu, sign, off_hours, off_minutes = match.groups()
    try:
        day = date(int(year), int(month), int(of_month)).toordinal()
    except ValueError:
        return None
    if hour is None:
        return Moment(day)
    time = (int(hour), int(minute or 0), int(second or 0))
    digits = (fraction or "").rstrip("0")
    offset = 0 if zulu else None  # seconds east of UTC
    if sign is not None:
        hours, minutes = int(off_hours or 0), int(off_minutes or 0)
        if hours > 23 or minutes > 59:
            return None
        offset = (hours * 3600 + minutes * 60) * (-1 if sign == "-" else 1)
    end_of_day = time == (24, 0, 0) and not digits
    if time[1] > 59 or time[2] > 59 or (time[0] > 23 and not end_of_day):
        return None
    whole_days, rest = divmod(time[0] * 3600 + time[1] * 60 + time[2], _DAY_S)
    return Moment(day + whole_days, rest, digits, offset)


class SameDate(Matcher, frozen=True):
    """`$date`: a text that denotes the same instant or day."""

    text: str
    kinds = frozenset({STRING})

    def evaluate(self, actual: object) -> bool:
        if not is_string(actual):
            return False
        actual_moment, expected_moment = parse_moment(actual), parse_moment(self.text)
        if actual_moment is None or expected_moment is None:
            return False
        return actual_moment.is_consistent_with(expected_moment)

    def describe_fully(self) -> str:
        expected_moment = parse_moment(self.text)
        if expected_moment is None or expected_moment.second is None:
            return f"the date {self.text}"
        noun = "time" if expected_moment.offset is None else "instant"
        return f"the {noun} {self.text}"

    def to_data(self) -> JsonValue:
        return {"$date": self.text}

    def build_hint(self, actual: object) -> str:
        if not is_string(actual):
            return Matcher.build_hint(self, actual)
        actual_moment, expected_moment = parse_moment(actual), parse_moment(self.text)
        if actual_moment is None or expected_moment is None:
            return " (it is no ISO 8601 date or date-time)"
        if expected_moment.second is not None and actual_moment.second is None:
            return " (it is a day, without a time)"
        if expected_moment.offset is not None and actual_moment.offset is None:
            return " (it has no offset, so it names no instant)"
        return ""


def _build_date(operand: Operand) -> Matcher:
    if not is_string(operand.value) or parse_moment(operand.value) is None:
        return operand.refuse("an ISO 8601 date or date-time such as 2025-12-31 or 2025-12-31T23:59:00Z")
    return SameDate(operand.value)


KEYS = (
    Operator(
        name="$date",
        example={"$date": "2025-12-31"},
        doc="an ISO date or date-time that denotes the same instant or day",
        build=_build_date,
        synonyms=("$datetime",),
    ),
)
