"""The table of built-in operators, and the names that people write instead of one."""

from __future__ import annotations

from typing import Final

from evalkit.errors import did_you_mean, find_nearest
from evalkit.model.registry import OPERATORS
from evalkit.operators import dates, lists, logic, numbers, text
from evalkit.operators.base import LITERAL, MODIFIERS, Operator

BUILTIN_OPERATORS: Final[dict[str, Operator]] = {
    operator.name: operator
    for operator in (
        *logic.VALUE_OPERATORS,
        *text.TEXT_OPERATORS,
        *logic.LOGIC_OPERATORS,
        *numbers.NUMBER_OPERATORS,
        *lists.LIST_OPERATORS,
        *dates.DATE_OPERATORS,
        *text.ADDRESS_OPERATORS,
    )
}
RESERVED_NAMES: Final = frozenset({*BUILTIN_OPERATORS, LITERAL, *MODIFIERS})

# What to write instead of a name that evalkit does not have. From MongoDB, JSON Schema, Python and other tools.
INSTEAD: Final[dict[str, str]] = {
    **{synonym: name for name, operator in BUILTIN_OPERATORS.items() for synonym in operator.synonyms},
    "$nin": "{$not: {$one_of: [...]}}",
    "$nor": "{$not: {$one_of: [...]}}",
    "$exists": "{$any: true} or {$absent: true}",
    "$optional": "{$one_of: [{$absent: true}, ...]}",
    "$raw": LITERAL,
}


def list_operators() -> list[str]:
    """List every operator that an expected value may use, with its `$`: the built-in ones, then users' own."""
    return [*BUILTIN_OPERATORS, LITERAL, *(f"${name}" for name in OPERATORS)]


def is_probable_operator(key: str) -> bool:
    """Return whether a key was written as an operator: one that exists, one of another tool, or nearly one."""
    return key in RESERVED_NAMES or key in INSTEAD or find_nearest(key, list_operators()) is not None


def suggest_operator(name: str) -> str:
    """Word what to write instead of an unknown operator, as the end of a message."""
    if name in INSTEAD:
        return f"; did you mean {INSTEAD[name]}?"
    hint = did_you_mean(name, [*list_operators(), *MODIFIERS])
    return hint or f"; known are {', '.join(list_operators())}; {{$literal: ...}} makes it data"
