"""Operands: what stands behind an operator's name, its templates, and how a wrong one is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalkit.model.template import Literal, Template, TemplateError, parse, plain, render
from evalkit.operators.equality import ARRAY, OBJECT, STRING, kind
from evalkit.operators.matcher import Matcher, Path, Resolve, Undecided
from evalkit.operators.names import LITERAL
from evalkit.operators.shown import shown

if TYPE_CHECKING:
    from evalkit.operators.compile import Compiler


class Operand(Struct, frozen=True):
    """One operator as written: its name and operand, the operators beside it, and where it stands."""

    name: str
    value: Any
    beside: dict[str, Any]
    path: Path
    compiler: Compiler

    def refuse(self, wants: str, hint: str = "") -> Matcher:
        """Record that the operand should have been something else."""
        return self.compiler.problem(self.path, f"{self.name} wants {wants}, got {shown(plain(self.value))}{hint}")

    def advised(self, advice: str) -> str:
        """`advice` as the end of a message; none where the operand came of a template, and so was not written."""
        return f"; {advice}" if advice and self.path else ""

    def items(self, wants: str, *, in_items: bool | None = None) -> tuple[Matcher, ...]:
        """The operand's items compiled; empty, with a problem recorded, if it is no list or an empty one."""
        literal = type(self.value) is Literal
        value = self.value.value if literal else self.value
        if kind(value) != ARRAY or not value:
            self.refuse(wants)
            return ()
        return tuple(
            self.compiler.under(item, (*self.path, index), literal=literal, in_items=in_items)
            for index, item in enumerate(value)
        )


def operand_data(value: Any, path: Path, compiler: Compiler) -> Any:
    """An operand that is data: `$literal` unwrapped, strings with templates parsed into Templates."""
    if type(value) is Literal:
        return value.value
    of_kind = kind(value)
    if of_kind == STRING and not isinstance(value, Template):
        try:
            return parse(value)
        except TemplateError as error:
            compiler.problem(path, str(error))
    elif of_kind == OBJECT:
        if len(value) == 1 and LITERAL in value:
            return value[LITERAL]
        return {key: operand_data(item, (*path, key), compiler) for key, item in value.items()}
    elif of_kind == ARRAY:
        return [operand_data(item, (*path, index), compiler) for index, item in enumerate(value)]
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
    beside: dict[str, Any]
    mode: str

    @property
    def has_templates(self) -> bool:
        return True

    def holds(self, actual: Any) -> bool:
        raise Undecided(f"the template in {self.describe()} has no value yet")

    def wording(self) -> str:
        return shown(self.written())

    def written(self) -> Any:
        return {self.name: _unparsed(self.value), **_unparsed(self.beside)}

    def bind(self, resolve: Resolve) -> Matcher:
        from evalkit.operators.application import build_bound

        if self.name in ("$regex", "$search"):
            pattern = plain(render(self.value, lambda reference: _escaped(resolve(reference))))
            return build_bound(self, pattern, {})
        beside = plain(render(self.beside, resolve))
        return build_bound(self, render(self.value, resolve), beside)


def _escaped(value: Any) -> str:
    """What a template in a pattern stands for matches itself: an address's dot is no wildcard."""
    import regex

    return regex.escape(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _unparsed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unparsed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unparsed(item) for item in value]
    return str(value) if isinstance(value, Template) else value
