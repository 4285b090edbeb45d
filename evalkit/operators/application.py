"""Operators in an expected value, which are mappings whose keys begin with `$`: what they are built into.

Most values have none; this module and the operators are imported for the first that has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalkit.errors import did_you_mean, find_nearest
from evalkit.model.registry import OPERATORS
from evalkit.model.template import TemplateError, strip_literals
from evalkit.operators.builtin import BUILTIN_OPERATORS, build_operator
from evalkit.operators.equality import STRING, get_kind
from evalkit.operators.extension import Custom
from evalkit.operators.matcher import KeyPath, Matcher
from evalkit.operators.names import INSTEAD, LITERAL, MODIFIERS
from evalkit.operators.operand import Deferred, Operand, has_template, parse_operand

if TYPE_CHECKING:
    from evalkit.operators.compile import Compiler

ALL_NAMES = frozenset({*BUILTIN_OPERATORS, LITERAL, *MODIFIERS})


def is_operator_mapping(compiler: Compiler, value: dict[str, Any], path: KeyPath) -> bool:
    """Whether a mapping is an operator. A known operator among plain keys is a problem."""
    operator_keys = [key for key in value if key.startswith("$")]
    if not operator_keys or len(operator_keys) == len(value):
        return bool(operator_keys)
    operator_key = next((key for key in operator_keys if _is_probable_operator(key)), None)
    if operator_key is not None:
        plain_key = next(key for key in value if not key.startswith("$"))
        compiler.add_problem((*path, operator_key), _explain_mixed_keys(operator_key, plain_key), at_key=True)
    return False


def compile_operators(compiler: Compiler, value: dict[str, Any], path: KeyPath) -> Matcher:
    """The matcher of a mapping whose keys all begin with `$`. Several operators must all hold."""
    if LITERAL in value:
        if len(value) > 1:
            message = f"{LITERAL} stands alone: what is in it is data, and nothing can stand beside data"
            return compiler.add_problem((*path, LITERAL), message, at_key=True)
        return compiler.compile_nested(value[LITERAL], (*path, LITERAL), literal=True)
    parts = []
    for name in value:
        if name not in MODIFIERS:
            parts.append(_compile_operator(compiler, name, value, (*path, name)))
        elif MODIFIERS[name] not in value:
            compiler.add_problem((*path, name), f"'{name}' goes with {MODIFIERS[name]}, which is not here", at_key=True)
    if len(parts) < 2:
        return parts[0] if parts else compiler.placeholder
    from evalkit.operators.builders import join_parts

    return join_parts(Operand("", value, value, path, compiler), tuple(parts), one_mapping=True)


def _compile_operator(compiler: Compiler, name: str, siblings: dict[str, Any], path: KeyPath) -> Matcher:
    value = siblings[name]
    form = BUILTIN_OPERATORS.get(name)
    if form is None and name[1:] not in OPERATORS:
        return compiler.add_problem(path, f"unknown operator '{name}'{_suggest_operator(name)}", at_key=True)
    if form is not None and (form.takes == "value" or (form.takes == "list" and get_kind(value) != STRING)):
        return build_operator(Operand(name, value, siblings, path, compiler))
    data = parse_operand(value, path, compiler)
    modifiers = {key: parse_operand(siblings[key], (*path[:-1], key), compiler) for key in MODIFIERS if key in siblings}
    if has_template(data) or has_template(modifiers):
        return Deferred(name, data, modifiers, compiler.mode)
    if form is None:
        return Custom(name[1:], strip_literals(data))
    return build_operator(
        Operand(name, strip_literals(data), {**siblings, **strip_literals(modifiers)}, path, compiler)
    )


def build_deferred(deferred: Deferred, value: Any, modifiers: dict[str, Any]) -> Matcher:
    """The matcher of a deferred operator, now that its operand is known. A wrong operand is a TemplateError."""
    from evalkit.operators.compile import Compiler

    compiler = Compiler(deferred.mode)
    if deferred.name not in BUILTIN_OPERATORS:
        return Custom(deferred.name[1:], strip_literals(value))
    form = BUILTIN_OPERATORS[deferred.name]
    operand = Operand(deferred.name, strip_literals(value) if form.takes == "data" else value, modifiers, (), compiler)
    matcher = build_operator(operand)
    if compiler.problems:
        raise TemplateError(f"{deferred.describe()}: {compiler.problems[0].message}")
    return matcher


def list_operators() -> list[str]:
    """Every operator that an expected value may use, with its `$`: the built-in ones, then users' own."""
    return [*BUILTIN_OPERATORS, LITERAL, *(f"${name}" for name in OPERATORS)]


def _is_probable_operator(key: str) -> bool:
    """Whether a key was written as an operator: it is one, or what people write instead, or nearly one."""
    return key in ALL_NAMES or key in INSTEAD or find_nearest(key, list_operators()) is not None


def _explain_mixed_keys(operator: str, plain_key: str) -> str:
    if operator not in ALL_NAMES and operator[1:] not in OPERATORS:
        return f"unknown operator '{operator}' beside the plain key '{plain_key}'{_suggest_operator(operator)}"
    return (
        f"the operator '{operator}' stands beside the plain key '{plain_key}'; "
        "take one of them out, or write {$literal: {...}} if both are data"
    )


def _suggest_operator(name: str) -> str:
    if name in INSTEAD:
        return f"; did you mean {INSTEAD[name]}?"
    hint = did_you_mean(name, [*list_operators(), *MODIFIERS])
    return hint or f"; known are {', '.join(list_operators())}; {{$literal: ...}} makes it data"
