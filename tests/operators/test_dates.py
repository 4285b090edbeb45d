"""Dates: the same instant or the same day, however it is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.operators.compile import compile_value
from evalkit.operators.dates import Moment, parse_moment

DATES: list[tuple[str, str, bool]] = [
    # a day is that day, or any time on it, as the actual text itself counts days
    ("2025-12-31", "2025-12-31", True),
    ("2025-12-31", "20251231", True),
    ("20251231", "2025-12-31", True),
    ("2025-12-31", "2025-12-31T00:00:00Z", True),
    ("2025-12-31", "2025-12-31 23:59", True),
    ("2025-12-31", "2025-12-31T23:30:00-05:00", True),
    ("2025-12-31", "2026-01-01T00:30:00+01:00", False),
    ("2025-12-31", "2025-12-30T24:00:00Z", True),
    ("2025-12-31", "2025-12-30", False),
    # an instant is the same in every offset
    ("2025-12-31T10:00:00Z", "2025-12-31T10:00:00Z", True),
    ("2025-12-31T10:00:00Z", "2025-12-31T11:00:00+01:00", True),
    ("2025-12-31T10:00:00Z", "2025-12-31T11:00+0100", True),
    ("2025-12-31T10:00:00Z", "2025-12-31T11+01", True),
    ("2025-12-31T10:00:00Z", "2025-12-31T08-02", True),
    ("2025-12-31T10:00:00Z", "2026-01-01T09:00:00+23:00", True),
    ("2025-12-31T10:00:00Z", "2025-12-30T10:01:00-23:59", True),
    ("2025-12-31T10:00:00Z", "2025-12-31t10:00:00z", True),
    ("2025-12-31T10:00:00Z", "2025-12-31 10:00:00 Z", True),
    ("2025-12-31T10:00:00Z", "20251231T100000Z", True),
    ("2025-12-31T10:00:00Z", "2025-12-31T10:00:00.000Z", True),
    ("2025-12-31T10:00:00Z", "2025-12-31T10:00:00,5Z", False),
    ("2025-12-31T10:00:00.5Z", "2025-12-31T10:00:00.500000000Z", True),
    ("2025-12-31T10:00:00.123456789Z", "2025-12-31T10:00:00.123456788Z", False),
    ("2025-12-31T10:00:00Z", "2025-12-31T10:00:01Z", False),
    ("2025-12-31T10:00:00Z", "2025-12-31T10:00:00+01:00", False),
    ("2025-12-31T23:30:00-05:00", "2026-01-01T04:30:00Z", True),
    ("2025-12-31T10:00:00-00:00", "2025-12-31T10:00:00Z", True),
    ("0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00+01:00", True),
    ("9999-12-31T24:00:00Z", "9999-12-31T23:00:00-01:00", True),
    # less is said than was expected
    ("2025-12-31T10:00:00Z", "2025-12-31", False),
    ("2025-12-31T10:00:00Z", "2025-12-31T10:00:00", False),
    ("2025-12-31T10:00", "2025-12-31", False),
    # without an offset: a time on the clock
    ("2025-12-31T10:00", "2025-12-31T10:00:00", True),
    ("2025-12-31T10:00", "2025-12-31T10:00:00+05:00", True),
    ("2025-12-31T10:00", "2025-12-31T10:00:01", False),
]


@pytest.mark.parametrize(("expected", "actual", "same"), DATES)
def test_dates_agree_when_the_actual_text_says_what_was_expected(expected: str, actual: str, same: bool) -> None:
    matcher = compile_value({"$date": expected}, mode="equal")
    assert matcher.is_match(actual) is same
    assert (matcher.explain(actual) == []) is same


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "soon",
            "31.12.2025",
            "2025-13-01",
            "2025-02-29",
            "2025-2-9",
            "2025-12",
            "2025",
            "0000-01-01",
            "2025-1231",
        ),
        *("202512-31", "2025-12-31T", "2025-12-31T25:00", "2025-12-31T24:01", "2025-12-31T24:00:00.5Z", "2025-W01-1"),
        *(
            "2025-12-31T10:60",
            "2025-12-31T10:00:60Z",
            "2025-12-31T10:00+24:00",
            "2025-12-31T10:00+01:60",
            " 2025-12-31",
        ),
        *("2025-12-31Z", "2025-12-31x10:00", "2025-12-31T10:00:00 UTC", "٢٠٢٥-12-31", "1767139200", "2025-12-31\n"),
    ],
)
def test_what_is_no_iso_date_denotes_nothing(text: str) -> None:
    assert parse_moment(text) is None


def test_a_moment_counts_days_and_seconds() -> None:
    assert parse_moment("0001-01-02T01:02:03.450+01:30") == Moment(2, 3723, "45", 5400)


offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
datetimes: Any = st.datetimes(datetime(1000, 1, 3), datetime(9998, 12, 30), timezones=offsets)


@given(datetimes, offsets, st.integers(-1, 1))
def test_instants_agree_with_the_standard_library(expected: datetime, zone: timezone, seconds: int) -> None:
    actual = expected.astimezone(zone) + timedelta(seconds=seconds)
    matcher = compile_value({"$date": expected.isoformat()}, mode="equal")
    assert matcher.is_match(actual.isoformat()) == (actual == expected)
    assert matcher.is_match(actual.astimezone(UTC).isoformat().replace("+00:00", "Z")) == (actual == expected)
