"""`functions:` of a case, suite or instruction file, read and checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.errors import PathProblem, did_you_mean, shown_path
from evalkit.functions.schemas import compiled
from evalkit.model.case import Declaration
from evalkit.operators.shown import shown

Path = tuple[str | int, ...]

KEYS = ("description", "parameters", "returns", "patch", "alias")
_FOREIGN = {"inputSchema": "parameters", "input_schema": "parameters", "arguments": "parameters", "args": "parameters"}
_NO_OBJECTS = ("string", "number", "integer", "boolean", "array", "null")
_SCHEMA_KEYS = frozenset(("type", "properties", "$ref", "anyOf", "oneOf", "allOf", "required", "additionalProperties"))

_READ: dict[str, tuple[Declaration, ...]] = {}
_REMEMBERED = 1_000


def is_name(text: str) -> bool:
    """Whether a function may be called so: what Gemini takes; OpenAI takes less."""
    if text.isidentifier() and text.isascii() and len(text) <= 128:
        return True  # nearly all, without compiling the pattern
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", text) is not None


def parse_declarations(
    data: Any, *, path: Path = ("functions",), check_targets: bool = True
) -> tuple[tuple[Declaration, ...], list[PathProblem]]:
    """The declarations in `data`, and everything that is wrong with them.

    `data` is a mapping of name to ``{description, parameters, returns, patch, alias}``, or a list of such mappings with
    a `name` each; None and empty forms declare nothing. Equal data gives the same objects, so that their schemas are
    compiled once. `check_targets` imports what `patch` names, to see that it is there.
    """
    key = f"{check_targets}{data!r}"
    known = _READ.get(key)
    if known is not None:
        return known, []
    reader = _Reader(check_targets)
    declarations = tuple(reader.read(data, path))
    reader.names_are_distinct(declarations, path, isinstance(data, list))
    if not reader.problems:
        if len(_READ) >= _REMEMBERED:
            _READ.clear()
        declarations = _READ.setdefault(key, declarations)
    return declarations, reader.problems


class _Reader:
    def __init__(self, check_targets: bool) -> None:
        self.problems: list[PathProblem] = []
        self._check_targets = check_targets
        self._entries: dict[int, Path] = {}

    def _wrong(self, path: Path, message: str, *, at_key: bool = False) -> None:
        self.problems.append(PathProblem(path, message, at_key=at_key))

    def read(self, data: Any, path: Path) -> Iterator[Declaration]:
        if isinstance(data, Mapping):
            for name, entry in data.items():
                yield from self._entry(name, {} if entry is None else entry, (*path, name), KEYS)
        elif isinstance(data, list):
            for index, entry in enumerate(data):
                yield from self._listed(entry, (*path, index))
        elif data is not None:
            self._wrong(
                path, f"{shown_path(path)} must map names to declarations, or list declarations; got {shown(data)}"
            )

    def _listed(self, entry: Any, path: Path) -> Iterator[Declaration]:
        if not isinstance(entry, Mapping):
            self._wrong(path, f"a declaration is a mapping with a 'name'; got {shown(entry)}")
        elif entry.get("type") == "function" and isinstance(entry.get("function"), Mapping):
            self._wrong(path, "this is OpenAI's envelope; write what stands under its 'function' key directly")
        elif "name" not in entry:
            self._wrong(path, f"{shown_path(path)} has no 'name'")
        else:
            yield from self._entry(entry["name"], entry, path, ("name", *KEYS))

    def _entry(self, name: Any, entry: Any, path: Path, keys: tuple[str, ...]) -> Iterator[Declaration]:
        if not isinstance(name, str) or not is_name(name):
            at = (*path, "name") if "name" in keys else path
            self._wrong(
                at,
                f"{name!r} cannot name a function: a letter or _ first, then letters, digits, _ . : -, at most 128",
                at_key=at == path,
            )
            return
        if not isinstance(entry, Mapping):
            self._wrong(path, f"{shown_path(path)} must be a mapping of {', '.join(KEYS)}; got {shown(entry)}")
            return
        for key in entry:
            if key not in keys:
                near = f"; did you mean '{_FOREIGN[key]}'?" if key in _FOREIGN else did_you_mean(key, keys)
                self._wrong((*path, key), f"unknown key '{key}' in {shown_path(path)}{near}", at_key=True)
        yield self._declaration(name, entry, path)

    def _declaration(self, name: str, entry: Mapping[str, Any], path: Path) -> Declaration:
        description = entry.get("description")
        if description is not None and not isinstance(description, str):
            self._wrong((*path, "description"), f"the description must be text; got {shown(description)}")
            description = None
        declaration = Declaration(
            name=name,
            description=description or "",
            parameters=self._parameters(entry.get("parameters"), (*path, "parameters")),
            returns=self._schema(entry.get("returns"), (*path, "returns")),
            patch=self._patch(entry.get("patch"), (*path, "patch")),
            aliases=self._aliases(entry.get("alias"), (*path, "alias"), name),
        )
        self._entries[id(declaration)] = path
        return declaration

    def _parameters(self, schema: Any, path: Path) -> Mapping[str, Any] | None:
        if not isinstance(schema, Mapping):
            return self._schema(schema, path)
        if schema and _SCHEMA_KEYS.isdisjoint(schema) and all(isinstance(part, Mapping) for part in schema.values()):
            self._wrong(path, "parameters is a JSON Schema: put the arguments under 'properties'")
            return None
        if schema.get("type") in _NO_OBJECTS:
            self._wrong((*path, "type"), f"parameters must have type 'object'; got {shown(schema['type'])}")
            return None
        return self._schema(schema, path)

    def _schema(self, schema: Any, path: Path) -> Mapping[str, Any] | None:
        if schema is None:
            return None
        if not isinstance(schema, Mapping):
            self._wrong(path, f"{path[-1]} must be a JSON Schema (a mapping); got {shown(schema)}")
            return None
        found = compiled(schema).problems()
        for where, message in found:
            self._wrong((*path, *where), f"{shown_path((*path, *where))}: {message}")
        return None if found else schema

    def _patch(self, target: Any, path: Path) -> str | None:
        if target is None:
            return None
        from evalkit.functions.patchable import patch_problem

        problem = patch_problem(target, look=self._check_targets)
        if problem:
            self._wrong(path, f"cannot patch: {problem}")
            return None
        return str(target)

    def _aliases(self, value: Any, path: Path, own: str) -> tuple[str, ...]:
        names = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(names, list):
            self._wrong(path, f"alias must be a name or a list of names; got {shown(value)}")
            return ()
        for name in names:
            if not isinstance(name, str) or not is_name(name):
                self._wrong(path, f"{name!r} cannot be an alias: it is no function name")
            elif name == own:
                self._wrong(path, f"'{name}' is the function's own name; leave it out of 'alias'")
        return tuple(dict.fromkeys(name for name in names if isinstance(name, str) and name != own))

    def names_are_distinct(self, declarations: tuple[Declaration, ...], path: Path, is_list: bool) -> None:
        """No two functions answer to one name, and no two replace one real function."""
        taken: dict[str, Path] = {}
        for declaration in declarations:
            entry = self._entries[id(declaration)]
            self._take(taken, declaration.name, (*entry, "name") if is_list else entry, entry, "name")
        for declaration in declarations:
            entry = self._entries[id(declaration)]
            for name in declaration.aliases:
                self._take(taken, name, (*entry, "alias"), entry, "alias")
        patched: dict[str, Path] = {}
        for declaration in declarations:
            if declaration.patch:
                entry = self._entries[id(declaration)]
                self._take(patched, declaration.patch, (*entry, "patch"), entry, "patch target")

    def _take(self, taken: dict[str, Path], name: str, path: Path, entry: Path, what: str) -> None:
        other = taken.setdefault(name, entry)
        if other is not entry:
            self._wrong(path, f"{what} '{name}' is taken already by {shown_path(other)}")
