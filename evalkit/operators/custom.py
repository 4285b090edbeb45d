"""Users' own operators: ``@evalkit.operator("even")`` makes ``{$even: ...}`` known."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from evalkit.errors import UsageError
from evalkit.jsonvalue import JsonValue
from evalkit.model.registry import OPERATORS
from evalkit.operators.base import Matcher, Undecided
from evalkit.operators.builtin import RESERVED_NAMES
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
    return OPERATORS.build_decorator(bare)


class Custom(Matcher, frozen=True):
    """A user's operator. Its function is looked up on each call, so that the matcher stays picklable."""

    name: str
    expected: Any

    def evaluate(self, actual: object) -> bool:
        return self._call_function(actual) is True

    def _call_function(self, actual: object) -> bool | str:
        function = OPERATORS.get(self.name)
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
