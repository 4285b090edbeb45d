"""Values of Python expressions, as far as they can be told without running anything, and where their parts stand."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from evalkit.errors import Location
from evalkit.lint.attributes import attribute_of
from evalkit.lint.facts import UNKNOWN, Path
from evalkit.lint.pythonfile import PythonFile, PythonFiles

_DEPTH = 60
_CONTAINERS = {"dict": dict, "list": list, "tuple": list}
_TEXT_METHODS = frozenset(("strip", "lstrip", "rstrip", "lower", "upper"))
_TEXT_FUNCTIONS = frozenset(("dedent", "cleandoc"))

# Keyword arguments of google-genai's Schema, under the names of JSON Schema.
_SCHEMA_NAMES = {
    "any_of": "anyOf",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "property_ordering": "propertyOrdering",
    "additional_properties": "additionalProperties",
    "type_": "type",
    "format_": "format",
}


class Scope(Struct):
    """Where an expression stands: its file, and the names bound in the functions around it, the innermost first."""

    file: PythonFile
    locals: Sequence[Mapping[str, ast.expr]] = ()
    owner: ast.ClassDef | None = None  # the class around it, of which `self` is one


class Reading(Struct):
    """The places of a value's parts, by their paths."""

    at: dict[Path, Location] = field(default_factory=dict)
    key_at: dict[Path, Location] = field(default_factory=dict)

    def locate(self, path: Path) -> Location:
        """The place of the value at `path`, else of what is nearest above it."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.at:
                return self.at[path[:length]]
        return next(iter(self.at.values()))


class Evaluator:
    """Reads literals, names bound once (imported ones too), joined text, and calls that only make data."""

    def __init__(self, files: PythonFiles) -> None:
        self._files = files

    def read(self, node: ast.expr, scope: Scope) -> tuple[Any, Reading]:
        """The value, with UNKNOWN for whatever can't be told, and the places of its parts."""
        reading = Reading()
        return self._value(node, scope, (), reading, 0), reading

    def value(self, node: ast.expr | None, scope: Scope) -> Any:
        return None if node is None else self._value(node, scope, (), Reading(), 0)

    def _value(self, node: ast.expr, scope: Scope, path: Path, reading: Reading, depth: int) -> Any:
        reading.at.setdefault(path, scope.file.place(node))
        if depth > _DEPTH:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, (str, int, float, bool, type(None))) else UNKNOWN
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return self._items(node.elts, scope, path, reading, depth)
        if isinstance(node, ast.Dict):
            return self._mapping(node, scope, path, reading, depth)
        if isinstance(node, ast.Name):
            return self._name(node, scope, path, reading, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope, path, reading, depth)
        if isinstance(node, ast.Call):
            return self._call(node, scope, path, reading, depth)
        if isinstance(node, ast.JoinedStr):
            return self._joined(node, scope, depth)
        if isinstance(node, ast.Subscript):
            return self._item(node, scope, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.BitOr)):
            return self._sum(node, scope, path, reading, depth)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand, scope, path, reading, depth + 1)
            return -value if isinstance(value, (int, float)) else UNKNOWN
        return UNKNOWN

    def _items(self, nodes: list[ast.expr], scope: Scope, path: Path, reading: Reading, depth: int) -> Any:
        values: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                more = self._value(node.value, scope, (*path, len(values), "*"), Reading(), depth + 1)
                if not isinstance(more, list):
                    return UNKNOWN
                values += more
            else:
                values.append(self._value(node, scope, (*path, len(values)), reading, depth + 1))
        return values

    def _mapping(self, node: ast.Dict, scope: Scope, path: Path, reading: Reading, depth: int) -> Any:
        values: dict[Any, Any] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            if key_node is None:
                more = self._value(value_node, scope, path, reading, depth + 1)
                if not isinstance(more, dict):
                    return UNKNOWN
                values |= more
                continue
            key = self._value(key_node, scope, path, Reading(), depth + 1)
            if not isinstance(key, str):
                return UNKNOWN
            reading.key_at[(*path, key)] = scope.file.place(key_node)
            reading.at.pop((*path, key), None)  # what a ** before it said no longer holds
            values[key] = self._value(value_node, scope, (*path, key), reading, depth + 1)
        return values

    def _name(self, node: ast.Name, scope: Scope, path: Path, reading: Reading, depth: int) -> Any:
        for index, names in enumerate(scope.locals):
            if node.id in names:
                inner = Scope(scope.file, scope.locals[index:], scope.owner)
                return self._value(names[node.id], inner, path, reading, depth + 1)
        found = self.constant(node.id, scope.file)
        if found is None:
            return UNKNOWN
        return self._value(found[0], Scope(found[1]), path, reading, depth + 1)

    def constant(self, name: str, file: PythonFile, depth: int = 0) -> tuple[ast.expr, PythonFile] | None:
        """What a module-level name is bound to, and in which file, imports followed."""
        if name in file.constants:
            return file.constants[name], file
        if name in file.imports and depth < 5:
            module, inner, level = file.imports[name]
            source = self._files.imported(module, level, file) if inner else None
            if source is not None and source is not file:
                return self.constant(inner, source, depth + 1)
        return None

    def _attribute(self, node: ast.Attribute, scope: Scope, path: Path, reading: Reading, depth: int) -> Any:
        base = node.value
        if isinstance(base, ast.Name) and base.id in ("self", "cls") and scope.owner is not None:
            found = attribute_of(scope.owner, node.attr, scope.file, self._class)
            return UNKNOWN if found is None else self._value(found[0], Scope(found[1]), path, reading, depth + 1)
        holder = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
        if holder == "Type":  # types.Type.STRING
            return node.attr.lower()
        if isinstance(base, ast.Name) and base.id in scope.file.imports:
            module, inner, level = scope.file.imports[base.id]
            name = f"{module}.{inner}" if module and inner else module or inner
            source = self._files.imported(name, level, scope.file)
            found = self.constant(node.attr, source) if source is not None else None
            if found is not None:
                return self._value(found[0], Scope(found[1]), path, reading, depth + 1)
        return UNKNOWN

    def _class(self, name: str, file: PythonFile) -> tuple[ast.ClassDef, PythonFile] | None:
        """A class of the file, its own or an imported one."""
        if name in file.classes:
            return file.classes[name], file
        module, inner, level = file.imports.get(name, ("", "", 0))
        source = self._files.imported(module, level, file) if inner else None
        return (source.classes[inner], source) if source is not None and inner in source.classes else None

    def _call(self, node: ast.Call, scope: Scope, path: Path, reading: Reading, depth: int) -> Any:
        name = last_name(node.func)
        keywords = {keyword.arg for keyword in node.keywords}
        if ("name" in keywords and keywords & {"parameters", "function"}) or {"type", "function"} <= keywords:
            return self._keywords(node, scope, path, reading, depth, {})  # FunctionDefinition(name=..., ...)
        if name == "Schema":
            return self._keywords(node, scope, path, reading, depth, _SCHEMA_NAMES)
        if name == "dict" and not node.args:
            return self._keywords(node, scope, path, reading, depth, {})
        if name in _CONTAINERS and len(node.args) == 1 and not node.keywords:
            return self._value(node.args[0], scope, path, reading, depth + 1)
        if name in _TEXT_FUNCTIONS and len(node.args) == 1:
            value = self._value(node.args[0], scope, path, reading, depth + 1)
            return textwrap.dedent(value) if isinstance(value, str) else UNKNOWN
        if isinstance(node.func, ast.Attribute) and name in _TEXT_METHODS and not node.args:
            value = self._value(node.func.value, scope, path, reading, depth + 1)
            return getattr(value, name)() if isinstance(value, str) else UNKNOWN
        return UNKNOWN

    def _keywords(
        self, node: ast.Call, scope: Scope, path: Path, reading: Reading, depth: int, names: Mapping[str, str]
    ) -> Any:
        values: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                return UNKNOWN
            key = names.get(keyword.arg, keyword.arg)
            reading.key_at[(*path, key)] = scope.file.place(keyword)
            values[key] = self._value(keyword.value, scope, (*path, key), reading, depth + 1)
        return UNKNOWN if node.args else values

    def _item(self, node: ast.Subscript, scope: Scope, depth: int) -> Any:
        """``SEARCH_TOOL["function"]["name"]``."""
        holder = self._value(node.value, scope, (), Reading(), depth + 1)
        key = self._value(node.slice, scope, (), Reading(), depth + 1)
        if isinstance(holder, dict) and isinstance(key, str):
            return holder.get(key, UNKNOWN)
        in_list = isinstance(holder, list) and isinstance(key, int) and -len(holder) <= key < len(holder)
        return holder[key] if in_list else UNKNOWN

    def _joined(self, node: ast.JoinedStr, scope: Scope, depth: int) -> Any:
        parts: list[str] = []
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            value = self._value(inner, scope, (), Reading(), depth + 1)
            if not isinstance(value, str):
                return UNKNOWN
            parts.append(value)
        return "".join(parts)

    def _sum(self, node: ast.BinOp, scope: Scope, path: Path, reading: Reading, depth: int) -> Any:
        left = self._value(node.left, scope, path, reading, depth + 1)
        right = self._value(node.right, scope, path, reading, depth + 1)
        if isinstance(left, dict) and isinstance(right, dict):
            return left | right
        if type(left) is type(right) and isinstance(left, (str, list)):
            return left + right
        return UNKNOWN


def last_name(node: ast.expr) -> str:
    """``FunctionDeclaration`` of ``types.FunctionDeclaration``; "" for what is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.expr) -> str:
    """``a.b.c`` as it is written; "" for what is no dotted name."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def without_unknown(value: Any) -> Any:
    """`value` without the parts that can't be told; UNKNOWN where nothing is left to tell."""
    if isinstance(value, dict):
        return {key: kept for key, item in value.items() if (kept := without_unknown(item)) is not UNKNOWN}
    if isinstance(value, list):
        return UNKNOWN if any(item is UNKNOWN for item in value) else [without_unknown(item) for item in value]
    return value
