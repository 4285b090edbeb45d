"""From an expression that stands for a function to the function's own definition, through imports."""

from __future__ import annotations

import ast

from evalkit.lint.facts import Implementation
from evalkit.lint.pythonfile import PythonFile, PythonFiles
from evalkit.lint.signatures import SignatureReader
from evalkit.lint.static import get_last_name
from evalkit.lint.walking import NodeVisit

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
