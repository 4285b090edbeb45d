"""Ways in which a call's arguments break the declared schema.

Beyond JSON Schema: an argument that the schema does not name is reported even where the schema forgot
``additionalProperties: false``. Models invent arguments, and a schema that was written for a model lists all there
are. It is not reported where the schema says otherwise: ``additionalProperties: true`` or a schema,
``patternProperties``, ``unevaluatedProperties``, or no ``properties`` at all. This holds for arguments, not for the
keys of objects inside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from evalkit.errors import did_you_mean
from evalkit.fields.schema import CompiledSchema, compile_schema
from evalkit.jsonvalue import JsonObject
from evalkit.model.case import Declaration
from evalkit.model.transcript import Violation
from evalkit.text.format import format_value

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError


_VALUE_LIMIT = 60  # characters of a value in a message
_MAX_REFERENCES = 20  # of references and combinations


class _Parameters:
    """A declaration's parameters, compiled; `names` are all arguments there are, None if others are allowed too."""

    __slots__ = ("declaration", "names", "schema")

    def __init__(self, declaration: Declaration, parameters: JsonObject) -> None:
        self.declaration = declaration  # keeps it alive: its id is the key under which this is found
        self.schema: CompiledSchema = compile_schema(parameters)
        self.names = find_argument_names(parameters)


_BY_DECLARATION: dict[int, _Parameters] = {}
_CACHE_SIZE = 10_000


def _get_parameters(declaration: Declaration) -> _Parameters | None:
    if declaration.parameters is None:
        return None
    parameters = _BY_DECLARATION.get(id(declaration))
    if parameters is None:
        if len(_BY_DECLARATION) >= _CACHE_SIZE:
            _BY_DECLARATION.clear()
        parameters = _BY_DECLARATION[id(declaration)] = _Parameters(declaration, declaration.parameters)
    return parameters


def find_argument_violations(declaration: Declaration, arguments: object) -> tuple[Violation, ...]:
    """List every way in which `arguments` break the declared parameters; none where no parameters are declared."""
    parameters = _get_parameters(declaration)
    if parameters is None:
        return ()
    if not isinstance(arguments, dict):
        return (
            Violation(
                path=(),
                schema_path=("type",),
                message=f"{format_value(arguments, _VALUE_LIMIT)} is not an object of arguments",
            ),
        )
    names = parameters.names
    unknown = () if names is None or arguments.keys() <= names else sorted(arguments.keys() - names)
    if not unknown and parameters.schema.is_valid(arguments):
        return ()
    errors = (
        e
        for e in parameters.schema.find_errors(arguments)
        if not (unknown and (e.validator == "additionalProperties" and not e.absolute_path))
    )
    return (*(_build_unknown_argument(name, names or ()) for name in unknown), *map(_to_violation, errors))


def _build_unknown_argument(name: str, names: Iterable[str]) -> Violation:
    listed = sorted(names)
    hint = f"known are {', '.join(listed)}" if listed else "the function takes none"
    message = f"unknown argument '{name}' ({hint}){did_you_mean(name, listed)}"
    return Violation(path=(name,), schema_path=("additionalProperties",), message=message)


def _to_violation(error: ValidationError) -> Violation:
    path = tuple(error.absolute_path)
    return Violation(path=path, schema_path=tuple(error.absolute_schema_path), message=describe_violation(error))


def describe_violation(error: ValidationError) -> str:
    """Word a violation without repeating a whole document."""
    value, keyword_value = error.instance, error.validator_value
    if error.validator == "required" and isinstance(keyword_value, list):
        missing = error.message.partition("'")[2].rpartition("'")[0]
        return f"missing required '{missing}'"
    if error.validator == "type":
        names = keyword_value if isinstance(keyword_value, list) else [keyword_value]
        return f"{format_value(value, _VALUE_LIMIT)} is not of type {' or '.join(map(str, names))}"
    if error.validator == "enum" and isinstance(keyword_value, list):
        words = [word for word in keyword_value if isinstance(word, str)]
        hint = did_you_mean(value, words)
        return f"{format_value(value, _VALUE_LIMIT)} is not one of {format_value(keyword_value)}{hint}"
    return error.message if len(error.message) <= 300 else f"{error.message[:180]} … {error.message[-100:]}"


def find_argument_names(parameters: JsonObject) -> frozenset[str] | None:
    """Return the names of all arguments that `parameters` allows, or None if it allows others as well."""
    parts = list(_iter_object_schemas(parameters, parameters, 0))
    if any(part is None or _is_open(part) for part in parts):
        return None
    schemas = [part for part in parts if part is not None]
    if not any("properties" in schema or "additionalProperties" in schema for schema in schemas):
        return None
    return frozenset(name for schema in schemas for key in ("properties", "required") for name in schema.get(key) or ())


def _iter_object_schemas(root: JsonObject, schema: object, depth: int) -> Iterator[JsonObject | None]:
    """`schema` and what it refers to or combines, as far as that speaks of the same object. None: cannot be told."""
    if isinstance(schema, bool):
        return
    if depth > _MAX_REFERENCES or not isinstance(schema, Mapping):
        yield None
        return
    yield schema
    nested = [part for key in ("allOf", "anyOf", "oneOf") for part in schema.get(key) or ()]
    nested += [schema[key] for key in ("if", "then", "else") if key in schema]
    nested += (schema.get("dependentSchemas") or {}).values()
    if "$ref" in schema:
        nested.append(_resolve_reference(root, schema["$ref"]))
    for part in nested:
        yield from _iter_object_schemas(root, part, depth + 1)


def _is_open(schema: JsonObject) -> bool:
    values = [schema[key] for key in ("additionalProperties", "unevaluatedProperties") if key in schema]
    return any(value is not False for value in values) or "patternProperties" in schema or "propertyNames" in schema


def _resolve_reference(root: JsonObject, reference: object) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    value: Any = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
