"""A declaration held against the signature of the code that carries it out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evalkit.errors import Location, nearest
from evalkit.lint.facts import DECORATED, UNKNOWN, Declared, Implementation, Parameter
from evalkit.lint.finding import Finding
from evalkit.lint.names import related
from evalkit.lint.reads import WHOLE

Pair = tuple[Declared, Implementation]
# A function that takes all arguments as one value; the dispatcher hands it the model's mapping.
_MAPPINGS = re.compile(
    r"\b(?:dict|Dict|Mapping|MutableMapping|Any|Request|Input|Args|Params|Model|Schema|ToolCall)\b|Input$|Args$"
)
# Types as Python names them, which are no JSON Schema types; that is told at the declaration.
_PYTHON_NAMES = {"dict": "object", "list": "array", "tuple": "array", "str": "string", "int": "integer"}
_PYTHON_NAMES |= {"float": "number", "bool": "boolean"}
# What dispatchers hand to functions beside the model's arguments.
_INJECTED_WORDS = """self cls ctx context state session db client config deps runtime run_context tool_context
    callback callbacks agent app logger user user_id store request_context tool tool_use"""
_INJECTED = frozenset(_INJECTED_WORDS.split())
_INJECTED_TYPES = re.compile(
    r"(?:Context|State|Session|Client|Runtime|Deps|Dependencies|Agent|Store|Callback|Manager|Service|Connection|Config)\b"
)


def judge(pairs: Iterable[Pair]) -> Iterator[Finding]:
    """What differs between each declaration and its code."""
    known = [
        (function, code) for function, code in pairs if function.form != DECORATED and function.properties is not None
    ]
    common = _common(known)
    for function, code in known:
        if not code.comparable:
            continue
        if not _takes_all_as_one(function, code):
            yield from _one(function, code, common)
        elif code.by_keys is not None and (by_keys := code.by_keys(code)) is not None:
            yield from _one(function, by_keys, frozenset())


def _common(pairs: list[Pair]) -> frozenset[str]:
    """First parameters that several functions take and none declares: the dispatcher gives them."""
    firsts = {
        (code.parameters[0].name, function.name)  # a function that is declared twice is one
        for function, code in pairs
        if code.parameters and code.parameters[0].name not in (function.properties or {})
    }
    return frozenset(name for name, number in Counter(name for name, _ in firsts).items() if number > 1)


def _takes_all_as_one(function: Declared, code: Implementation) -> bool:
    if any(it.name in (function.properties or {}) for it in code.parameters):
        return False
    if code.reads:
        return False
    needed = [it for it in code.parameters if it.required and not _is_injected(it)]
    if not needed:  # def search(arguments=None)
        return any(it.name.lower() in WHOLE for it in code.parameters[:1])
    if len(needed) != 1:
        return False
    return needed[0].name.lower() in WHOLE or _MAPPINGS.search(needed[0].annotation) is not None


def _is_injected(parameter: Parameter) -> bool:
    return (
        parameter.name in _INJECTED
        or parameter.name.startswith("_")
        or _INJECTED_TYPES.search(parameter.annotation) is not None
        or "Inject" in parameter.annotation
    )


def _one(function: Declared, code: Implementation, common: frozenset[str]) -> Iterator[Finding]:
    properties = function.properties or {}
    taken = {parameter.name: parameter for parameter in code.parameters}
    missing = [] if code.takes_any else [name for name in properties if name not in taken]
    extra = [
        parameter
        for parameter in code.parameters
        if parameter.name not in properties
        and parameter.required
        and not _is_injected(parameter)
        and parameter.name not in common
    ]
    optional = [it.name for it in code.parameters if it.name not in properties and not it.required]
    for name in missing:
        meant = _meant(name, missing, extra, optional)
        if meant is None and code.reads and not code.takes_any and len(missing) == len(optional) == 1 and not extra:
            meant = optional[0]
        if meant is not None:
            extra = [parameter for parameter in extra if parameter.name != meant]
            yield _renamed(function, code, name, taken[meant])
        else:
            yield _missing(function, code, name)
    for parameter in extra:
        yield _extra(function, code, parameter)
    for name, schema in properties.items():
        if name in taken and isinstance(schema, Mapping):
            yield from _same(function, code, taken[name], schema)


def _meant(name: str, missing: list[str], extra: list[Parameter], optional: list[str]) -> str | None:
    """The parameter of the code that the declared `name` was meant to be."""
    candidates = [parameter.name for parameter in extra]
    if len(missing) == 1 and len(candidates) == 1:
        return candidates[0]
    return nearest(name, candidates) or next((other for other in optional if related(other, name)), None)


def _at(function: Declared, name: str) -> Location:
    return function.locate(("parameters", "properties", name))


def _renamed(function: Declared, code: Implementation, name: str, parameter: Parameter) -> Finding:
    return Finding(
        name="parameter-name",
        location=_at(function, name),
        message=f"'{function.name}': '{name}' is declared, and {_named(code)} {_takes(code)}s '{parameter.name}'",
        advice=f"give the parameter one name: {_then(code)}",
        related=parameter.place,
    )


def _missing(function: Declared, code: Implementation, name: str) -> Finding:
    return Finding(
        name="parameter-missing",
        location=_at(function, name),
        message=f"'{function.name}': '{name}' is declared, and {_named(code)} does not {_takes(code)} it",
        advice="add the parameter to the code, or take it out of the declaration",
        related=code.place,
    )


def _extra(function: Declared, code: Implementation, parameter: Parameter) -> Finding:
    return Finding(
        name="parameter-extra",
        location=function.place,
        message=f"'{function.name}': {_named(code)} needs '{parameter.name}', which is not declared",
        advice="declare it, or give it a default: no model can send it",
        related=parameter.place,
    )


def _named(code: Implementation) -> str:
    return f"{code.name}{'' if ' ' in code.name else '()'} in {code.place.file}"


def _takes(code: Implementation) -> str:
    return "read" if code.reads else "take"


def _then(code: Implementation) -> str:
    return "what the model sends is never read" if code.reads else "the call fails with an unexpected argument"


def _same(
    function: Declared, code: Implementation, parameter: Parameter, schema: Mapping[str, Any]
) -> Iterator[Finding]:
    """Type, requiredness, values and default of a parameter that both have."""
    name = parameter.name
    declared = types_of(schema)
    if declared and parameter.types is not None and not declared <= parameter.types and parameter.values is None:
        yield Finding(
            name="parameter-type",
            location=function.locate(("parameters", "properties", name, "type")),
            message=f"'{function.name}': '{name}' is declared as {_listed(declared)}, "
            f"and {_named(code)} takes {parameter.annotation}",
            advice="declare the type that the code takes",
            related=parameter.place,
        )
    if parameter.required and name not in function.required and "default" not in schema:
        yield Finding(
            name="parameter-required",
            location=_at(function, name),
            message=f"'{function.name}': '{name}' is optional in the declaration, and {_named(code)} needs it",
            advice=f"add '{name}' to 'required', or give it a default in the code",
            related=parameter.place,
        )
    yield from _values(function, code, parameter, schema)
    yield from _default(function, code, parameter, schema)


def _default(
    function: Declared, code: Implementation, parameter: Parameter, schema: Mapping[str, Any]
) -> Iterator[Finding]:
    name = parameter.name
    if "default" in schema and parameter.default is not UNKNOWN and not _equal(schema["default"], parameter.default):
        yield Finding(
            name="parameter-default",
            location=function.locate(("parameters", "properties", name, "default")),
            message=f"'{function.name}': '{name}' defaults to {schema['default']!r} in the declaration "
            f"and to {parameter.default!r} in {_named(code)}",
            advice="make both the same: the model is told what the code does not do",
            related=parameter.place,
        )


def _equal(one: Any, other: Any) -> bool:
    """JSON equality of two defaults; None in code stands for whatever the code makes of it."""
    return other is None or (isinstance(one, bool) == isinstance(other, bool) and one == other)


def _values(
    function: Declared, code: Implementation, parameter: Parameter, schema: Mapping[str, Any]
) -> Iterator[Finding]:
    values = schema.get("enum")
    if parameter.values is None or not isinstance(values, list):
        return
    taken = [value for value in parameter.values if value is not None]
    unknown = [value for value in values if value not in parameter.values and value is not None]
    hidden = [value for value in taken if value not in values]
    said = [f"{_shown(unknown)} unknown to {_named(code)}"] if unknown else []
    said += [f"{_shown(hidden)} missing from the declaration"] if hidden else []
    if said:
        yield Finding(
            name="parameter-enum",
            location=function.locate(("parameters", "properties", parameter.name, "enum")),
            message=f"'{function.name}': values of '{parameter.name}' differ: {'; '.join(said)}",
            advice="list the same values in both",
            related=parameter.place,
        )


def _shown(values: list[Any]) -> str:
    return ", ".join(repr(value) for value in values[:4]) + (
        " and others are" if len(values) > 4 else " is" if len(values) == 1 else " are"
    )


def types_of(schema: Any) -> frozenset[str]:
    """The JSON types that a schema names."""
    if not isinstance(schema, Mapping):
        return frozenset()
    kind = schema.get("type")
    named = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else ()
    return frozenset(_PYTHON_NAMES.get(name, name) for name in named if isinstance(name, str))


def _listed(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))
