"""Forms of expressions that matter in dispatch: what a lookup is, what of a table's value stands for a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evalkit.lint.static import get_last_name

_HOLDERS = frozenset(
    ("function", "func", "fn", "handler", "callable", "implementation", "impl", "execute", "executor", "run", "method")
)


def is_choice(node: ast.Dict) -> bool:
    """``{"name": "answer"}`` and no more: the tool that the model has to call, and whose call code waits for."""
    return len(node.keys) == 1 and isinstance(node.keys[0], ast.Constant) and node.keys[0].value == "name"


def is_lookup(node: ast.Call, parent: ast.AST | None) -> bool:
    """``getattr(self, name)``, ``globals()[name]``: any function may be meant."""
    name = get_last_name(node.func)
    if name == "getattr":
        return len(node.args) > 1 and not isinstance(node.args[1], ast.Constant)
    return name in ("globals", "locals") and isinstance(parent, ast.Subscript)


def find_affixes(node: ast.expr | None) -> tuple[str, str] | None:
    """``("do_", "")`` of ``f"do_{name}"`` and ``"do_" + name``; None for what is no such text."""
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    texts = [part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else None for part in parts]
    if texts.count(None) != 1 or len(texts) < 2:
        return None
    at = texts.index(None)
    return "".join(text or "" for text in texts[:at]), "".join(text or "" for text in texts[at + 1 :])


def find_target(value: ast.expr) -> ast.expr | None:
    """The expression in a table's value that stands for a function; None if there is none."""
    if isinstance(value, (ast.Name, ast.Attribute, ast.Lambda)):
        return value
    if isinstance(value, ast.Call) and get_last_name(value.func) == "partial":
        return value
    if isinstance(value, ast.Dict):
        keyed = zip(value.keys, value.values, strict=True)
        return next((item for key, item in keyed if isinstance(key, ast.Constant) and key.value in _HOLDERS), None)
    if isinstance(value, ast.Call):
        targets = [keyword.value for keyword in value.keywords if keyword.arg in _HOLDERS]
        return next(iter(targets), None)
    if isinstance(value, (ast.Tuple, ast.List)) and value.elts:
        return value.elts[0] if isinstance(value.elts[0], (ast.Name, ast.Attribute)) else None
    return None


def list_alternatives(pattern: ast.pattern) -> Iterator[ast.expr]:
    if isinstance(pattern, ast.MatchValue):
        yield pattern.value
    elif isinstance(pattern, ast.MatchOr):
        for inner in pattern.patterns:
            yield from list_alternatives(inner)
