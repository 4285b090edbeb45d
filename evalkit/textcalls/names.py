"""Which name a model meant, which arguments it gave: read against the declarations, never guessed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from evalkit.jsonvalue import JsonDict, JsonObject

NAME_KEYS = ("name", "tool", "function", "tool_name", "function_name", "action")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input", "tool_input", "action_input", "kwargs")


_PYTHON = {"True": True, "False": False, "None": None}


class RejectedCallError(ValueError):
    """A text that looks like a call may not be made; the message says why."""


class Names:
    """The declared functions, by the names that models write for them, aliases included."""

    def __init__(self, functions: Iterable[Any] | None) -> None:
        self.has_declarations = functions is not None
        self.parameters: dict[str, JsonObject] = {}
        for function in functions or ():
            name, schema = _read_declaration(function)
            self.parameters |= dict.fromkeys((name, *_get_aliases(function)), schema)
        self._folded: dict[str, list[str]] = {}
        for name in self.parameters:
            self._folded.setdefault(name.casefold(), []).append(name)

    def resolve(self, written_name: object, repairs: list[str], *, explicit: bool) -> str:
        """Return the declared name that was written; without declarations any name, if the envelope is explicit."""
        if not isinstance(written_name, str) or not written_name.strip():
            raise RejectedCallError("the call has no name")
        name = written_name.strip()
        if not self.has_declarations:
            if explicit:
                return name
            raise RejectedCallError(f"'{name}' is not in an explicit envelope, and no functions are declared")
        for candidate in (name, name.rsplit(".", 1)[-1]):
            if candidate in self.parameters:
                if candidate != name:
                    repairs.append(f"namespace left out of the name '{name}'")
                return candidate
            same = self._folded.get(candidate.casefold(), [])
            if len(same) == 1:
                repairs.append(f"name '{name}' written for '{same[0]}'")
                return same[0]
        raise RejectedCallError(f"'{name}' is not declared")

    def is_known(self, written_name: str) -> bool:
        """Tell whether `written_name`, in whatever case, is a declared name."""
        return written_name.casefold() in self._folded

    def get_properties(self, name: str) -> JsonObject:
        properties = self.parameters.get(name, {}).get("properties", {})
        return properties if isinstance(properties, Mapping) else {}

    def parse_typed(self, name: str, argument: str, text: str) -> Any:
        """Parse the text between tags as the declared type; it stays text where nothing else is declared."""
        schema = self.get_properties(name).get(argument)
        kinds = _find_types(schema, self.parameters.get(name, {}))
        if not kinds or kinds == {"string"}:
            return text
        stripped = text.strip()
        try:
            value = (
                {"True": True, "False": False, "None": None}[stripped] if stripped in _PYTHON else json.loads(stripped)
            )
        except (ValueError, RecursionError):
            return text
        return text if "string" in kinds and _get_type(value) not in kinds else value

    def bind_positional(self, name: str, values: list[Any], repairs: list[str]) -> JsonDict:
        """Bind arguments given by position to their declared names."""
        if not values:
            return {}
        order = list(self.get_properties(name))
        if len(values) > len(order):
            raise RejectedCallError(f"'{name}' was given {len(values)} arguments by position and declares {len(order)}")
        repairs.append("arguments by position")
        return dict(zip(order, values, strict=False))

    def read_call(
        self, value: object, repairs: list[str], *, explicit: bool, named: str | None
    ) -> tuple[str, JsonDict]:
        """Name and arguments of one JSON object. `named`: the envelope itself gave the name."""
        if not isinstance(value, dict):
            raise RejectedCallError("the call is no JSON object")
        for wrapper in ("function", "function_call"):
            inner = value.get(wrapper)
            if isinstance(inner, dict) and any(key in inner for key in NAME_KEYS):
                value = inner
        if named is not None:
            return self._read_named_call(value, named, repairs, explicit)
        key = next((key for key in NAME_KEYS if isinstance(value.get(key), str)), None)
        if key is None:
            if len(value) == 1 and self.has_declarations:
                written_name, arguments = next(iter(value.items()))
                if self.is_known(written_name) and isinstance(arguments, dict):
                    repairs.append("the name was the key of its arguments")
                    return self.resolve(written_name, repairs, explicit=explicit), arguments
            raise RejectedCallError("the call has no name")
        name = self.resolve(value[key], repairs, explicit=explicit)
        arguments_key = next((k for k in ARGUMENT_KEYS if k in value and k != key), None)
        if arguments_key is not None:
            if self._is_declaration(name, value[arguments_key]):
                raise RejectedCallError(f"this is the declaration of '{name}', and no call")
            return name, _to_mapping(value[arguments_key])
        rest = {k: v for k, v in value.items() if k not in (key, "id", "type")}
        if rest and set(rest) <= set(self.get_properties(name)):
            repairs.append("arguments stood beside the name")
            return name, rest
        if rest or not explicit:
            raise RejectedCallError(f"the call of '{name}' has no arguments object")
        return name, {}

    def _is_declaration(self, name: str, value: Any) -> bool:
        """Tell whether `value` is a JSON Schema of arguments, which models repeat, and not the arguments."""
        is_schema = (
            isinstance(value, dict) and value.get("type") == "object" and isinstance(value.get("properties"), dict)
        )
        return is_schema and bool(self.parameters.get(name)) and not set(value) <= set(self.get_properties(name))

    def _read_named_call(self, value: JsonDict, named: str, repairs: list[str], explicit: bool) -> tuple[str, JsonDict]:
        name = self.resolve(named, repairs, explicit=explicit)
        properties = self.get_properties(name)
        if value.get("name") == named and "name" not in properties:
            value = {key: item for key, item in value.items() if key != "name"}
        if len(value) == 1 and (key := next(iter(value))) in ARGUMENT_KEYS and key not in properties:
            return name, _to_mapping(value[key])
        return name, value


def _read_declaration(function: Any) -> tuple[str, JsonObject]:
    if isinstance(function, str):
        return function, {}
    if isinstance(function, Mapping):
        inner = function.get("function")
        function = inner if isinstance(inner, Mapping) else function
        schema = function.get("parameters") or function.get("inputSchema") or function.get("input_schema")
        return str(function["name"]), schema if isinstance(schema, Mapping) else {}
    return str(function.name), function.parameters or {}


def _get_aliases(function: object) -> Iterable[str]:
    """Other names of a declaration: a call keeps the one that was written, and the dispatcher knows whose it is."""
    aliases: Iterable[str] = getattr(function, "aliases", ())
    return aliases


def _find_types(schema: Any, root: JsonObject) -> set[str]:
    """Type names that a property's schema allows; empty when it says nothing."""
    if not isinstance(schema, Mapping):
        return set()
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        schema = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
    kinds = schema.get("type", [])
    types = {kinds} if isinstance(kinds, str) else set(kinds)
    for alternative in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        types |= _find_types(alternative, root)
    return types


def _get_type(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number", type(None): "null"}
    return names[type(value)]


def _to_mapping(value: object) -> JsonDict:
    """Return the arguments object; a JSON text of one is parsed, as on OpenAI's wire."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError):
            raise RejectedCallError("the arguments are no JSON object") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RejectedCallError("the arguments are no JSON object")
    return value
