"""The built-in operators: their names, and what they mean in a word. How each is built is in `builders`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from evalkit.errors import find_nearest
from evalkit.jsonvalue import ARRAY, BOOLEAN, NUMBER, STRING, get_kind
from evalkit.model.template import strip_literals
from evalkit.operators.base import TYPE_NAMES, TYPES_INSTEAD, Matcher, Operand
from evalkit.operators.contradiction import find_contradiction
from evalkit.operators.dates import SameDate, parse_moment
from evalkit.operators.lists import Each, HasItem, Length, Unordered
from evalkit.operators.logic import Absent, AllOf, AnyOf, Not, OfType
from evalkit.operators.numbers import Approx, Between, Compared, is_finite
from evalkit.operators.text import Contains, Edge, Pattern, find_pattern_problem, format_pattern
from evalkit.operators.values import AnyValue
from evalkit.text.format import format_value


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

    return BUILDERS[operand.name](operand)


# The built-in operators: what each one's operand must be, and the matcher that comes of it.
#
# Imported when the first operator is compiled: most values of most cases are plain data.


def _suggest_true(operand: Operand) -> str:
    from evalkit.fields.reader import suggest_boolean

    advice = suggest_boolean(operand.value)
    return operand.format_advice(advice) if "true" in advice else ""


def _suggest_digits(operand: Operand, value: object) -> str:
    from evalkit.fields.reader import suggest_number

    return operand.format_advice(suggest_number(value))


def _suggest_quotes(operand: Operand) -> str:
    return operand.format_advice("quote it") if get_kind(operand.value) in (NUMBER, BOOLEAN) else ""


def _build_eq(operand: Operand) -> Matcher:
    return operand.compiler.compile_nested(operand.value, operand.path, mode="equal")


def _build_ne(operand: Operand) -> Matcher:
    return Not(operand.compiler.compile_nested(operand.value, operand.path, mode="equal"), "$ne")


def _build_not(operand: Operand) -> Matcher:
    return Not(operand.compiler.compile_nested(operand.value, operand.path))


def _build_any(operand: Operand) -> Matcher:
    if operand.value is True:
        return AnyValue()
    return operand.refuse("true", _suggest_true(operand) or "; to forbid an argument write {$absent: true}")


def _build_absent(operand: Operand) -> Matcher:
    if operand.compiler.in_items:
        return operand.compiler.add_problem(operand.path, "$absent is about a key; an item of a list is always there")
    if operand.value is True:
        return Absent()
    return operand.refuse("true", _suggest_true(operand) or "; to demand an argument write {$any: true}")


def _build_type(operand: Operand) -> Matcher:
    names = operand.value if get_kind(operand.value) == ARRAY else [operand.value]
    wrong = [name for name in names if name not in TYPE_NAMES]
    if names and not wrong:
        return OfType(tuple(names))
    name = _suggest_type(wrong[0]) if wrong else None
    return operand.refuse(f"one of {', '.join(TYPE_NAMES)}", f'; did you mean "{name}"?' if name else "")


def _suggest_type(name: object) -> str | None:
    return "null" if name is None else TYPES_INSTEAD.get(str(name).casefold()) or find_nearest(name, TYPE_NAMES)


def _build_pattern(operand: Operand) -> Matcher:
    if get_kind(operand.value) != STRING:
        return operand.refuse("a pattern, which is a string", _suggest_quotes(operand))
    if why := find_pattern_problem(operand.value):
        return operand.compiler.add_problem(operand.path, f"{operand.name} {format_pattern(operand.value)} {why}")
    return Pattern(operand.name, operand.value)


def _build_contains(operand: Operand) -> Matcher:
    value = strip_literals(operand.value)
    if value == "":
        return operand.refuse("a part that is not empty", ", which every text contains")
    if get_kind(value) == STRING:
        return Contains(operand.name, value)
    return HasItem(
        operand.compiler.compile_nested(operand.value, operand.path, mode="equal", in_items=True), operand.name
    )


def _build_edge(operand: Operand) -> Matcher:
    if get_kind(operand.value) != STRING or not operand.value:
        return operand.refuse("a string that is not empty", _suggest_quotes(operand))
    return Edge(operand.name, operand.value)


def _build_one_of(operand: Operand) -> Matcher:
    options = operand.compile_items("a list of alternatives")
    return AnyOf(options) if options else operand.compiler.placeholder


def _build_all_of(operand: Operand) -> Matcher:
    parts = operand.compile_items("a list of values that must all hold")
    return join_parts(operand, parts) if parts else operand.compiler.placeholder


def join_parts(operand: Operand, parts: tuple[Matcher, ...], *, one_mapping: bool = False) -> Matcher:
    """All of `parts`, which must be able to hold together."""
    if not operand.compiler.problems and (why := find_contradiction(parts)):
        return operand.compiler.add_problem(operand.path, why)
    return AllOf(parts, one_mapping)


def _build_approx(operand: Operand) -> Matcher:
    tolerances = operand.siblings.get("$abs"), operand.siblings.get("$rel")
    if not is_finite(operand.value):
        return operand.refuse("a number", _suggest_digits(operand, operand.value))
    for name, size in zip(("$abs", "$rel"), tolerances, strict=True):
        if name in operand.siblings and (size is None or not is_finite(size) or size < 0):
            place = (*operand.path[:-1], name)
            hint = _suggest_digits(operand, size)
            return operand.compiler.add_problem(
                place, f"{name} wants a number that is not negative, got {format_value(size)}{hint}"
            )
    return Approx(operand.value, *tolerances)


def _build_compared(operand: Operand) -> Matcher:
    if not is_finite(operand.value):
        return operand.refuse("a number", _suggest_digits(operand, operand.value))
    return Compared(operand.name, operand.value)


def _build_between(operand: Operand) -> Matcher:
    limits = operand.value
    if get_kind(limits) != ARRAY or len(limits) != 2 or not all(is_finite(limit) for limit in limits):
        hints = (
            [_suggest_digits(operand, limit) for limit in limits]
            if get_kind(limits) == ARRAY and len(limits) == 2
            else []
        )
        return operand.refuse("[low, high], two numbers", next(filter(None, hints), ""))
    if limits[0] > limits[1]:
        return operand.refuse("the lower number first")
    return Between(*limits)


def _build_len(operand: Operand) -> Matcher:
    compiler = operand.compiler
    before = len(compiler.problems)
    length = compiler.compile_nested(operand.value, operand.path, mode="equal")
    if len(compiler.problems) > before:
        return compiler.placeholder
    if NUMBER not in length.kinds:
        return operand.refuse("a whole number or an operator on numbers", _suggest_digits(operand, operand.value))
    if why := find_contradiction((Length(length), OfType(("string", "array", "object")))):
        return compiler.add_problem(operand.path, why)
    return Length(length)


def _build_each(operand: Operand) -> Matcher:
    compiler = operand.compiler
    return Each(
        compiler.compile_nested(operand.value, operand.path, in_items=True), may_be_empty="$len" in operand.siblings
    )


def _build_unordered(operand: Operand) -> Matcher:
    if get_kind(operand.value) == ARRAY and not operand.value:
        return Unordered(())
    items = operand.compile_items("a list of items", in_items=True)
    return Unordered(items) if items else operand.compiler.placeholder


def _build_date(operand: Operand) -> Matcher:
    if get_kind(operand.value) != STRING or parse_moment(operand.value) is None:
        return operand.refuse("an ISO 8601 date or date-time such as 2025-12-31 or 2025-12-31T23:59:00Z")
    return SameDate(operand.value)


BUILDERS: Final[dict[str, Callable[[Operand], Matcher]]] = {
    "$eq": _build_eq,
    "$ne": _build_ne,
    "$any": _build_any,
    "$absent": _build_absent,
    "$type": _build_type,
    "$regex": _build_pattern,
    "$search": _build_pattern,
    "$contains": _build_contains,
    "$icontains": _build_contains,
    "$starts_with": _build_edge,
    "$ends_with": _build_edge,
    "$one_of": _build_one_of,
    "$all_of": _build_all_of,
    "$not": _build_not,
    "$approx": _build_approx,
    "$gt": _build_compared,
    "$ge": _build_compared,
    "$lt": _build_compared,
    "$le": _build_compared,
    "$between": _build_between,
    "$len": _build_len,
    "$each": _build_each,
    "$unordered": _build_unordered,
    "$date": _build_date,
}
