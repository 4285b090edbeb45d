"""The built-in operators: their names, and what they mean in a word. How each is built is in `builders`."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from evalkit.operators.matcher import Matcher
from evalkit.operators.names import TYPE_NAMES
from evalkit.operators.operand import Operand


class OperatorForm(Struct, frozen=True):
    """What an operator's operand is. `takes`: `data` (templates in it defer the operator), `list` or `value` of
    matchers.
    """

    takes: str
    doc: str


BUILTIN_OPERATORS: Final[dict[str, OperatorForm]] = {
    "$eq": OperatorForm("value", "the same JSON value; in `arguments_contain` it turns the substring rule off"),
    "$ne": OperatorForm("value", "any other JSON value"),
    "$any": OperatorForm("data", "present, with any value"),
    "$absent": OperatorForm("data", "not sent"),
    "$type": OperatorForm("data", f"a value of a JSON type: {', '.join(TYPE_NAMES)}; 5.0 is an integer"),
    "$regex": OperatorForm("data", "the whole string matches the pattern"),
    "$search": OperatorForm("data", "the pattern matches anywhere in the string"),
    "$contains": OperatorForm("list", "a part of a string, or an item of a list"),
    "$icontains": OperatorForm("list", "as `$contains`, upper and lower case alike"),
    "$starts_with": OperatorForm("data", "the string begins so"),
    "$ends_with": OperatorForm("data", "the string ends so"),
    "$one_of": OperatorForm("list", "at least one of these values or operators"),
    "$all_of": OperatorForm("list", "all of these values or operators"),
    "$not": OperatorForm("value", "anything but this value or operator"),
    "$approx": OperatorForm("data", "a number within `$abs` or `$rel` times the number, whichever is more"),
    "$gt": OperatorForm("data", "a greater number"),
    "$ge": OperatorForm("data", "a number at least so great"),
    "$lt": OperatorForm("data", "a smaller number"),
    "$le": OperatorForm("data", "a number at most so great"),
    "$between": OperatorForm("data", "a number from low to high, both included"),
    "$len": OperatorForm("value", "the length of a string, list or mapping: a number or an operator on numbers"),
    "$each": OperatorForm("value", "every item of a list; an empty list passes only with `$len` beside it"),
    "$unordered": OperatorForm("list", "a list of exactly these items in any order"),
    "$date": OperatorForm("data", "an ISO date or date-time that denotes the same instant or day"),
}


def build_operator(operand: Operand) -> Matcher:
    """The matcher of the operator that `operand.name` names, one of BUILTIN."""
    from evalkit.operators.builders import BUILDERS

    return BUILDERS[operand.name](operand)
