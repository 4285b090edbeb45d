"""The built-in operators: their names, and what they mean in a word. How each is built is in `builders`."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from evalkit.operators.matcher import Matcher
from evalkit.operators.names import TYPE_NAMES
from evalkit.operators.operand import Operand


class Form(Struct, frozen=True):
    """What an operator's operand is. `takes`: `data` (templates in it defer the operator), `list` or `value` of
    matchers.
    """

    takes: str
    doc: str


BUILTIN: Final[dict[str, Form]] = {
    "$eq": Form("value", "the same JSON value; in `arguments_contain` it turns the substring rule off"),
    "$ne": Form("value", "any other JSON value"),
    "$any": Form("data", "present, with any value"),
    "$absent": Form("data", "not sent"),
    "$type": Form("data", f"a value of a JSON type: {', '.join(TYPE_NAMES)}; 5.0 is an integer"),
    "$regex": Form("data", "the whole string matches the pattern"),
    "$search": Form("data", "the pattern matches anywhere in the string"),
    "$contains": Form("list", "a part of a string, or an item of a list"),
    "$icontains": Form("list", "as `$contains`, upper and lower case alike"),
    "$starts_with": Form("data", "the string begins so"),
    "$ends_with": Form("data", "the string ends so"),
    "$one_of": Form("list", "at least one of these values or operators"),
    "$all_of": Form("list", "all of these values or operators"),
    "$not": Form("value", "anything but this value or operator"),
    "$approx": Form("data", "a number within `$abs` or `$rel` times the number, whichever is more"),
    "$gt": Form("data", "a greater number"),
    "$ge": Form("data", "a number at least so great"),
    "$lt": Form("data", "a smaller number"),
    "$le": Form("data", "a number at most so great"),
    "$between": Form("data", "a number from low to high, both included"),
    "$len": Form("value", "the length of a string, list or mapping: a number or an operator on numbers"),
    "$each": Form("value", "every item of a list; an empty list passes only with `$len` beside it"),
    "$unordered": Form("list", "a list of exactly these items in any order"),
    "$date": Form("data", "an ISO date or date-time that denotes the same instant or day"),
}


def build(operand: Operand) -> Matcher:
    """The matcher of the operator that `operand.name` names, one of BUILTIN."""
    from evalkit.operators.builders import BUILDERS

    return BUILDERS[operand.name](operand)
