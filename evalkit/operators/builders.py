"""The built-in operators: what each one's operand must be, and the matcher that comes of it.

Imported when the first operator is compiled: most values of most cases are plain data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from evalkit.errors import nearest
from evalkit.model.template import plain
from evalkit.operators.contradiction import contradiction
from evalkit.operators.dates import SameDate, moment
from evalkit.operators.equality import ARRAY, BOOLEAN, NUMBER, STRING, kind
from evalkit.operators.lists import Each, HasItem, Length, Unordered
from evalkit.operators.logic import Absent, AllOf, Not, OfType, OneOf
from evalkit.operators.matcher import Matcher
from evalkit.operators.names import TYPE_NAMES, TYPES_INSTEAD
from evalkit.operators.numeric import Approx, Between, Compared, finite
from evalkit.operators.operand import Operand
from evalkit.operators.patterns import pattern_problem, pattern_shown
from evalkit.operators.shown import shown
from evalkit.operators.text import Contains, Edge, Pattern
from evalkit.operators.values import AnyValue


def _true_meant(operand: Operand) -> str:
    from evalkit.operators.advice import boolean_advice

    advice = boolean_advice(operand.value)
    return operand.advised(advice) if "true" in advice else ""


def _digits(operand: Operand, value: object) -> str:
    from evalkit.operators.advice import number_advice

    return operand.advised(number_advice(value))


def _quoted(operand: Operand) -> str:
    return operand.advised("quote it") if kind(operand.value) in (NUMBER, BOOLEAN) else ""


def _eq(operand: Operand) -> Matcher:
    return operand.compiler.under(operand.value, operand.path, mode="equal")


def _ne(operand: Operand) -> Matcher:
    return Not(operand.compiler.under(operand.value, operand.path, mode="equal"), "$ne")


def _not(operand: Operand) -> Matcher:
    return Not(operand.compiler.under(operand.value, operand.path))


def _any(operand: Operand) -> Matcher:
    if operand.value is True:
        return AnyValue()
    return operand.refuse("true", _true_meant(operand) or "; to forbid an argument write {$absent: true}")


def _absent(operand: Operand) -> Matcher:
    if operand.compiler.in_items:
        return operand.compiler.problem(operand.path, "$absent is about a key; an item of a list is always there")
    if operand.value is True:
        return Absent()
    return operand.refuse("true", _true_meant(operand) or "; to demand an argument write {$any: true}")


def _type(operand: Operand) -> Matcher:
    names = operand.value if kind(operand.value) == ARRAY else [operand.value]
    wrong = [name for name in names if name not in TYPE_NAMES]
    if names and not wrong:
        return OfType(tuple(names))
    name = _type_meant(wrong[0]) if wrong else None
    return operand.refuse(f"one of {', '.join(TYPE_NAMES)}", f'; did you mean "{name}"?' if name else "")


def _type_meant(name: object) -> str | None:
    return "null" if name is None else TYPES_INSTEAD.get(str(name).casefold()) or nearest(name, TYPE_NAMES)


def _pattern(operand: Operand) -> Matcher:
    if kind(operand.value) != STRING:
        return operand.refuse("a pattern, which is a string", _quoted(operand))
    if why := pattern_problem(operand.value):
        return operand.compiler.problem(operand.path, f"{operand.name} {pattern_shown(operand.value)} {why}")
    return Pattern(operand.name, operand.value)


def _contains(operand: Operand) -> Matcher:
    value = plain(operand.value)
    if value == "":
        return operand.refuse("a part that is not empty", ", which every text contains")
    if kind(value) == STRING:
        return Contains(operand.name, value)
    return HasItem(operand.compiler.under(operand.value, operand.path, mode="equal", in_items=True), operand.name)


def _edge(operand: Operand) -> Matcher:
    if kind(operand.value) != STRING or not operand.value:
        return operand.refuse("a string that is not empty", _quoted(operand))
    return Edge(operand.name, operand.value)


def _one_of(operand: Operand) -> Matcher:
    options = operand.items("a list of alternatives")
    return OneOf(options) if options else operand.compiler.nothing


def _all_of(operand: Operand) -> Matcher:
    parts = operand.items("a list of values that must all hold")
    return joined(operand, parts) if parts else operand.compiler.nothing


def joined(operand: Operand, parts: tuple[Matcher, ...], *, one_mapping: bool = False) -> Matcher:
    """All of `parts`, which must be able to hold together."""
    if not operand.compiler.problems and (why := contradiction(parts)):
        return operand.compiler.problem(operand.path, why)
    return AllOf(parts, one_mapping)


def _approx(operand: Operand) -> Matcher:
    tolerances = operand.beside.get("$abs"), operand.beside.get("$rel")
    if not finite(operand.value):
        return operand.refuse("a number", _digits(operand, operand.value))
    for name, size in zip(("$abs", "$rel"), tolerances, strict=True):
        if name in operand.beside and (size is None or not finite(size) or size < 0):
            place = (*operand.path[:-1], name)
            hint = _digits(operand, size)
            return operand.compiler.problem(
                place, f"{name} wants a number that is not negative, got {shown(size)}{hint}"
            )
    return Approx(operand.value, *tolerances)


def _compared(operand: Operand) -> Matcher:
    if not finite(operand.value):
        return operand.refuse("a number", _digits(operand, operand.value))
    return Compared(operand.name, operand.value)


def _between(operand: Operand) -> Matcher:
    bounds = operand.value
    if kind(bounds) != ARRAY or len(bounds) != 2 or not all(finite(bound) for bound in bounds):
        hints = [_digits(operand, bound) for bound in bounds] if kind(bounds) == ARRAY and len(bounds) == 2 else []
        return operand.refuse("[low, high], two numbers", next(filter(None, hints), ""))
    if bounds[0] > bounds[1]:
        return operand.refuse("the lower number first")
    return Between(*bounds)


def _len(operand: Operand) -> Matcher:
    compiler = operand.compiler
    before = len(compiler.problems)
    length = compiler.under(operand.value, operand.path, mode="equal")
    if len(compiler.problems) > before:
        return compiler.nothing
    if NUMBER not in length.kinds:
        return operand.refuse("a whole number or an operator on numbers", _digits(operand, operand.value))
    if why := contradiction((Length(length), OfType(("string", "array", "object")))):
        return compiler.problem(operand.path, why)
    return Length(length)


def _each(operand: Operand) -> Matcher:
    compiler = operand.compiler
    return Each(compiler.under(operand.value, operand.path, in_items=True), may_be_empty="$len" in operand.beside)


def _unordered(operand: Operand) -> Matcher:
    if kind(operand.value) == ARRAY and not operand.value:
        return Unordered(())
    items = operand.items("a list of items", in_items=True)
    return Unordered(items) if items else operand.compiler.nothing


def _date(operand: Operand) -> Matcher:
    if kind(operand.value) != STRING or moment(operand.value) is None:
        return operand.refuse("an ISO 8601 date or date-time such as 2025-12-31 or 2025-12-31T23:59:00Z")
    return SameDate(operand.value)


BUILDERS: Final[dict[str, Callable[[Operand], Matcher]]] = {
    "$eq": _eq,
    "$ne": _ne,
    "$any": _any,
    "$absent": _absent,
    "$type": _type,
    "$regex": _pattern,
    "$search": _pattern,
    "$contains": _contains,
    "$icontains": _contains,
    "$starts_with": _edge,
    "$ends_with": _edge,
    "$one_of": _one_of,
    "$all_of": _all_of,
    "$not": _not,
    "$approx": _approx,
    "$gt": _compared,
    "$ge": _compared,
    "$lt": _compared,
    "$le": _compared,
    "$between": _between,
    "$len": _len,
    "$each": _each,
    "$unordered": _unordered,
    "$date": _date,
}
