"""A walk over a syntax tree that knows where it is: the functions and the class around each node."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec import Struct

from evalkit.lint.pythonfile import Function, PythonFile, find_bound_once
from evalkit.lint.static import LexicalScope

# Nodes without anything of interest in or under them: half of a tree.
_LEAVES = (ast.Name, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop, ast.alias, ast.Pass)


class NodeVisit(Struct):
    """A node, what stands around it, and whether it is a docstring."""

    node: ast.AST
    parent: ast.AST | None
    scope: LexicalScope
    owner: ast.ClassDef | None = None
    function: Function | None = None
    is_doc: bool = False


def walk_file(file: PythonFile) -> Iterator[NodeVisit]:
    """Every node of the file, outer ones first."""
    yield from _walk(NodeVisit(file.tree, None, LexicalScope(file)))


def _walk(outer: NodeVisit) -> Iterator[NodeVisit]:
    pending = [outer]
    while pending:
        visit = pending.pop()
        yield visit
        pending.extend(reversed([*_list_children(visit)]))


def _list_children(visit: NodeVisit) -> Iterator[NodeVisit]:
    node, scope, owner, function = visit.node, visit.scope, visit.owner, visit.function
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        names = find_bound_once(node.body, scope.file.changed_names)
        scope, function = LexicalScope(scope.file, (names, *scope.locals), owner), node
    elif isinstance(node, ast.ClassDef):
        owner = node
    documented = node if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) else None
    first = documented.body[0] if documented is not None and documented.body else None
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _LEAVES):
            continue
        is_doc = visit.is_doc or (child is first and isinstance(child, ast.Expr))
        yield NodeVisit(child, node, scope, owner, function, is_doc)
