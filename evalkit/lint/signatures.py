"""Signatures of functions, read from their syntax: names, defaults, and what their annotations say in JSON's terms."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from evalkit.lint.facts import UNKNOWN, Implementation, Parameter
from evalkit.lint.pythonfile import Function, PythonFile
from evalkit.lint.reads import by_reading, types_of_default
from evalkit.lint.static import Evaluator, Scope, last_name

JSON_TYPES: dict[str, tuple[str, ...]] = {
    "str": ("string",),
    "int": ("integer",),
    "float": ("number", "integer"),
    "bool": ("boolean",),
    "list": ("array",),
    "List": ("array",),
    "Sequence": ("array",),
    "Iterable": ("array",),
    "tuple": ("array",),
    "Tuple": ("array",),
    "set": ("array",),
    "Set": ("array",),
    "dict": ("object",),
    "Dict": ("object",),
    "Mapping": ("object",),
    "None": ("null",),
}
Told = tuple[frozenset[str] | None, tuple[Any, ...] | None]
_NOTHING: Told = (None, None)


class Signatures:
    """Makes an Implementation of a function's syntax."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def read(self, node: Function, file: PythonFile, *, name: str = "", is_method: bool = False) -> Implementation:
        """The implementation that `node` is; `is_method` leaves its first parameter out."""
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args]
        defaults: list[ast.expr | None] = [None] * (len(named) - len(arguments.defaults)) + [*arguments.defaults]
        pairs = [*zip(named, defaults, strict=True)]
        is_static = any(last_name(decorator) == "staticmethod" for decorator in node.decorator_list)
        if is_method and not is_static:
            pairs = pairs[1:]
        pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        return Implementation(
            name=name or node.name,
            place=file.place(node),
            parameters=tuple(self._parameter(argument, default, file) for argument, default in pairs),
            takes_any=arguments.kwarg is not None,
            is_method=is_method,
            doc=ast.get_docstring(node) or "",
            comparable=arguments.vararg is None,
            by_keys=lambda found: by_reading(node, file, found),
        )

    def _parameter(self, argument: ast.arg, default: ast.expr | None, file: PythonFile) -> Parameter:
        types, values = self.told(argument.annotation, file)
        value = UNKNOWN if default is None else self._evaluator.value(default, Scope(file))
        if argument.annotation is None:
            types = types_of_default(value)
        return Parameter(
            name=argument.arg,
            place=file.place(argument),
            required=default is None,
            types=types,
            values=values,
            default=value,
            annotation=ast.unparse(argument.annotation) if argument.annotation is not None else f"{value!r} by default",
        )

    def told(self, annotation: ast.expr | None, file: PythonFile) -> Told:
        """The JSON types and the values that an annotation allows; None each where it does not tell."""
        if annotation is None:
            return _NOTHING
        if isinstance(annotation, ast.Constant):
            return self._constant(annotation, file)
        if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
            return self._union([annotation.left, annotation.right], file)
        if isinstance(annotation, ast.Subscript):
            return self._subscript(annotation, file)
        name = last_name(annotation)
        if name in JSON_TYPES:
            return frozenset(JSON_TYPES[name]), None
        return self._own_type(name, file)

    def _constant(self, annotation: ast.Constant, file: PythonFile) -> Told:
        if annotation.value is None:
            return frozenset(["null"]), None
        if isinstance(annotation.value, str):
            try:
                return self.told(ast.parse(annotation.value, mode="eval").body, file)
            except (SyntaxError, ValueError):
                return _NOTHING
        return _NOTHING

    def _subscript(self, annotation: ast.Subscript, file: PythonFile) -> Told:
        name = last_name(annotation.value)
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if name == "Literal":
            return self._literal(inner, file)
        if name == "Optional":
            return self._union([inner[0], ast.Constant(None)], file)
        if name == "Union":
            return self._union(inner, file)
        if name == "Annotated":
            return self.told(inner[0], file)
        return (frozenset(JSON_TYPES[name]), None) if name in JSON_TYPES else _NOTHING

    def _literal(self, nodes: list[ast.expr], file: PythonFile) -> Told:
        values = tuple(self._evaluator.value(node, Scope(file)) for node in nodes)
        if any(value is UNKNOWN for value in values):
            return _NOTHING
        return _types_of(values), values

    def _union(self, nodes: list[ast.expr], file: PythonFile) -> Told:
        told = [self.told(node, file) for node in nodes]
        known = [types for types, _ in told if types is not None]
        if len(known) < len(told):
            return _NOTHING
        listed = [values for types, values in told if types != frozenset(["null"])]
        all_listed = [values for values in listed if values is not None]
        values = tuple(value for part in all_listed for value in part) if len(all_listed) == len(listed) else None
        return frozenset().union(*known), values or None

    def _own_type(self, name: str, file: PythonFile) -> Told:
        """An alias of a type, or an Enum, that the same file defines."""
        if name in file.constants and not isinstance(file.constants[name], ast.Constant):
            value = file.constants[name]
            return self.told(value, file) if isinstance(value, (ast.Subscript, ast.BinOp)) else _NOTHING
        node = file.classes.get(name)
        if node is None or not any(last_name(base).endswith("Enum") for base in node.bases):
            return _NOTHING
        values = tuple(self._evaluator.value(value, Scope(file)) for value in _members(node))
        if not values or any(value is UNKNOWN for value in values):
            return _NOTHING
        return _types_of(values), values


def _members(node: ast.ClassDef) -> Iterator[ast.expr]:
    return (statement.value for statement in node.body if isinstance(statement, ast.Assign))


def _types_of(values: tuple[Any, ...]) -> frozenset[str]:
    names = {bool: "boolean", str: "string", int: "integer", float: "number", type(None): "null"}
    return frozenset(names[type(value)] for value in values if type(value) in names)


def schema_of(implementation: Implementation) -> dict[str, Any]:
    """What a framework that declares the function by its signature tells the model, roughly."""
    properties: dict[str, Any] = {}
    for parameter in implementation.parameters:
        known = sorted(parameter.types or ())
        properties[parameter.name] = {"type": known[0] if len(known) == 1 else known} if known else {}
        if parameter.values:
            properties[parameter.name]["enum"] = list(parameter.values)
    required = [parameter.name for parameter in implementation.parameters if parameter.required]
    return {"type": "object", "properties": properties, "required": required}
