"""Operands: what stands behind an operator's name, its templates, and how a wrong one is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalkit.model.template import Literal, Template, TemplateError, parse_template, render_templates, strip_literals
from evalkit.operators.equality import ARRAY, OBJECT, STRING, get_kind
from evalkit.operators.matcher import KeyPath, Matcher, Resolve, Undecided
from evalkit.operators.names import LITERAL
from evalkit.operators.shown import format_value

if TYPE_CHECKING:
    from evalkit.operators.compile import Compiler


class Operand(Struct, frozen=True):
    """One operator as written: its name and operand, the operators beside it, and where it stands."""

    name: str
    value: Any
    siblings: dict[str, Any]
    path: KeyPath
    compiler: Compiler

    def refuse(self, requirement: str, hint: str = "") -> Matcher:
        """Record that the operand should have been something else."""
        return self.compiler.add_problem(
            self.path, f"{self.name} wants {requirement}, got {format_value(strip_literals(self.value))}{hint}"
        )

    def format_advice(self, advice: str) -> str:
        """`advice` as the end of a message; none where the operand came of a template, and so was not written."""
        return f"; {advice}" if advice and self.path else ""

    def compile_items(self, requirement: str, *, in_items: bool | None = None) -> tuple[Matcher, ...]:
        """The operand's items compiled; empty, with a problem recorded, if it is no list or an empty one."""
        literal = type(self.value) is Literal
        value = self.value.value if literal else self.value
        if get_kind(value) != ARRAY or not value:
            self.refuse(requirement)
            return ()
        return tuple(
            self.compiler.compile_nested(item, (*self.path, index), literal=literal, in_items=in_items)
            for index, item in enumerate(value)
        )


def parse_operand(value: Any, path: KeyPath, compiler: Compiler) -> Any:
    """An operand that is data: `$literal` unwrapped, strings with templates parsed into Templates."""
    if type(value) is Literal:
        return value.value
    of_kind = get_kind(value)
    if of_kind == STRING and not isinstance(value, Template):
        try:
            return parse_template(value)
        except TemplateError as error:
            compiler.add_problem(path, str(error))
    elif of_kind == OBJECT:
        if len(value) == 1 and LITERAL in value:
            return value[LITERAL]
        return {key: parse_operand(item, (*path, key), compiler) for key, item in value.items()}
    elif of_kind == ARRAY:
        return [parse_operand(item, (*path, index), compiler) for index, item in enumerate(value)]
    return value


def has_template(value: Any) -> bool:
    """Whether a Template stands anywhere in `value`."""
    if isinstance(value, dict):
        return any(has_template(item) for item in value.values())
    if isinstance(value, list):
        return any(has_template(item) for item in value)
    return isinstance(value, Template)


class Deferred(Matcher, frozen=True):
    """An operator whose operand holds templates: compiled once `bind` has put values in their place."""

    name: str
    value: Any  # with Template objects in it
    modifiers: dict[str, Any]
    mode: str

    @property
    def has_templates(self) -> bool:
        return True

    def evaluate(self, actual: Any) -> bool:
        raise Undecided(f"the template in {self.describe()} has no value yet")

    def describe_fully(self) -> str:
        return format_value(self.to_data())

    def to_data(self) -> Any:
        return {self.name: _restore_templates(self.value), **_restore_templates(self.modifiers)}

    def bind(self, resolve: Resolve) -> Matcher:
        from evalkit.operators.application import build_deferred

        if self.name in ("$regex", "$search"):
            pattern = strip_literals(
                render_templates(self.value, lambda reference: _escape_pattern(resolve(reference)))
            )
            return build_deferred(self, pattern, {})
        modifiers = strip_literals(render_templates(self.modifiers, resolve))
        return build_deferred(self, render_templates(self.value, resolve), modifiers)


def _escape_pattern(value: Any) -> str:
    """What a template in a pattern stands for matches itself: an address's dot is no wildcard."""
    import regex

    return regex.escape(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _restore_templates(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _restore_templates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restore_templates(item) for item in value]
    return str(value) if isinstance(value, Template) else value
