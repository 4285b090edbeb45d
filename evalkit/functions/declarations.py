"""`functions:` of a case, suite or instruction file, read and checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from evalkit.errors import KeyPath, PathProblem, did_you_mean, format_path
from evalkit.fields.schema import compile_schema
from evalkit.functions.targets import find_patch_problem
from evalkit.jsonvalue import JsonObject
from evalkit.model.case import Declaration
from evalkit.text.format import format_value

KEYS = ("description", "parameters", "returns", "patch", "alias")
_FOREIGN_KEYS = {
    "inputSchema": "parameters",
    "input_schema": "parameters",
    "arguments": "parameters",
    "args": "parameters",
}
_NON_OBJECT_TYPES = ("string", "number", "integer", "boolean", "array", "null")
_SCHEMA_KEYS = frozenset(("type", "properties", "$ref", "anyOf", "oneOf", "allOf", "required", "additionalProperties"))

_CACHE: dict[str, tuple[Declaration, ...]] = {}
_CACHE_SIZE = 1_000


def is_function_name(text: str) -> bool:
    """Return whether a function may be called so: what Gemini takes; OpenAI takes less."""
    if text.isidentifier() and text.isascii() and len(text) <= 128:
        return True  # nearly all, without compiling the pattern
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", text) is not None


def parse_declarations(
    data: object, *, path: KeyPath = ("functions",), check_targets: bool = True
) -> tuple[tuple[Declaration, ...], list[PathProblem]]:
    """Return the declarations in `data`, and everything that is wrong with them.

    `data` is a mapping of name to ``{description, parameters, returns, patch, alias}``, or a list of such mappings with
    a `name` each; None and empty forms declare nothing. Equal data gives the same objects, so that their schemas are
    compiled once. `check_targets` imports what `patch` names, to see that it is there.
    """
    key = f"{check_targets}{data!r}"
    cached = _CACHE.get(key)
    if cached is not None:
        return cached, []
    reader = _DeclarationReader(check_targets)
    declarations = tuple(reader.read(data, path))
    reader.check_names(declarations, path, isinstance(data, list))
    if not reader.problems:
        if len(_CACHE) >= _CACHE_SIZE:
            _CACHE.clear()
        declarations = _CACHE.setdefault(key, declarations)
    return declarations, reader.problems


class _DeclarationReader:
    def __init__(self, check_targets: bool) -> None:
        self.problems: list[PathProblem] = []
        self._check_targets = check_targets
        self._entries: dict[int, KeyPath] = {}

    def _add_problem(self, path: KeyPath, message: str, *, at_key: bool = False) -> None:
        self.problems.append(PathProblem(path, message, at_key=at_key))

    def read(self, data: object, path: KeyPath) -> Iterator[Declaration]:
        if isinstance(data, Mapping):
            for name, entry in data.items():
                yield from self._read_entry(name, {} if entry is None else entry, (*path, name), KEYS)
        elif isinstance(data, list):
            for index, entry in enumerate(data):
                yield from self._read_listed(entry, (*path, index))
        elif data is not None:
            self._add_problem(
                path,
                f"{format_path(path)} must map names to declarations, or list declarations; got {format_value(data)}",
            )

    def _read_listed(self, entry: object, path: KeyPath) -> Iterator[Declaration]:
        if not isinstance(entry, Mapping):
            self._add_problem(path, f"a declaration is a mapping with a 'name'; got {format_value(entry)}")
        elif entry.get("type") == "function" and isinstance(entry.get("function"), Mapping):
            self._add_problem(path, "this is OpenAI's envelope; write what stands under its 'function' key directly")
        elif "name" not in entry:
            self._add_problem(path, f"{format_path(path)} has no 'name'")
        else:
            yield from self._read_entry(entry["name"], entry, path, ("name", *KEYS))

    def _read_entry(self, name: object, entry: object, path: KeyPath, keys: tuple[str, ...]) -> Iterator[Declaration]:
        if not isinstance(name, str) or not is_function_name(name):
            at = (*path, "name") if "name" in keys else path
            self._add_problem(
                at,
                f"{name!r} cannot name a function: a letter or _ first, then letters, digits, _ . : -, at most 128",
                at_key=at == path,
            )
            return
        if not isinstance(entry, Mapping):
            self._add_problem(
                path, f"{format_path(path)} must be a mapping of {', '.join(KEYS)}; got {format_value(entry)}"
            )
            return
        for key in entry:
            if key not in keys:
                hint = f"; did you mean '{_FOREIGN_KEYS[key]}'?" if key in _FOREIGN_KEYS else did_you_mean(key, keys)
                self._add_problem((*path, key), f"unknown key '{key}' in {format_path(path)}{hint}", at_key=True)
        yield self._read_declaration(name, entry, path)

    def _read_declaration(self, name: str, entry: JsonObject, path: KeyPath) -> Declaration:
        description = entry.get("description")
        if description is not None and not isinstance(description, str):
            self._add_problem((*path, "description"), f"the description must be text; got {format_value(description)}")
            description = None
        declaration = Declaration(
            name=name,
            description=description or "",
            parameters=self._read_parameters(entry.get("parameters"), (*path, "parameters")),
            returns=self._read_schema(entry.get("returns"), (*path, "returns")),
            patch=self._read_patch(entry.get("patch"), (*path, "patch")),
            aliases=self._read_aliases(entry.get("alias"), (*path, "alias"), name),
        )
        self._entries[id(declaration)] = path
        return declaration

    def _read_parameters(self, schema: object, path: KeyPath) -> JsonObject | None:
        if not isinstance(schema, Mapping):
            return self._read_schema(schema, path)
        if schema and _SCHEMA_KEYS.isdisjoint(schema) and all(isinstance(part, Mapping) for part in schema.values()):
            self._add_problem(path, "parameters is a JSON Schema: put the arguments under 'properties'")
            return None
        if schema.get("type") in _NON_OBJECT_TYPES:
            self._add_problem(
                (*path, "type"), f"parameters must have type 'object'; got {format_value(schema['type'])}"
            )
            return None
        return self._read_schema(schema, path)

    def _read_schema(self, schema: object, path: KeyPath) -> JsonObject | None:
        if schema is None:
            return None
        if not isinstance(schema, Mapping):
            self._add_problem(path, f"{path[-1]} must be a JSON Schema (a mapping); got {format_value(schema)}")
            return None
        problems = compile_schema(schema).find_problems()
        for steps, message in problems:
            self._add_problem((*path, *steps), f"{format_path((*path, *steps))}: {message}")
        return None if problems else schema

    def _read_patch(self, target: object, path: KeyPath) -> str | None:
        if target is None:
            return None
        problem = find_patch_problem(target, check_exists=self._check_targets)
        if problem:
            self._add_problem(path, f"cannot patch: {problem}")
            return None
        return str(target)

    def _read_aliases(self, value: object, path: KeyPath, function_name: str) -> tuple[str, ...]:
        names = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(names, list):
            self._add_problem(path, f"alias must be a name or a list of names; got {format_value(value)}")
            return ()
        for name in names:
            if not isinstance(name, str) or not is_function_name(name):
                self._add_problem(path, f"{name!r} cannot be an alias: it is no function name")
            elif name == function_name:
                self._add_problem(path, f"'{name}' is the function's own name; leave it out of 'alias'")
        return tuple(dict.fromkeys(name for name in names if isinstance(name, str) and name != function_name))

    def check_names(self, declarations: tuple[Declaration, ...], path: KeyPath, is_list: bool) -> None:
        """No two functions answer to one name, and no two replace one real function."""
        owners: dict[str, KeyPath] = {}
        for declaration in declarations:
            entry = self._entries[id(declaration)]
            self._claim_name(owners, declaration.name, (*entry, "name") if is_list else entry, entry, "name")
        for declaration in declarations:
            entry = self._entries[id(declaration)]
            for name in declaration.aliases:
                self._claim_name(owners, name, (*entry, "alias"), entry, "alias")
        target_owners: dict[str, KeyPath] = {}
        for declaration in declarations:
            if declaration.patch:
                entry = self._entries[id(declaration)]
                self._claim_name(target_owners, declaration.patch, (*entry, "patch"), entry, "patch target")

    def _claim_name(self, owners: dict[str, KeyPath], name: str, path: KeyPath, entry: KeyPath, role: str) -> None:
        owner = owners.setdefault(name, entry)
        if owner is not entry:
            self._add_problem(path, f"{role} '{name}' is taken already by {format_path(owner)}")
