"""Values of Python expressions, as far as they are known without running anything, with the places of their parts.

`walk_file` yields the nodes of a file with their surroundings.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from evalkit.errors import KeyPath, Location
from evalkit.hosts.lint.facts.python_files import Function, PythonFile, PythonFiles, find_bound_once
from evalkit.hosts.lint.facts.records import UNKNOWN

_DEPTH = 60
_MOST_BASES = 3
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


class LexicalScope(Struct):
    """Surroundings of an expression: its file, and the names bound in the functions around it, innermost first."""

    file: PythonFile
    locals: Sequence[Mapping[str, ast.expr]] = ()
    owner: ast.ClassDef | None = None  # the class around it, of which `self` is one


class ValuePlaces(Struct):
    """Places of a value's parts, by their paths."""

    by_path: dict[KeyPath, Location] = field(default_factory=dict)
    keys_by_path: dict[KeyPath, Location] = field(default_factory=dict)

    def locate(self, path: KeyPath) -> Location:
        """Return the place of the value at `path`, else of what is nearest above it."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.by_path:
                return self.by_path[path[:length]]
        return next(iter(self.by_path.values()))


class Evaluator:
    """Reads literals, names bound once (imported ones too), joined text, and calls that only make data."""

    def __init__(self, files: PythonFiles) -> None:
        self._files = files

    def read(self, node: ast.expr, scope: LexicalScope) -> tuple[Any, ValuePlaces]:
        """Return the value, with UNKNOWN for whatever can't be told, and the places of its parts."""
        reading = ValuePlaces()
        return self._evaluate(node, scope, (), reading, 0), reading

    def evaluate(self, node: ast.expr | None, scope: LexicalScope) -> Any:
        return None if node is None else self._evaluate(node, scope, (), ValuePlaces(), 0)

    def _evaluate(self, node: ast.expr, scope: LexicalScope, path: KeyPath, reading: ValuePlaces, depth: int) -> Any:
        reading.by_path.setdefault(path, scope.file.locate(node))
        if depth > _DEPTH:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, (str, int, float, bool, type(None))) else UNKNOWN
        if isinstance(node, (ast.List, ast.Tuple, ast.Set, ast.Dict)):
            return self._evaluate_container(node, scope, path, reading, depth)
        if isinstance(node, ast.Name):
            for index, names in enumerate(scope.locals):
                if node.id in names:
                    inner = LexicalScope(scope.file, scope.locals[index:], scope.owner)
                    return self._evaluate(names[node.id], inner, path, reading, depth + 1)
            definition = self.find_constant(node.id, scope.file)
            if definition is None:
                return UNKNOWN
            return self._evaluate(definition[0], LexicalScope(definition[1]), path, reading, depth + 1)
        if isinstance(node, ast.Attribute):
            return self._evaluate_attribute(node, scope, path, reading, depth)
        if isinstance(node, ast.Call):
            return self._evaluate_call(node, scope, path, reading, depth)
        return self._evaluate_operation(node, scope, path, reading, depth)

    def _evaluate_container(
        self,
        node: ast.List | ast.Tuple | ast.Set | ast.Dict,
        scope: LexicalScope,
        path: KeyPath,
        reading: ValuePlaces,
        depth: int,
    ) -> Any:
        if not isinstance(node, ast.Dict):
            items: list[Any] = []
            for item in node.elts:
                if isinstance(item, ast.Starred):
                    unpacked = self._evaluate(item.value, scope, (*path, len(items), "*"), ValuePlaces(), depth + 1)
                    if not isinstance(unpacked, list):
                        return UNKNOWN
                    items += unpacked
                else:
                    items.append(self._evaluate(item, scope, (*path, len(items)), reading, depth + 1))
            return items
        values: dict[Any, Any] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            if key_node is None:
                unpacked = self._evaluate(value_node, scope, path, reading, depth + 1)
                if not isinstance(unpacked, dict):
                    return UNKNOWN
                values |= unpacked
                continue
            key = self._evaluate(key_node, scope, path, ValuePlaces(), depth + 1)
            if not isinstance(key, str):
                return UNKNOWN
            reading.keys_by_path[(*path, key)] = scope.file.locate(key_node)
            reading.by_path.pop((*path, key), None)  # what a ** before it said no longer holds
            values[key] = self._evaluate(value_node, scope, (*path, key), reading, depth + 1)
        return values

    def find_constant(self, name: str, file: PythonFile, depth: int = 0) -> tuple[ast.expr, PythonFile] | None:
        """Return the expression that a module-level name is bound to, and its file; imports are followed."""
        if name in file.constants:
            return file.constants[name], file
        if name in file.imports and depth < 5:
            module, inner, level = file.imports[name]
            source = self._files.find_import(module, level, file) if inner else None
            if source is not None and source is not file:
                return self.find_constant(inner, source, depth + 1)
        return None

    def _evaluate_attribute(
        self, node: ast.Attribute, scope: LexicalScope, path: KeyPath, reading: ValuePlaces, depth: int
    ) -> Any:
        base = node.value
        if isinstance(base, ast.Name) and base.id in ("self", "cls") and scope.owner is not None:
            attribute = self.find_attribute(scope.owner, node.attr, scope.file)
            if attribute is None:
                return UNKNOWN
            return self._evaluate(attribute[0], LexicalScope(attribute[1]), path, reading, depth + 1)
        holder = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
        if holder == "Type":  # types.Type.STRING
            return node.attr.lower()
        if isinstance(base, ast.Name) and base.id in scope.file.imports:
            module, inner, level = scope.file.imports[base.id]
            name = f"{module}.{inner}" if module and inner else module or inner
            source = self._files.find_import(name, level, scope.file)
            definition = self.find_constant(node.attr, source) if source is not None else None
            if definition is not None:
                return self._evaluate(definition[0], LexicalScope(definition[1]), path, reading, depth + 1)
        return UNKNOWN

    def find_attribute(
        self, owner: ast.ClassDef, name: str, file: PythonFile, depth: int = 0
    ) -> tuple[ast.expr, PythonFile] | None:
        """Return the expression that `self.name` is bound to, and its file; None where that can't be told.

        ``name = "search"`` in the class; ``self.name = "search"`` in ``__init__``; ``super().__init__("search")``
        where the base says ``self.name = name``.
        """
        for item in owner.body:
            if isinstance(item, (ast.Assign, ast.AnnAssign)) and item.value is not None:
                targets = item.targets if isinstance(item, ast.Assign) else [item.target]
                if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                    return item.value, file
        init, assigned = _find_assignment(owner, name)
        if assigned is not None:
            is_argument = isinstance(assigned, ast.Name) and assigned.id in _list_parameters(init)
            return None if is_argument else (assigned, file)
        calls = (node for node in (ast.walk(init) if init is not None else ()) if isinstance(node, ast.Call))
        super_call = next((call for call in calls if get_last_name(call.func) == "__init__"), None)
        for base in owner.bases:
            base_class = self.find_class(base.id, file) if isinstance(base, ast.Name) and depth < _MOST_BASES else None
            if base_class is None:
                continue
            base_init, kept = _find_assignment(base_class[0], name)
            if super_call is not None and isinstance(kept, ast.Name):
                named = next((keyword.value for keyword in super_call.keywords if keyword.arg == kept.id), None)
                names = _list_parameters(base_init)[1:]
                at = names.index(kept.id) if kept.id in names else len(super_call.args)
                argument = named if named is not None else next(iter(super_call.args[at : at + 1]), None)
                if argument is not None:
                    return argument, file
            return self.find_attribute(base_class[0], name, base_class[1], depth + 1)
        return None

    def find_class(self, name: str, file: PythonFile) -> tuple[ast.ClassDef, PythonFile] | None:
        """Return a class of the file, its own or an imported one."""
        if name in file.classes:
            return file.classes[name], file
        module, inner, level = file.imports.get(name, ("", "", 0))
        source = self._files.find_import(module, level, file) if inner else None
        return (source.classes[inner], source) if source is not None and inner in source.classes else None

    def _evaluate_call(
        self, node: ast.Call, scope: LexicalScope, path: KeyPath, reading: ValuePlaces, depth: int
    ) -> Any:
        name = get_last_name(node.func)
        keywords = {keyword.arg for keyword in node.keywords}
        if ("name" in keywords and keywords & {"parameters", "function"}) or {"type", "function"} <= keywords:
            return self._evaluate_keywords(node, scope, path, reading, depth, {})  # FunctionDefinition(name=..., ...)
        if name == "Schema":
            return self._evaluate_keywords(node, scope, path, reading, depth, _SCHEMA_NAMES)
        if name == "dict" and not node.args:
            return self._evaluate_keywords(node, scope, path, reading, depth, {})
        if name in _CONTAINERS and len(node.args) == 1 and not node.keywords:
            return self._evaluate(node.args[0], scope, path, reading, depth + 1)
        if name in _TEXT_FUNCTIONS and len(node.args) == 1:
            value = self._evaluate(node.args[0], scope, path, reading, depth + 1)
            return textwrap.dedent(value) if isinstance(value, str) else UNKNOWN
        if isinstance(node.func, ast.Attribute) and name in _TEXT_METHODS and not node.args:
            value = self._evaluate(node.func.value, scope, path, reading, depth + 1)
            return getattr(value, name)() if isinstance(value, str) else UNKNOWN
        return UNKNOWN

    def _evaluate_keywords(
        self,
        node: ast.Call,
        scope: LexicalScope,
        path: KeyPath,
        reading: ValuePlaces,
        depth: int,
        names: Mapping[str, str],
    ) -> Any:
        values: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                return UNKNOWN
            key = names.get(keyword.arg, keyword.arg)
            reading.keys_by_path[(*path, key)] = scope.file.locate(keyword)
            values[key] = self._evaluate(keyword.value, scope, (*path, key), reading, depth + 1)
        return UNKNOWN if node.args else values

    def _evaluate_operation(
        self, node: ast.expr, scope: LexicalScope, path: KeyPath, reading: ValuePlaces, depth: int
    ) -> Any:
        if isinstance(node, ast.Subscript):  # SEARCH_TOOL["function"]["name"]
            holder = self._evaluate(node.value, scope, (), ValuePlaces(), depth + 1)
            key = self._evaluate(node.slice, scope, (), ValuePlaces(), depth + 1)
            if isinstance(holder, dict) and isinstance(key, str):
                return holder.get(key, UNKNOWN)
            in_list = isinstance(holder, list) and isinstance(key, int) and -len(holder) <= key < len(holder)
            return holder[key] if in_list else UNKNOWN
        if isinstance(node, ast.JoinedStr):
            inner = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
            texts = [self._evaluate(part, scope, (), ValuePlaces(), depth + 1) for part in inner]
            return "".join(texts) if all(isinstance(text, str) for text in texts) else UNKNOWN
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.BitOr)):
            first = self._evaluate(node.left, scope, path, reading, depth + 1)
            second = self._evaluate(node.right, scope, path, reading, depth + 1)
            if isinstance(first, dict) and isinstance(second, dict):
                return first | second
            return first + second if type(first) is type(second) and isinstance(first, (str, list)) else UNKNOWN
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._evaluate(node.operand, scope, path, reading, depth + 1)
            return -value if isinstance(value, (int, float)) else UNKNOWN
        return UNKNOWN


def get_last_name(node: ast.expr) -> str:
    """Return ``FunctionDeclaration`` of ``types.FunctionDeclaration``; "" for what is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def get_dotted_name(node: ast.expr) -> str:
    """Return ``a.b.c`` as it is written; "" for what is no dotted name."""
    if isinstance(node, ast.Attribute):
        before = get_dotted_name(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def remove_unknown(value: object) -> Any:
    """Return `value` without the parts that can't be told; UNKNOWN where nothing is left to tell."""
    if isinstance(value, dict):
        return {key: part for key, item in value.items() if (part := remove_unknown(item)) is not UNKNOWN}
    if isinstance(value, list):
        return UNKNOWN if any(item is UNKNOWN for item in value) else [remove_unknown(item) for item in value]
    return value


def _find_assignment(owner: ast.ClassDef, name: str) -> tuple[ast.FunctionDef | None, ast.expr | None]:
    """Return the class's ``__init__``, and the value of the only ``self.name = ...`` in it."""
    inits = (item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
    init = next(inits, None)
    values = [
        node.value
        for node in (ast.walk(init) if init is not None else ())
        if isinstance(node, ast.Assign) and f"self.{name}" in map(get_dotted_name, node.targets)
    ]
    return init, values[0] if len(values) == 1 else None


def _list_parameters(init: ast.FunctionDef | None) -> list[str]:
    arguments = [] if init is None else [*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs]
    return [argument.arg for argument in arguments]


# Nodes without anything of interest in or under them: half of a tree.
_LEAVES = (ast.Name, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop, ast.alias, ast.Pass)


class NodeVisit(Struct):
    """A node with its surroundings. `is_doc`: it is part of a docstring."""

    node: ast.AST
    parent: ast.AST | None
    scope: LexicalScope
    owner: ast.ClassDef | None = None
    function: Function | None = None
    is_doc: bool = False


def walk_file(file: PythonFile) -> Iterator[NodeVisit]:
    """Yield every node of the file, outer ones first."""
    pending = [NodeVisit(file.tree, None, LexicalScope(file))]
    while pending:
        visit = pending.pop()
        yield visit
        node, scope, owner, function = visit.node, visit.scope, visit.owner, visit.function
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names = find_bound_once(node.body, file.changed_names)
            scope, function = LexicalScope(file, (names, *scope.locals), owner), node
        elif isinstance(node, ast.ClassDef):
            owner = node
        body = node.body if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) else []
        first = body[0] if body else None
        pending.extend(
            NodeVisit(
                child, node, scope, owner, function, visit.is_doc or (child is first and isinstance(child, ast.Expr))
            )
            for child in reversed([*ast.iter_child_nodes(node)])
            if not isinstance(child, _LEAVES)
        )
