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
from evalkit.lint.facts import forms as shapes
from evalkit.lint.facts.python_code import CodeReader
from evalkit.lint.facts.python_files import PythonFile
from evalkit.lint.facts.records import (
    GEMINI_SCHEMA,
    UNKNOWN,
    CodeFacts,
    DeclaredFunction,
    DispatchEntry,
    DispatchTable,
    Implementation,
    Parameter,
)
from evalkit.lint.finding import Finding

_DEPTH = 4


def import_declaring_files(reader: CodeReader, root: Path) -> list[Finding]:
    """Import every file of the first pass, and add what its module-level names hold to the reader's code."""
    findings: list[Finding] = []
    entry = str(root)
    added = entry not in sys.path
    if added:
        sys.path.insert(0, entry)
    try:
        for file in reader.list_read_files():
            module = _import_file(file, findings)
            if module is not None:
                _ModuleReader(reader.code, file, module).read()
    finally:
        if added and entry in sys.path:
            sys.path.remove(entry)
    return findings


def _import_file(file: PythonFile, findings: list[Finding]) -> ModuleType | None:
    name = file.relative_path.removesuffix(".py").removesuffix("/__init__").replace("/", ".").removeprefix("src.")
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        lines = str(error).splitlines()
        findings.append(
            Finding(
                name="import-failed",
                location=Location(file.relative_path, 1, 1),
                message=f"importing {name} raised {type(error).__name__}: {lines[0] if lines else ''}",
                advice="make it importable from the project's root, or leave it out with `exclude`",
            )
        )
        return None


class _ModuleReader:
    """The names of one module, and what of them is about functions."""

    def __init__(self, code: CodeFacts, file: PythonFile, module: ModuleType) -> None:
        self._code = code
        self._file = file
        self._module = module
        self._declared_keys = {(function.name, function.file) for function in code.declarations}

    def read(self) -> None:
        for name, value in vars(self._module).items():
            if not name.startswith("__"):
                place = self._locate(name)
                for declaration in _find_declarations(value, 0):
                    self._declare(declaration, place)
                self._read_table(value, place)

    def _locate(self, name: str) -> Location:
        node = self._file.constants.get(name)
        return self._file.locate(node) if node is not None else Location(self._file.relative_path, 1, 1)

    def _declare(self, data: Mapping[str, Any], place: Location) -> None:
        form = GEMINI_SCHEMA if data.get("form") == GEMINI_SCHEMA else None
        function = shapes.read_declaration(data, lambda path: place, form=form)
        if (
            isinstance(function, DeclaredFunction)
            and (function.name, self._file.relative_path) not in self._declared_keys
        ):
            self._declared_keys.add((function.name, self._file.relative_path))
            self._code.declarations.append(function)

    def _read_table(self, value: Any, place: Location) -> None:
        """A dictionary of names and callables that the syntax did not show as one, made at import."""
        if not isinstance(value, dict) or not value or not all(isinstance(key, str) for key in value):
            return
        if not all(callable(item) and not isinstance(item, type) for item in value.values()):
            return
        tables = [table for table in self._code.tables if table.place.file == place.file and not table.is_chain]
        if any(table.names >= value.keys() for table in tables):
            return
        self._code.tables[:] = [
            table for table in self._code.tables if not (table in tables and table.names <= value.keys())
        ]
        entries = tuple(
            DispatchEntry(
                name=key,
                place=place,
                target=_read_implementation(item, place),
                target_name=getattr(item, "__name__", ""),
            )
            for key, item in value.items()
        )
        self._code.tables.append(DispatchTable(place=place, entries=entries))


def _find_declarations(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        if shapes.find_form(value) is not None:
            yield value
        elif depth < _DEPTH:
            for item in value.values():
                yield from _find_declarations(item, depth + 1)
    elif isinstance(value, (list, tuple)) and depth < _DEPTH:
        for item in value:
            yield from _find_declarations(item, depth + 1)
    elif type(value).__name__ == "FunctionDeclaration":
        yield from _to_mapping(value)
    elif type(value).__name__ == "Tool" and depth < _DEPTH:
        for item in getattr(value, "function_declarations", None) or ():
            yield from _find_declarations(item, depth + 1)


def _to_mapping(value: Any) -> Iterator[Mapping[str, Any]]:
    dump: Callable[..., Any] | None = getattr(value, "model_dump", None)
    if dump is not None:
        data = dump(mode="json", exclude_none=True, by_alias=False)
        yield {**data, "form": GEMINI_SCHEMA} if "parameters" in data else data


def _read_implementation(value: Any, place: Location) -> Implementation | None:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    kinds = inspect.Parameter
    named = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind not in (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL)
    ]
    code = getattr(inspect.unwrap(value), "__code__", None)
    return Implementation(
        name=getattr(value, "__name__", type(value).__name__),
        place=Location(place.file, code.co_firstlineno, 1) if code is not None else place,
        parameters=tuple(
            Parameter(
                name=parameter.name,
                place=place,
                required=parameter.default is kinds.empty,
                default=UNKNOWN if parameter.default is kinds.empty else parameter.default,
                annotation=inspect.formatannotation(parameter.annotation)
                if parameter.annotation is not kinds.empty
                else "",
            )
            for parameter in named
        ),
        takes_any=any(parameter.kind is kinds.VAR_KEYWORD for parameter in signature.parameters.values()),
        is_comparable=not any(parameter.kind is kinds.VAR_POSITIONAL for parameter in signature.parameters.values()),
    )
