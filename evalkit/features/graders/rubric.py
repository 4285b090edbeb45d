"""Criteria in words that models grade: what a case may say of one, and when a grade meets it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from evalkit.errors import EvalkitError, KeyPath, did_you_mean
from evalkit.jsonvalue import JsonDict, JsonValue, describe_value
from evalkit.records.template import Template

RUBRIC_KEYS: Final = ("rubric", "scale", "at_least", "panel", "quote")
MAJORITY, ALL = "majority", "all"
_PANELS: Final = (MAJORITY, ALL)
_SCALE = r"\s*(-?\d{1,4})\s*\.\.\s*(-?\d{1,4})\s*"
_SCALE_FORM = "a scale such as 1..5"


class RubricError(EvalkitError):
    """A criterion that can't be read. `path` leads to what is wrong with it; `at_key`: to its key."""

    def __init__(self, message: str, path: KeyPath = (), *, at_key: bool = False) -> None:
        super().__init__(message)
        self.path = path
        self.at_key = at_key


class Rubric(Struct, frozen=True, kw_only=True):
    """A criterion. Without a `scale` it is met or not; with one, a score of `at_least` meets it.

    `panel` says how many of several graders must say so, `quote` that a grade has to quote what decided.
    """

    text: str | Template
    scale: tuple[int, int] | None = None
    at_least: int | None = None
    panel: str = MAJORITY
    quote: bool = False

    def is_score_enough(self, score: int) -> bool:
        """Return whether a score of the scale meets the criterion."""
        return self.at_least is not None and score >= self.at_least

    def count_votes(self, votes: Sequence[bool]) -> bool:
        """Return whether the votes of a panel meet the criterion. A tie of a majority does not."""
        return all(votes) if self.panel == ALL else 2 * sum(votes) > len(votes)

    def format_scale(self) -> str:
        """Return ``1..5``; "" without a scale."""
        return "" if self.scale is None else f"{self.scale[0]}..{self.scale[1]}"

    def describe(self) -> str:
        """Return the words, with the scale: what tells a criterion from others when graders are measured."""
        return name_criterion(str(self.text), self.to_data())

    def to_data(self) -> JsonValue:
        """Return the criterion as a case says it: a text, or a mapping if there is more to say."""
        data: JsonDict = {"rubric": str(self.text)}
        if self.scale is not None:
            data |= {"scale": self.format_scale(), "at_least": self.at_least}
        if self.panel != MAJORITY:
            data["panel"] = self.panel
        if self.quote:
            data["quote"] = True
        return data if len(data) > 1 else str(self.text)


def name_criterion(words: str, data: JsonValue) -> str:
    """Return the words of a criterion, with the scale that its `data` have, if these are more than words."""
    if not isinstance(data, dict) or "scale" not in data:
        return words
    return f"{words} ({data['scale']}, at least {data.get('at_least')})"


def parse_rubric(data: object) -> Rubric:
    """Read a criterion: words, or a mapping with `rubric`. Raises RubricError."""
    if isinstance(data, (str, Template)):
        return Rubric(text=_read_words(data, ()))
    if not isinstance(data, dict) or not data:
        raise RubricError(f"a criterion in words, or a mapping with 'rubric', got {describe_value(data)}")
    for key in data:
        if key not in RUBRIC_KEYS:
            hint = did_you_mean(key, RUBRIC_KEYS) or f"; known are {', '.join(RUBRIC_KEYS)}"
            raise RubricError(f"unknown key '{key}' of a criterion{hint}", (str(key),), at_key=True)
    if "rubric" not in data:
        raise RubricError(f"'{next(iter(data))}' stands without 'rubric', which says in words what is graded")
    scale = _read_scale(data["scale"]) if "scale" in data else None
    panel, quote = data.get("panel", MAJORITY), data.get("quote", False)
    if panel not in _PANELS:
        raise RubricError(f"'panel' is majority or all, got {describe_value(panel)}", ("panel",))
    if not isinstance(quote, bool):
        raise RubricError(f"'quote' is true or false, got {describe_value(quote)}", ("quote",))
    text = _read_words(data["rubric"], ("rubric",))
    return Rubric(text=text, scale=scale, at_least=_read_at_least(data, scale), panel=panel, quote=quote)


def _read_words(value: object, path: KeyPath) -> str | Template:
    if isinstance(value, Template):
        return value
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise RubricError(f"a criterion in words, got {describe_value(value)}", path)


def _read_scale(value: object) -> tuple[int, int]:
    match = re.fullmatch(_SCALE, value) if isinstance(value, str) else None
    ends = [int(match[1]), int(match[2])] if match else value
    if not isinstance(ends, list) or len(ends) != 2 or any(type(end) is not int for end in ends):
        raise RubricError(f"'scale' is {_SCALE_FORM}, got {describe_value(value)}", ("scale",))
    low, high = ends
    if not 0 < high - low <= 100:
        raise RubricError(f"'scale' is {_SCALE_FORM}, of 2 to 101 points, got {describe_value(value)}", ("scale",))
    return low, high


def _read_at_least(data: JsonDict, scale: tuple[int, int] | None) -> int | None:
    value = data.get("at_least")
    if scale is None:
        if "at_least" in data:
            raise RubricError("'at_least' needs 'scale', such as 1..5", ("at_least",), at_key=True)
        return None
    low, high = scale
    if type(value) is int and low < value <= high:
        return value
    why = f", which every score reaches: the lowest is {low}" if value == low else ""
    got = describe_value(value) if "at_least" in data else "nothing"
    path: KeyPath = ("at_least",) if "at_least" in data else ("scale",)
    raise RubricError(f"'at_least' is a whole number from {low + 1} to {high}, got {got}{why}", path)
