"""What an attribute of `self` is, where the class, its `__init__` or its base's `__init__` says so."""

from __future__ import annotations

import ast
from collections.abc import Callable

from evalkit.lint.pythonfile import PythonFile

Found = tuple[ast.expr, PythonFile]
ClassOf = Callable[[str, PythonFile], tuple[ast.ClassDef, PythonFile] | None]
_DEPTH = 3


def attribute_of(owner: ast.ClassDef, name: str, file: PythonFile, class_of: ClassOf, depth: int = 0) -> Found | None:
    """The expression that `self.name` is bound to, and the file it stands in; None where that can't be told.

    ``name = "search"`` in the class; ``self.name = "search"`` in ``__init__``; ``super().__init__("search")`` where
    the base says ``self.name = name``.
    """
    own = _in_class(owner, name)
    if own is not None:
        return own, file
    init = _init(owner)
    assigned = _assigned(init, name) if init is not None else None
    if assigned is not None:
        is_argument = init is not None and isinstance(assigned, ast.Name) and assigned.id in _parameters(init)
        return None if is_argument else (assigned, file)
    handed = _handed_on(init) if init is not None else None
    for base in owner.bases:
        found = class_of(base.id, file) if isinstance(base, ast.Name) and depth < _DEPTH else None
        if found is None:
            continue
        given = _given(handed, found[0], name) if handed is not None else None
        if given is not None:
            return given, file
        return attribute_of(found[0], name, found[1], class_of, depth + 1)
    return None


def _in_class(owner: ast.ClassDef, name: str) -> ast.expr | None:
    for item in owner.body:
        targets = (
            item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return item.value if isinstance(item, (ast.Assign, ast.AnnAssign)) else None
    return None


def _init(owner: ast.ClassDef) -> ast.FunctionDef | None:
    return next((it for it in owner.body if isinstance(it, ast.FunctionDef) and it.name == "__init__"), None)


def _assigned(init: ast.FunctionDef, name: str) -> ast.expr | None:
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


def _parameters(init: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in (*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs)]


def _handed_on(init: ast.FunctionDef) -> ast.Call | None:
    """``super().__init__(...)``."""
    for node in ast.walk(init):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            return node
    return None


def _given(handed: ast.Call, base: ast.ClassDef, name: str) -> ast.expr | None:
    """The argument of ``super().__init__`` that the base keeps as ``self.name``."""
    init = _init(base)
    kept = _assigned(init, name) if init is not None else None
    if init is None or not isinstance(kept, ast.Name):
        return None
    named = next((keyword.value for keyword in handed.keywords if keyword.arg == kept.id), None)
    names = _parameters(init)[1:]
    at = names.index(kept.id) if kept.id in names else len(handed.args)
    return named if named is not None else handed.args[at] if at < len(handed.args) else None
