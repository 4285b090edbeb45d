"""Which name a model meant, which arguments it gave: read against the declarations, never guessed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

NAME_KEYS = ("name", "tool", "function", "tool_name", "function_name", "action")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input", "tool_input", "action_input", "kwargs")


_PYTHON = {"True": True, "False": False, "None": None}


class RefusedError(ValueError):
    """Looks like a call, and is none that may be made; the text says why."""


class Names:
    """The declared functions, by the names that models write for them, aliases included."""

    def __init__(self, functions: Iterable[Any] | None) -> None:
        self.declared = functions is not None
        self.parameters: dict[str, Mapping[str, Any]] = {}
        for function in functions or ():
            name, schema = _declaration(function)
            self.parameters |= dict.fromkeys((name, *_aliases(function)), schema)
        self._folded: dict[str, list[str]] = {}
        for name in self.parameters:
            self._folded.setdefault(name.casefold(), []).append(name)

    def resolve(self, written: object, repairs: list[str], *, explicit: bool) -> str:
        """The declared name that was written; without declarations any name, if the envelope is explicit."""
        if not isinstance(written, str) or not written.strip():
            raise RefusedError("the call has no name")
        name = written.strip()
        if not self.declared:
            if explicit:
                return name
            raise RefusedError(f"'{name}' is not in an explicit envelope, and no functions are declared")
        for candidate in (name, name.rsplit(".", 1)[-1]):
            if candidate in self.parameters:
                if candidate != name:
                    repairs.append(f"namespace left out of the name '{name}'")
                return candidate
            same = self._folded.get(candidate.casefold(), [])
            if len(same) == 1:
                repairs.append(f"name '{name}' written for '{same[0]}'")
                return same[0]
        raise RefusedError(f"'{name}' is not declared")

    def knows(self, written: str) -> bool:
        """Whether `written`, in whatever case, is a declared name."""
        return written.casefold() in self._folded

    def properties(self, name: str) -> Mapping[str, Any]:
        found = self.parameters.get(name, {}).get("properties", {})
        return found if isinstance(found, Mapping) else {}

    def typed(self, name: str, argument: str, text: str) -> Any:
        """What stood between tags, as the declared type; text where nothing else is declared."""
        schema = self.properties(name).get(argument)
        kinds = _kinds(schema, self.parameters.get(name, {}))
        if not kinds or kinds == {"string"}:
            return text
        stripped = text.strip()
        try:
            value = (
                {"True": True, "False": False, "None": None}[stripped] if stripped in _PYTHON else json.loads(stripped)
            )
        except (ValueError, RecursionError):
            return text
        return text if "string" in kinds and _kind(value) not in kinds else value

    def positional(self, name: str, values: list[Any], repairs: list[str]) -> dict[str, Any]:
        """Arguments given by position, under their declared names."""
        if not values:
            return {}
        order = list(self.properties(name))
        if len(values) > len(order):
            raise RefusedError(f"'{name}' was given {len(values)} arguments by position and declares {len(order)}")
        repairs.append("arguments by position")
        return dict(zip(order, values, strict=False))

    def call_of(
        self, value: Any, repairs: list[str], *, explicit: bool, named: str | None
    ) -> tuple[str, dict[str, Any]]:
        """Name and arguments of one JSON object. `named`: the envelope itself gave the name."""
        if not isinstance(value, dict):
            raise RefusedError("the call is no JSON object")
        for wrapper in ("function", "function_call"):
            inner = value.get(wrapper)
            if isinstance(inner, dict) and any(key in inner for key in NAME_KEYS):
                value = inner
        if named is not None:
            return self._named(value, named, repairs, explicit)
        key = next((key for key in NAME_KEYS if isinstance(value.get(key), str)), None)
        if key is None:
            return self._keyed_by_name(value, repairs, explicit)
        name = self.resolve(value[key], repairs, explicit=explicit)
        held = next((k for k in ARGUMENT_KEYS if k in value and k != key), None)
        if held is not None:
            if self._declares(name, value[held]):
                raise RefusedError(f"this is the declaration of '{name}', and no call")
            return name, _mapping(value[held])
        rest = {k: v for k, v in value.items() if k not in (key, "id", "type")}
        if rest and set(rest) <= set(self.properties(name)):
            repairs.append("arguments stood beside the name")
            return name, rest
        if rest or not explicit:
            raise RefusedError(f"the call of '{name}' has no arguments object")
        return name, {}

    def _declares(self, name: str, held: Any) -> bool:
        """Whether `held` is a JSON Schema of arguments, which models repeat, and not what the function takes."""
        is_schema = isinstance(held, dict) and held.get("type") == "object" and isinstance(held.get("properties"), dict)
        return is_schema and bool(self.parameters.get(name)) and not set(held) <= set(self.properties(name))

    def _named(
        self, value: dict[str, Any], named: str, repairs: list[str], explicit: bool
    ) -> tuple[str, dict[str, Any]]:
        name = self.resolve(named, repairs, explicit=explicit)
        properties = self.properties(name)
        if value.get("name") == named and "name" not in properties:
            value = {key: item for key, item in value.items() if key != "name"}
        if len(value) == 1 and (key := next(iter(value))) in ARGUMENT_KEYS and key not in properties:
            return name, _mapping(value[key])
        return name, value

    def _keyed_by_name(self, value: dict[str, Any], repairs: list[str], explicit: bool) -> tuple[str, dict[str, Any]]:
        if len(value) == 1 and self.declared:
            written, arguments = next(iter(value.items()))
            if self.knows(written) and isinstance(arguments, dict):
                repairs.append("the name was the key of its arguments")
                return self.resolve(written, repairs, explicit=explicit), arguments
        raise RefusedError("the call has no name")


def _declaration(function: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(function, str):
        return function, {}
    if isinstance(function, Mapping):
        inner = function.get("function")
        function = inner if isinstance(inner, Mapping) else function
        schema = function.get("parameters") or function.get("inputSchema") or function.get("input_schema")
        return str(function["name"]), schema if isinstance(schema, Mapping) else {}
    return str(function.name), function.parameters or {}


def _aliases(function: Any) -> Iterable[str]:
    """Other names of a declaration: a call keeps the one that was written, and the dispatcher knows whose it is."""
    found: Iterable[str] = getattr(function, "aliases", ())
    return found


def _kinds(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """Type names that a property's schema allows; empty when it says nothing."""
    if not isinstance(schema, Mapping):
        return set()
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        schema = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    kinds = schema.get("type", [])
    found = {kinds} if isinstance(kinds, str) else set(kinds)
    for alternative in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        found |= _kinds(alternative, root)
    return found


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number", type(None): "null"}
    return names[type(value)]


def _mapping(value: Any) -> dict[str, Any]:
    """The arguments object; a JSON text of one is read, as on OpenAI's wire."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError):
            raise RefusedError("the arguments are no JSON object") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RefusedError("the arguments are no JSON object")
    return value
