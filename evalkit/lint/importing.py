"""`--import`: what modules hold once they run, where the syntax alone does not tell. This runs the project's code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from evalkit.errors import Location
from evalkit.lint import shapes
from evalkit.lint.code import CodeReader
from evalkit.lint.facts import GEMINI_SCHEMA, UNKNOWN, Code, Declared, Entry, Implementation, Parameter, Table
from evalkit.lint.finding import Finding
from evalkit.lint.pythonfile import PythonFile

_DEPTH = 4


def import_declaring(reader: CodeReader, root: Path) -> list[Finding]:
    """Import every file of the first pass, and add what its module-level names hold to the reader's code."""
    findings: list[Finding] = []
    entry = str(root)
    added = entry not in sys.path
    if added:
        sys.path.insert(0, entry)
    try:
        for file in reader.read_so_far():
            module = _imported(file, findings)
            if module is not None:
                _Module(reader.code, file, module).read()
    finally:
        if added and entry in sys.path:
            sys.path.remove(entry)
    return findings


def _imported(file: PythonFile, findings: list[Finding]) -> ModuleType | None:
    name = file.shown.removesuffix(".py").removesuffix("/__init__").replace("/", ".").removeprefix("src.")
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        said = str(error).splitlines()
        findings.append(
            Finding(
                name="import-failed",
                location=Location(file.shown, 1, 1),
                message=f"importing {name} raised {type(error).__name__}: {said[0] if said else ''}",
                advice="make it importable from the project's root, or leave it out with `exclude`",
            )
        )
        return None


class _Module:
    """The names of one module, and what of them is about functions."""

    def __init__(self, code: Code, file: PythonFile, module: ModuleType) -> None:
        self._code = code
        self._file = file
        self._module = module
        self._known = {(function.name, function.file) for function in code.declared}

    def read(self) -> None:
        for name, value in vars(self._module).items():
            if not name.startswith("__"):
                place = self._place(name)
                for found in _declarations(value, 0):
                    self._declare(found, place)
                self._table(value, place)

    def _place(self, name: str) -> Location:
        node = self._file.constants.get(name)
        return self._file.place(node) if node is not None else Location(self._file.shown, 1, 1)

    def _declare(self, data: Mapping[str, Any], place: Location) -> None:
        form = GEMINI_SCHEMA if data.get("form") == GEMINI_SCHEMA else None
        found = shapes.declared(data, lambda path: place, form=form)
        if isinstance(found, Declared) and (found.name, self._file.shown) not in self._known:
            self._known.add((found.name, self._file.shown))
            self._code.declared.append(found)

    def _table(self, value: Any, place: Location) -> None:
        """A dictionary of names and callables that the syntax did not show as one, made at import."""
        if not isinstance(value, dict) or not value or not all(isinstance(key, str) for key in value):
            return
        if not all(callable(item) and not isinstance(item, type) for item in value.values()):
            return
        shown = [table for table in self._code.tables if table.place.file == place.file and not table.branches]
        if any(table.names >= value.keys() for table in shown):
            return
        self._code.tables[:] = [
            table for table in self._code.tables if not (table in shown and table.names <= value.keys())
        ]
        entries = tuple(
            Entry(name=key, place=place, target=_implementation(item, place), target_name=getattr(item, "__name__", ""))
            for key, item in value.items()
        )
        self._code.tables.append(Table(place=place, entries=entries))


def _declarations(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        if shapes.form_of(value) is not None:
            yield value
        elif depth < _DEPTH:
            for item in value.values():
                yield from _declarations(item, depth + 1)
    elif isinstance(value, (list, tuple)) and depth < _DEPTH:
        for item in value:
            yield from _declarations(item, depth + 1)
    elif type(value).__name__ == "FunctionDeclaration":
        yield from _as_mapping(value)
    elif type(value).__name__ == "Tool" and depth < _DEPTH:
        for item in getattr(value, "function_declarations", None) or ():
            yield from _declarations(item, depth + 1)


def _as_mapping(value: Any) -> Iterator[Mapping[str, Any]]:
    dump: Callable[..., Any] | None = getattr(value, "model_dump", None)
    if dump is not None:
        data = dump(mode="json", exclude_none=True, by_alias=False)
        yield {**data, "form": GEMINI_SCHEMA} if "parameters" in data else data


def _implementation(value: Any, place: Location) -> Implementation | None:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    kinds = inspect.Parameter
    named = [it for it in signature.parameters.values() if it.kind not in (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL)]
    code = getattr(inspect.unwrap(value), "__code__", None)
    return Implementation(
        name=getattr(value, "__name__", type(value).__name__),
        place=Location(place.file, code.co_firstlineno, 1) if code is not None else place,
        parameters=tuple(
            Parameter(
                name=it.name,
                place=place,
                required=it.default is kinds.empty,
                default=UNKNOWN if it.default is kinds.empty else it.default,
                annotation=inspect.formatannotation(it.annotation) if it.annotation is not kinds.empty else "",
            )
            for it in named
        ),
        takes_any=any(it.kind is kinds.VAR_KEYWORD for it in signature.parameters.values()),
        comparable=not any(it.kind is kinds.VAR_POSITIONAL for it in signature.parameters.values()),
    )
