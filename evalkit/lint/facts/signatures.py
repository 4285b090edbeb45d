"""Signatures of functions, read from their syntax: names, defaults, and what their annotations say in JSON's terms."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from evalkit.lint.facts.argument_keys import infer_types, read_key_parameters
from evalkit.lint.facts.evaluate import Evaluator, LexicalScope, NodeVisit, get_last_name
from evalkit.lint.facts.python_files import Function, PythonFile, PythonFiles
from evalkit.lint.facts.records import UNKNOWN, Implementation, Parameter

TYPES_OF_ANNOTATIONS: dict[str, tuple[str, ...]] = {
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
TypesAndValues = tuple[frozenset[str] | None, tuple[Any, ...] | None]
_NOTHING: TypesAndValues = (None, None)


class SignatureReader:
    """Makes an Implementation of a function's syntax."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def read(self, node: Function, file: PythonFile, *, name: str = "", is_method: bool = False) -> Implementation:
        """The implementation that `node` is; `is_method` leaves its first parameter out."""
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args]
        defaults: list[ast.expr | None] = [None] * (len(named) - len(arguments.defaults)) + [*arguments.defaults]
        pairs = [*zip(named, defaults, strict=True)]
        is_static = any(get_last_name(decorator) == "staticmethod" for decorator in node.decorator_list)
        if is_method and not is_static:
            pairs = pairs[1:]
        pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        return Implementation(
            name=name or node.name,
            place=file.locate(node),
            parameters=tuple(self._read_parameter(argument, default, file) for argument, default in pairs),
            takes_any=arguments.kwarg is not None,
            is_method=is_method,
            doc=ast.get_docstring(node) or "",
            is_comparable=arguments.vararg is None,
            read_keys=lambda implementation: read_key_parameters(node, file, implementation),
        )

    def _read_parameter(self, argument: ast.arg, default: ast.expr | None, file: PythonFile) -> Parameter:
        types, values = self.read_annotation(argument.annotation, file)
        value = UNKNOWN if default is None else self._evaluator.evaluate(default, LexicalScope(file))
        if argument.annotation is None:
            types = infer_types(value)
        return Parameter(
            name=argument.arg,
            place=file.locate(argument),
            required=default is None,
            types=types,
            values=values,
            default=value,
            annotation=ast.unparse(argument.annotation) if argument.annotation is not None else f"{value!r} by default",
        )

    def read_annotation(self, annotation: ast.expr | None, file: PythonFile) -> TypesAndValues:
        """The JSON types and the values that an annotation allows; None each where it does not tell."""
        if annotation is None:
            return _NOTHING
        if isinstance(annotation, ast.Constant):
            return self._read_constant(annotation, file)
        if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
            return self._read_union([annotation.left, annotation.right], file)
        if isinstance(annotation, ast.Subscript):
            return self._read_subscript(annotation, file)
        name = get_last_name(annotation)
        if name in TYPES_OF_ANNOTATIONS:
            return frozenset(TYPES_OF_ANNOTATIONS[name]), None
        return self._read_own_type(name, file)

    def _read_constant(self, annotation: ast.Constant, file: PythonFile) -> TypesAndValues:
        if annotation.value is None:
            return frozenset(["null"]), None
        if isinstance(annotation.value, str):
            try:
                return self.read_annotation(ast.parse(annotation.value, mode="eval").body, file)
            except (SyntaxError, ValueError):
                return _NOTHING
        return _NOTHING

    def _read_subscript(self, annotation: ast.Subscript, file: PythonFile) -> TypesAndValues:
        name = get_last_name(annotation.value)
        inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if name == "Literal":
            return self._read_literal(inner, file)
        if name == "Optional":
            return self._read_union([inner[0], ast.Constant(None)], file)
        if name == "Union":
            return self._read_union(inner, file)
        if name == "Annotated":
            return self.read_annotation(inner[0], file)
        return (frozenset(TYPES_OF_ANNOTATIONS[name]), None) if name in TYPES_OF_ANNOTATIONS else _NOTHING

    def _read_literal(self, nodes: list[ast.expr], file: PythonFile) -> TypesAndValues:
        values = tuple(self._evaluator.evaluate(node, LexicalScope(file)) for node in nodes)
        if any(value is UNKNOWN for value in values):
            return _NOTHING
        return _find_types(values), values

    def _read_union(self, nodes: list[ast.expr], file: PythonFile) -> TypesAndValues:
        readings = [self.read_annotation(node, file) for node in nodes]
        known_types = [types for types, _ in readings if types is not None]
        if len(known_types) < len(readings):
            return _NOTHING
        listed = [values for types, values in readings if types != frozenset(["null"])]
        all_listed = [values for values in listed if values is not None]
        values = tuple(value for part in all_listed for value in part) if len(all_listed) == len(listed) else None
        return frozenset().union(*known_types), values or None

    def _read_own_type(self, name: str, file: PythonFile) -> TypesAndValues:
        """An alias of a type, or an Enum, that the same file defines."""
        if name in file.constants and not isinstance(file.constants[name], ast.Constant):
            value = file.constants[name]
            return self.read_annotation(value, file) if isinstance(value, (ast.Subscript, ast.BinOp)) else _NOTHING
        node = file.classes.get(name)
        if node is None or not any(get_last_name(base).endswith("Enum") for base in node.bases):
            return _NOTHING
        values = tuple(self._evaluator.evaluate(value, LexicalScope(file)) for value in _list_members(node))
        if not values or any(value is UNKNOWN for value in values):
            return _NOTHING
        return _find_types(values), values


def _list_members(node: ast.ClassDef) -> Iterator[ast.expr]:
    return (statement.value for statement in node.body if isinstance(statement, ast.Assign))


def _find_types(values: tuple[Any, ...]) -> frozenset[str]:
    names = {bool: "boolean", str: "string", int: "integer", float: "number", type(None): "null"}
    return frozenset(names[type(value)] for value in values if type(value) in names)


def build_schema(implementation: Implementation) -> dict[str, Any]:
    """What a framework that declares the function by its signature tells the model, roughly."""
    properties: dict[str, Any] = {}
    for parameter in implementation.parameters:
        types = sorted(parameter.types or ())
        properties[parameter.name] = {"type": types[0] if len(types) == 1 else types} if types else {}
        if parameter.values:
            properties[parameter.name]["enum"] = list(parameter.values)
    required = [parameter.name for parameter in implementation.parameters if parameter.required]
    return {"type": "object", "properties": properties, "required": required}


# From an expression that stands for a function to the function's own definition, through imports.

_MOST_IMPORTS = 5


class Resolver:
    """Looks functions up in the project's files."""

    def __init__(self, files: PythonFiles, signatures: SignatureReader) -> None:
        self._files = files
        self.signatures = signatures

    def find_function(self, node: ast.expr, visit: NodeVisit) -> Implementation | None:
        """The function that `node` names: ``search``, ``tools.search``, ``self.search``, ``partial(search, db)``."""
        file = visit.scope.file
        if isinstance(node, ast.Name):
            return self.find_by_name(node.id, file)
        if isinstance(node, ast.Attribute):
            return self._find_attribute(node, visit)
        if isinstance(node, ast.Call) and get_last_name(node.func) == "partial" and node.args:
            implementation = self.find_function(node.args[0], visit)
            return None if implementation is None else _apply_partial(implementation, node)
        return None

    def find_by_name(self, name: str, file: PythonFile, depth: int = 0) -> Implementation | None:
        """A function of the module `file`, its own or an imported one."""
        if name in file.functions:
            return self.signatures.read(file.functions[name], file)
        if name in file.imports and depth < _MOST_IMPORTS:
            module, inner, level = file.imports[name]
            source = self._files.find_import(module, level, file) if inner else None
            return self.find_by_name(inner, source, depth + 1) if source is not None and source is not file else None
        return None

    def _find_attribute(self, node: ast.Attribute, visit: NodeVisit) -> Implementation | None:
        file, base = visit.scope.file, node.value
        if isinstance(base, ast.Name) and base.id in ("self", "cls") and visit.owner is not None:
            return self._find_method(visit.owner.name, node.attr, file)
        if isinstance(base, ast.Name) and base.id in file.classes:
            return self._find_method(base.id, node.attr, file)
        if isinstance(base, ast.Name) and base.id in file.imports:
            module, inner, level = file.imports[base.id]
            name = f"{module}.{inner}" if module and inner else module or inner
            source = self._files.find_import(name, level, file)
            if source is not None:
                return self.find_by_name(node.attr, source)
        return None

    def _find_method(self, owner: str, name: str, file: PythonFile) -> Implementation | None:
        definition = file.functions.get(f"{owner}.{name}")
        return None if definition is None else self.signatures.read(definition, file, is_method=True)


def _apply_partial(implementation: Implementation, call: ast.Call) -> Implementation:
    """What is left to pass after ``partial(function, ...)``."""
    from msgspec.structs import replace

    named = {keyword.arg for keyword in call.keywords}
    parameters = [
        parameter for parameter in implementation.parameters[len(call.args) - 1 :] if parameter.name not in named
    ]
    return replace(implementation, parameters=tuple(parameters))
