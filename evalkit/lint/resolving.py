"""From an expression that stands for a function to the function's own definition, through imports."""

from __future__ import annotations

import ast

from evalkit.lint.facts import Implementation
from evalkit.lint.pythonfile import PythonFile, PythonFiles
from evalkit.lint.signatures import Signatures
from evalkit.lint.static import last_name
from evalkit.lint.walking import Visit

_DEPTH = 5


class Resolver:
    """Looks functions up in the project's files."""

    def __init__(self, files: PythonFiles, signatures: Signatures) -> None:
        self._files = files
        self.signatures = signatures

    def function(self, node: ast.expr, visit: Visit) -> Implementation | None:
        """The function that `node` names: ``search``, ``tools.search``, ``self.search``, ``partial(search, db)``."""
        file = visit.scope.file
        if isinstance(node, ast.Name):
            return self.named(node.id, file)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, visit)
        if isinstance(node, ast.Call) and last_name(node.func) == "partial" and node.args:
            found = self.function(node.args[0], visit)
            return None if found is None else _applied(found, node)
        return None

    def named(self, name: str, file: PythonFile, depth: int = 0) -> Implementation | None:
        """A function of the module `file`, its own or an imported one."""
        if name in file.functions:
            return self.signatures.read(file.functions[name], file)
        if name in file.imports and depth < _DEPTH:
            module, inner, level = file.imports[name]
            source = self._files.imported(module, level, file) if inner else None
            return self.named(inner, source, depth + 1) if source is not None and source is not file else None
        return None

    def _attribute(self, node: ast.Attribute, visit: Visit) -> Implementation | None:
        file, base = visit.scope.file, node.value
        if isinstance(base, ast.Name) and base.id in ("self", "cls") and visit.owner is not None:
            return self._method(visit.owner.name, node.attr, file)
        if isinstance(base, ast.Name) and base.id in file.classes:
            return self._method(base.id, node.attr, file)
        if isinstance(base, ast.Name) and base.id in file.imports:
            module, inner, level = file.imports[base.id]
            name = f"{module}.{inner}" if module and inner else module or inner
            source = self._files.imported(name, level, file)
            if source is not None:
                return self.named(node.attr, source)
        return None

    def _method(self, owner: str, name: str, file: PythonFile) -> Implementation | None:
        found = file.functions.get(f"{owner}.{name}")
        return None if found is None else self.signatures.read(found, file, is_method=True)


def _applied(found: Implementation, call: ast.Call) -> Implementation:
    """What is left to pass after ``partial(function, ...)``."""
    from msgspec.structs import replace

    named = {keyword.arg for keyword in call.keywords}
    left = [parameter for parameter in found.parameters[len(call.args) - 1 :] if parameter.name not in named]
    return replace(found, parameters=tuple(left))
