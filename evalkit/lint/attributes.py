"""What an attribute of `self` is, where the class, its `__init__` or its base's `__init__` says so."""

from __future__ import annotations

import ast
from collections.abc import Callable

from evalkit.lint.pythonfile import PythonFile

ExpressionInFile = tuple[ast.expr, PythonFile]
FindClass = Callable[[str, PythonFile], tuple[ast.ClassDef, PythonFile] | None]
_MOST_BASES = 3


def find_attribute(
    owner: ast.ClassDef, name: str, file: PythonFile, find_class: FindClass, depth: int = 0
) -> ExpressionInFile | None:
    """The expression that `self.name` is bound to, and the file it stands in; None where that can't be told.

    ``name = "search"`` in the class; ``self.name = "search"`` in ``__init__``; ``super().__init__("search")`` where
    the base says ``self.name = name``.
    """
    class_value = _find_in_class(owner, name)
    if class_value is not None:
        return class_value, file
    init = _find_init(owner)
    assigned = _find_assignment(init, name) if init is not None else None
    if assigned is not None:
        is_argument = init is not None and isinstance(assigned, ast.Name) and assigned.id in _list_parameters(init)
        return None if is_argument else (assigned, file)
    super_call = _find_super_call(init) if init is not None else None
    for base in owner.bases:
        base_class = find_class(base.id, file) if isinstance(base, ast.Name) and depth < _MOST_BASES else None
        if base_class is None:
            continue
        argument = _find_super_argument(super_call, base_class[0], name) if super_call is not None else None
        if argument is not None:
            return argument, file
        return find_attribute(base_class[0], name, base_class[1], find_class, depth + 1)
    return None


def _find_in_class(owner: ast.ClassDef, name: str) -> ast.expr | None:
    for item in owner.body:
        targets = (
            item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return item.value if isinstance(item, (ast.Assign, ast.AnnAssign)) else None
    return None


def _find_init(owner: ast.ClassDef) -> ast.FunctionDef | None:
    return next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)


def _find_assignment(init: ast.FunctionDef, name: str) -> ast.expr | None:
    """The value of the only ``self.name = ...``."""
    values = [
        node.value
        for node in ast.walk(init)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == name and _is_self(target.value)
    ]
    return values[0] if len(values) == 1 else None


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _list_parameters(init: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in (*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs)]


def _find_super_call(init: ast.FunctionDef) -> ast.Call | None:
    """``super().__init__(...)``."""
    for node in ast.walk(init):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            return node
    return None


def _find_super_argument(super_call: ast.Call, base: ast.ClassDef, name: str) -> ast.expr | None:
    """The argument of ``super().__init__`` that the base keeps as ``self.name``."""
    init = _find_init(base)
    attribute_value = _find_assignment(init, name) if init is not None else None
    if init is None or not isinstance(attribute_value, ast.Name):
        return None
    named = next((keyword.value for keyword in super_call.keywords if keyword.arg == attribute_value.id), None)
    names = _list_parameters(init)[1:]
    at = names.index(attribute_value.id) if attribute_value.id in names else len(super_call.args)
    return named if named is not None else super_call.args[at] if at < len(super_call.args) else None
