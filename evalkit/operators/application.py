"""Operators in an expected value, which are mappings whose keys begin with `$`: what they are built into.

Most values have none; this module and the operators are imported for the first that has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalkit.errors import did_you_mean, nearest
from evalkit.model.registry import OPERATORS
from evalkit.model.template import TemplateError, plain
from evalkit.operators.builtin import BUILTIN, build
from evalkit.operators.equality import STRING, kind
from evalkit.operators.extension import Custom
from evalkit.operators.matcher import Matcher, Path
from evalkit.operators.names import INSTEAD, LITERAL, MODIFIERS
from evalkit.operators.operand import Deferred, Operand, has_template, operand_data

if TYPE_CHECKING:
    from evalkit.operators.compile import Compiler

ALL_NAMES = frozenset({*BUILTIN, LITERAL, *MODIFIERS})


def is_operator(compiler: Compiler, value: dict[str, Any], path: Path) -> bool:
    """Whether a mapping is an operator. A known operator among plain keys is a problem."""
    dollar = [key for key in value if key.startswith("$")]
    if not dollar or len(dollar) == len(value):
        return bool(dollar)
    meant = next((key for key in dollar if _is_meant(key)), None)
    if meant is not None:
        plain_key = next(key for key in value if not key.startswith("$"))
        compiler.problem((*path, meant), _beside(meant, plain_key), at_key=True)
    return False


def operator_matcher(compiler: Compiler, value: dict[str, Any], path: Path) -> Matcher:
    """The matcher of a mapping whose keys all begin with `$`. Several operators must all hold."""
    if LITERAL in value:
        if len(value) > 1:
            message = f"{LITERAL} stands alone: what is in it is data, and nothing can stand beside data"
            return compiler.problem((*path, LITERAL), message, at_key=True)
        return compiler.under(value[LITERAL], (*path, LITERAL), literal=True)
    parts = []
    for name in value:
        if name not in MODIFIERS:
            parts.append(_one_operator(compiler, name, value, (*path, name)))
        elif MODIFIERS[name] not in value:
            compiler.problem((*path, name), f"'{name}' goes with {MODIFIERS[name]}, which is not here", at_key=True)
    if len(parts) < 2:
        return parts[0] if parts else compiler.nothing
    from evalkit.operators.builders import joined

    return joined(Operand("", value, value, path, compiler), tuple(parts), one_mapping=True)


def _one_operator(compiler: Compiler, name: str, beside: dict[str, Any], path: Path) -> Matcher:
    value = beside[name]
    form = BUILTIN.get(name)
    if form is None and name[1:] not in OPERATORS:
        return compiler.problem(path, f"unknown operator '{name}'{_instead(name)}", at_key=True)
    if form is not None and (form.takes == "value" or (form.takes == "list" and kind(value) != STRING)):
        return build(Operand(name, value, beside, path, compiler))
    data = operand_data(value, path, compiler)
    modifiers = {key: operand_data(beside[key], (*path[:-1], key), compiler) for key in MODIFIERS if key in beside}
    if has_template(data) or has_template(modifiers):
        return Deferred(name, data, modifiers, compiler.mode)
    if form is None:
        return Custom(name[1:], plain(data))
    return build(Operand(name, plain(data), {**beside, **plain(modifiers)}, path, compiler))


def build_bound(deferred: Deferred, value: Any, beside: dict[str, Any]) -> Matcher:
    """The matcher of a deferred operator, now that its operand is known. A wrong operand is a TemplateError."""
    from evalkit.operators.compile import Compiler

    compiler = Compiler(deferred.mode)
    if deferred.name not in BUILTIN:
        return Custom(deferred.name[1:], plain(value))
    form = BUILTIN[deferred.name]
    operand = Operand(deferred.name, plain(value) if form.takes == "data" else value, beside, (), compiler)
    matcher = build(operand)
    if compiler.problems:
        raise TemplateError(f"{deferred.describe()}: {compiler.problems[0].message}")
    return matcher


def known_operators() -> list[str]:
    """Every operator that an expected value may use, with its `$`: the built-in ones, then users' own."""
    return [*BUILTIN, LITERAL, *(f"${name}" for name in OPERATORS)]


def _is_meant(key: str) -> bool:
    """Whether a key was written as an operator: it is one, or what people write instead, or nearly one."""
    return key in ALL_NAMES or key in INSTEAD or nearest(key, known_operators()) is not None


def _beside(operator: str, plain_key: str) -> str:
    if operator not in ALL_NAMES and operator[1:] not in OPERATORS:
        return f"unknown operator '{operator}' beside the plain key '{plain_key}'{_instead(operator)}"
    return (
        f"the operator '{operator}' stands beside the plain key '{plain_key}'; "
        "take one of them out, or write {$literal: {...}} if both are data"
    )


def _instead(name: str) -> str:
    if name in INSTEAD:
        return f"; did you mean {INSTEAD[name]}?"
    near = did_you_mean(name, [*known_operators(), *MODIFIERS])
    return near or f"; known are {', '.join(known_operators())}; {{$literal: ...}} makes it data"
