"""Dates, times and numbers as people write them: every reading of a text, for `grounded`.

An ambiguous text has several readings (03/04/2025 is a day in March and one in April; 1.234 is more than
a thousand, or a little more than one). To be traceable, one common reading is enough. Texts come folded (`fold_text`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import NamedTuple

Span = tuple[int, int]


class Notation(NamedTuple):
    """A stretch of text and what it can mean: one of its readings, or all of its pieces, each of them by itself."""

    span: Span
    readings: frozenset[object]
    pieces: frozenset[object] = frozenset()  # "12 345" is a number, or 12 and 345


# Month names by number, as they stand in dates: English, Polish, German, French, Spanish, Italian, Portuguese, Dutch.
_MONTH_NAMES = (
    "january jan stycznia styczeń januar jänner janvier enero gennaio janeiro januari",
    "february feb lutego luty februar février febrero febbraio fevereiro februari",
    "march mar marca marzec märz mars marzo março maart",
    "april apr kwietnia kwiecień avril abril aprile",
    "may maja maj mai mayo maggio maio mei",
    "june jun czerwca czerwiec juni juin junio giugno junho",
    "july jul lipca lipiec juli juillet julio luglio julho",
    "august aug sierpnia sierpień août agosto augustus",
    "september sep sept września wrzesień septembre septiembre settembre setembro",
    "october oct października październik oktober octobre octubre ottobre outubro",
    "november nov listopada listopad novembre noviembre novembro",
    "december dec grudnia grudzień dezember décembre diciembre dicembre dezembro",
)
_MONTHS = {name: number for number, names in enumerate(_MONTH_NAMES, 1) for name in names.split()}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))

_DATE = re.compile(
    r"(?<![\w])(?:"
    r"(?P<y1>\d{4})([-./])(?P<m1>\d{1,2})\2(?P<d1>\d{1,2})"
    r"|(?P<a>\d{1,2})([-./])(?P<b>\d{1,2})\6(?P<y2>\d{4})"
    rf"|(?P<d3>\d{{1,2}})(?:st|nd|rd|th|\.)?[ -](?:of |de )?(?P<m3>{_MONTH})\.?,?[ -](?:de )?(?P<y3>\d{{4}})"
    rf"|(?P<m4>{_MONTH})\.? (?P<d4>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y4>\d{{4}})"
    r")(?:t(?=\d\d:)|(?!\d))"  # as in 2025-12-31T17:30
)
_TIME = re.compile(
    r"(?<![\d:.])(?P<h>\d{1,2})(?::(?P<m>\d{2})(?::(?P<s>\d{2})(?:\.\d+)?)?(?: ?(?P<ap>[ap])\.?m\b\.?)?"
    r"|(?: ?(?P<ap2>[ap])\.?m\b\.?))(?: ?(?:z\b|utc\b|gmt\b|[+-]\d{2}:?\d{2}))?(?!\d)"
)
_NUMBER = re.compile(
    r"(?<![\w.,])(?P<sign>(?<!\S)[-\u2212])?(?P<n>\d{1,3}(?:[ ']\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)*)(?!\d)"
)
_MAX_DIGITS = 100  # digits; what is longer is no number that anybody calculates with


def find_dates(text: str) -> list[Notation]:
    """Every date in `text`, day, month and year, with the days it can mean."""
    notations = []
    for match in _DATE.finditer(text):
        readings = frozenset(day for day in _read_days(match) if day)
        if readings:
            notations.append(Notation(match.span(), readings))
    return notations


def _read_days(match: re.Match[str]) -> Iterator[date | None]:
    part = match.groupdict()
    if part["y1"]:
        yield _make_day(part["y1"], part["m1"], part["d1"])
    elif part["y2"]:
        yield _make_day(part["y2"], part["b"], part["a"])
        yield _make_day(part["y2"], part["a"], part["b"])
    elif part["y3"]:
        yield _make_day(part["y3"], str(_MONTHS[part["m3"]]), part["d3"])
    else:
        yield _make_day(part["y4"], str(_MONTHS[part["m4"]]), part["d4"])


def _make_day(year: str, month: str, day: str) -> date | None:
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        return None


def find_times(text: str) -> list[Notation]:
    """Every time of day in `text`, as (hour, minute, second). Time zones are not compared."""
    notations = []
    for match in _TIME.finditer(text):
        hour, half = int(match["h"]), match["ap"] or match["ap2"]
        if half:
            if not 1 <= hour <= 12:
                continue
            hour = hour % 12 + (12 if half == "p" else 0)
        minute, second = int(match["m"] or 0), int(match["s"] or 0)
        if hour < 24 and minute < 60 and second < 60:
            notations.append(Notation(match.span(), frozenset({(hour, minute, second)})))
    return notations


def find_numbers(text: str) -> list[Notation]:
    """Every number in `text` that is not part of a word, with its sign and every reading of its separators."""
    notations = []
    for match in _NUMBER.finditer(text):
        # Exact: arithmetic on a Decimal would round it to the precision of the context.
        parts = re.split("[ ']", match["n"])
        readings = _read_signed("".join(parts), match["sign"])
        pieces = {reading for part in parts for reading in _read_signed(part, match["sign"])} if len(parts) > 1 else ()
        if readings or pieces:
            notations.append(Notation(match.span(), readings, frozenset(pieces)))
    return notations


def _read_signed(digits: str, sign: str | None) -> frozenset[object]:
    return frozenset(number.copy_negate() if sign else number for number in _read_digits(digits))


def _read_digits(digits: str) -> Iterator[Decimal]:
    """What a run of digits and separators can mean. Leading zeros make an identifier, which is no number."""
    if len(digits) > _MAX_DIGITS:
        return
    if len(digits) > 1 and digits[0] == "0" and digits[1] not in ".,":
        return
    groups = re.split("[.,]", digits)
    marks = [character for character in digits if character in ".,"]
    if not marks:
        yield Decimal(digits)
        return
    thousands = all(len(group) == 3 for group in groups[1:]) and len(groups[0]) <= 3 and len(set(marks)) == 1
    if thousands:
        yield Decimal("".join(groups))
    if len(marks) == 1:
        yield Decimal(f"{groups[0]}.{groups[1]}")
    elif marks[-1] not in marks[:-1] and len(set(marks[:-1])) == 1 and all(len(group) == 3 for group in groups[1:-1]):
        yield Decimal(f"{''.join(groups[:-1])}.{groups[-1]}")
