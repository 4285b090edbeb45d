"""The table of built-in operators, the names that people write instead of one, and users' own operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

from evalkit.errors import UsageError, did_you_mean, find_nearest
from evalkit.hooks import VALUE, find_owner, list_keys
from evalkit.hooks.key_table import KeyTable
from evalkit.jsonvalue import JsonValue
from evalkit.operators.base import LITERAL, MODIFIERS, Matcher, Operator, Undecided
from evalkit.records.registry import OPERATORS
from evalkit.text.format import cut, format_value

F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def operator(name: str) -> Callable[[F], F]:
    """Register ``fn(expected, actual) -> bool | str`` as the operator ``{$name: expected}``.

    True: the actual value is as expected. False or a text: it is not, and the text says why. `expected` is plain data
    (templates rendered, operators in it not interpreted). One that raises or returns something else makes the
    value mismatch with that as the reason. A built-in name is a UsageError.
    """
    bare = name.removeprefix("$") if isinstance(name, str) else name
    if not isinstance(bare, str) or not _NAME.fullmatch(bare):
        raise UsageError(
            f"evalkit.operator({name!r}): a name is letters, digits and _, beginning with a letter, as in "
            'evalkit.operator("even")'
        )
    if f"${bare}" in RESERVED_NAMES:
        raise UsageError(f"evalkit.operator({name!r}): ${bare} is built in; choose another name")
    if (owner := find_owner(VALUE, f"${bare}")) is not None:
        raise UsageError(f"evalkit.operator({name!r}): the feature '{owner}' has ${bare}; choose another name")
    return OPERATORS.build_decorator(bare)


class Custom(Matcher, frozen=True):
    """A user's operator. Its function is looked up on each call, so that the matcher stays picklable."""

    name: str
    expected: Any
    folder: str | None  # for which its name is looked up

    def evaluate(self, actual: object) -> bool:
        return self._call_function(actual) is True

    def _call_function(self, actual: object) -> bool | str:
        function = OPERATORS.get(self.name, self.folder)
        if function is None:
            raise Undecided(f"the operator ${self.name} is not registered in this process")
        try:
            answer = function(self.expected, actual)
        except Exception as error:
            raise Undecided(
                f"the operator ${self.name} raised {type(error).__name__}: {error} on {format_value(actual)}"
            ) from error
        if not isinstance(answer, (bool, str)):
            answer_text = format_value(answer)
            raise Undecided(f"the operator ${self.name} returned {answer_text}; it must return true, false or a text")
        return answer

    def describe_fully(self) -> str:
        return format_value({f"${self.name}": self.expected})

    def to_data(self) -> JsonValue:
        return {f"${self.name}": self.expected}

    def build_hint(self, actual: object) -> str:
        answer = self._call_function(actual)
        return f": {cut(answer)}" if isinstance(answer, str) and answer else ""


_LOGIC = "evalkit.operators.logic"
_TEXT = "evalkit.operators.text"
_NUMBERS = "evalkit.operators.numbers"
_LISTS = "evalkit.operators.lists"
_OPERATORS = {  # each with the module whose `KEYS` has it
    "$eq": _LOGIC,
    "$ne": _LOGIC,
    "$any": _LOGIC,
    "$absent": _LOGIC,
    "$default": _LOGIC,
    "$partial": _LOGIC,
    "$type": _LOGIC,
    "$regex": _TEXT,
    "$search": _TEXT,
    "$contains": _TEXT,
    "$icontains": _TEXT,
    "$starts_with": _TEXT,
    "$ends_with": _TEXT,
    "$one_of": _LOGIC,
    "$all_of": _LOGIC,
    "$not": _LOGIC,
    "$approx": _NUMBERS,
    "$gt": _NUMBERS,
    "$ge": _NUMBERS,
    "$lt": _NUMBERS,
    "$le": _NUMBERS,
    "$between": _NUMBERS,
    "$len": _LISTS,
    "$each": _LISTS,
    "$unordered": _LISTS,
    "$date": "evalkit.operators.dates",
    "$ip_address": _TEXT,
    "$similar": "evalkit.operators.similar",
}
OPERATOR_TABLE: Final[KeyTable[Operator]] = KeyTable(_OPERATORS, VALUE)
RESERVED_NAMES: Final = frozenset({*_OPERATORS, LITERAL, *MODIFIERS})

# What to write instead of a name of other tools that no operator has as a synonym: MongoDB, JSON Schema, Python.
_INSTEAD: Final[dict[str, str]] = {
    "$nin": "{$not: {$one_of: [...]}}",
    "$nor": "{$not: {$one_of: [...]}}",
    "$exists": "{$any: true} or {$absent: true}",
    "$optional": "{$default: value}, or {$one_of: [{$absent: true}, ...]}",
    "$raw": LITERAL,
}


@cache
def list_synonyms() -> dict[str, str]:
    """Return what to write instead of the names that people write for operators."""
    return {**{word: name for name, found in OPERATOR_TABLE.items() for word in found.synonyms}, **_INSTEAD}


def find_operator(name: str) -> Operator | None:
    """Return the operator that has this name, with its `$`: a built-in one, or one of a feature, which is loaded."""
    return OPERATOR_TABLE.find(name)


def list_operators() -> list[str]:
    """List every operator that an expected value may use, with its `$`: built-in ones, features', users' own."""
    return [*_OPERATORS, LITERAL, *list_keys(VALUE), *(f"${name}" for name in OPERATORS)]


def is_operator_name(key: str) -> bool:
    """Return whether there is an operator of this name, or a key that goes with one."""
    return key in RESERVED_NAMES or key[1:] in OPERATORS or find_owner(VALUE, key) is not None


def is_probable_operator(key: str) -> bool:
    """Return whether a key was written as an operator: one that exists, one of another tool, or nearly one."""
    return is_operator_name(key) or key in list_synonyms() or find_nearest(key, list_operators()) is not None


def suggest_operator(name: str) -> str:
    """Word what to write instead of an unknown operator, as the end of a message."""
    if name in list_synonyms():
        return f"; did you mean {list_synonyms()[name]}?"
    bare = name.removeprefix("$")
    elsewhere = OPERATORS.explain_elsewhere(bare, is_like=False)
    hint = elsewhere or did_you_mean(name, [*list_operators(), *MODIFIERS]) or OPERATORS.explain_elsewhere(bare)
    return hint or f"; known are {', '.join(list_operators())}; {{$literal: ...}} makes it data"
