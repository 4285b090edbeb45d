"""Python files as text and syntax trees. They are parsed, never run."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from evalkit.errors import Location

_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"  # by which the files are parsed
Function = ast.FunctionDef | ast.AsyncFunctionDef
_MUTATING = frozenset(("append", "extend", "insert", "update", "setdefault", "pop", "remove", "clear", "add"))


class PythonFile:
    """One file: `path` on disk, `shown` from the root, with slashes. What is asked of it is made once."""

    def __init__(self, path: Path, shown: str, text: str) -> None:
        self.path = path
        self.shown = shown
        self.text = text
        self.problem: tuple[Location, str] | None = None

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree; an empty one, and a `problem`, for text that is not Python."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of invalid escapes in somebody's code
                return ast.parse(self.text)
        except SyntaxError as error:
            if "{%" not in self.text:  # a template of Python is no Python yet
                at = Location(self.shown, error.lineno or 1, error.offset or 1)
                self.problem = at, f"not Python {_VERSION}: {error.msg}"
        except (ValueError, RecursionError, MemoryError) as error:
            self.problem = Location(self.shown, 1, 1), f"not Python: {error}"
        return ast.Module(body=[], type_ignores=[])

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines(keepends=True)

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self._lines:
            starts.append(starts[-1] + len(line))
        return starts

    def _column(self, line: int, bytes_before: int) -> int:
        """Characters before a place: the syntax tree counts bytes."""
        text = self._lines[line - 1] if line <= len(self._lines) else ""
        return bytes_before if text.isascii() else len(text.encode()[:bytes_before].decode("utf-8", "replace"))

    def place(self, node: ast.AST) -> Location:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        return Location(self.shown, line, self._column(line, column) + 1)

    def span(self, node: ast.expr) -> tuple[int, int]:
        """Where `node` begins and ends, in characters of the text."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        start = self._starts[node.lineno - 1] + self._column(node.lineno, node.col_offset)
        return start, self._starts[end_line - 1] + self._column(end_line, end_column)

    def line_of(self, offset: int) -> str:
        """The line around an offset, up to the offset."""
        return self.text[self.text.rfind("\n", 0, offset) + 1 : offset]

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """What module-level names are bound to, if they are bound once and not changed afterwards."""
        return bound_once(self.tree.body, self.changed)

    @cached_property
    def changed(self) -> frozenset[str]:
        """Names whose value some code of the file changes in place."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Subscript, ast.Name)) and isinstance(node.ctx, (ast.Store, ast.Del)):
                holder = node.value if isinstance(node, ast.Subscript) else None
                found.update({holder.id} if isinstance(holder, ast.Name) else ())
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATING:
                found.update({node.func.value.id} if isinstance(node.func.value, ast.Name) else ())
        return frozenset(found)

    @cached_property
    def renamed(self) -> dict[str, ast.expr]:
        """``save_tool.name = "save"``: names that objects are given after they are made."""
        found: dict[str, ast.expr] = {}
        for node in ast.walk(self.tree) if ".name = " in self.text else ():
            if isinstance(node, ast.Assign):
                holders = [it.value for it in node.targets if isinstance(it, ast.Attribute) and it.attr == "name"]
                found |= {holder.id: node.value for holder in holders if isinstance(holder, ast.Name)}
        return found

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Functions of the module and methods of its classes, by ``function`` and ``Class.method``."""
        return dict(_functions(self.tree.body, ""))

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def imports(self) -> dict[str, tuple[str, str, int]]:
        """Local name -> module, name in it ("" for the module itself), and how many dots stood before it."""
        found: dict[str, tuple[str, str, int]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.asname or alias.name] = (node.module or "", alias.name, node.level)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    found[alias.asname or name] = (name, "", 0)
        return found


def bound_once(body: list[ast.stmt], changed: frozenset[str]) -> dict[str, ast.expr]:
    """Names that the statements bind exactly once, and to what; statements inside `if` and `try` count."""
    found: dict[str, ast.expr | None] = {}
    for name, value in _bindings(body):
        found[name] = None if name in found or name in changed else value
    return {name: value for name, value in found.items() if value is not None}


def _bindings(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr | None]]:
    for statement in body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if statement.value is not None:
                yield statement.target.id, statement.value
        elif isinstance(statement, (ast.If, ast.For, ast.AsyncFor, ast.While)):
            yield from _bindings([*statement.body, *statement.orelse])
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from _bindings(statement.body)
        elif isinstance(statement, ast.Try):
            handlers = [inner for handler in statement.handlers for inner in handler.body]
            yield from _bindings([*statement.body, *handlers, *statement.orelse, *statement.finalbody])


def _functions(body: list[ast.stmt], inside: str) -> Iterator[tuple[str, Function]]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield inside + statement.name, statement
            yield from _functions(statement.body, inside)  # tools are often made inside a function
        elif isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{statement.name}.")
        elif isinstance(statement, (ast.If, ast.Try, ast.With)):
            yield from _functions(statement.body, inside)


class PythonFiles:
    """The Python files of a project, and how one imports another."""

    def __init__(self, files: list[PythonFile]) -> None:
        self.files = files
        self._by_last: dict[str, list[tuple[tuple[str, ...], PythonFile]]] = {}
        for file in files:
            parts = tuple(file.shown.removesuffix(".py").removesuffix("/__init__").split("/"))
            self._by_last.setdefault(parts[-1], []).append((parts, file))

    def imported(self, module: str, level: int, by: PythonFile) -> PythonFile | None:
        """The file that ``import module`` in `by` reads, if it is one of the project's."""
        folder = by.shown.split("/")[:-1]
        wanted = tuple(module.split(".")) if module else ()
        if level:
            wanted = (*folder[: len(folder) - level + 1], *wanted)
        if not wanted:
            return None
        found = [(parts, file) for parts, file in self._by_last.get(wanted[-1], ()) if parts[-len(wanted) :] == wanted]
        exact = [file for parts, file in found if parts == wanted]
        if level or exact:
            return exact[0] if exact else None
        return max((file for _, file in found), key=lambda file: closeness(file.shown, by.shown), default=None)

    def imported_by(self, file: PythonFile) -> Iterator[PythonFile]:
        """The files of the project that `file` imports, modules and what stands in them alike."""
        for module, inner, level in file.imports.values():
            whole = f"{module}.{inner}" if module and inner else module or inner
            for name in (module, whole):
                found = self.imported(name, level, file) if name else None
                if found is not None:
                    yield found


def closeness(one: str, other: str) -> int:
    """How many folders two paths share; one more for the same folder, two for the same file."""
    if one == other:
        return len(one.split("/")) + 1
    first, second = one.split("/")[:-1], other.split("/")[:-1]
    shared = 0
    for mine, theirs in zip(first, second, strict=False):
        if mine != theirs:
            break
        shared += 1
    return shared + (first == second)
