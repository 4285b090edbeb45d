"""A declaration held against the signature of the code that carries it out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evalkit.errors import Location, find_nearest
from evalkit.lint.facts.argument_keys import MAPPING_NAMES
from evalkit.lint.facts.records import DECORATED, UNKNOWN, DeclaredFunction, Implementation, Parameter
from evalkit.lint.finding import Finding
from evalkit.lint.names import is_related

ImplementedFunction = tuple[DeclaredFunction, Implementation]
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


def check_parameters(pairs: Iterable[ImplementedFunction]) -> Iterator[Finding]:
    """What differs between each declaration and its code."""
    comparable_pairs = [
        (function, code) for function, code in pairs if function.form != DECORATED and function.properties is not None
    ]
    common = _find_common(comparable_pairs)
    for function, code in comparable_pairs:
        if not code.is_comparable:
            continue
        if not _has_one_mapping(function, code):
            yield from _compare_parameters(function, code, common)
        elif code.read_keys is not None and (by_keys := code.read_keys(code)) is not None:
            yield from _compare_parameters(function, by_keys, frozenset())


def _find_common(pairs: list[ImplementedFunction]) -> frozenset[str]:
    """First parameters that several functions take and none declares: the dispatcher gives them."""
    firsts = {
        (code.parameters[0].name, function.name)  # a function that is declared twice is one
        for function, code in pairs
        if code.parameters and code.parameters[0].name not in (function.properties or {})
    }
    return frozenset(name for name, number in Counter(name for name, _ in firsts).items() if number > 1)


def _has_one_mapping(function: DeclaredFunction, code: Implementation) -> bool:
    if any(parameter.name in (function.properties or {}) for parameter in code.parameters):
        return False
    if code.has_key_parameters:
        return False
    needed = [parameter for parameter in code.parameters if parameter.required and not _is_injected(parameter)]
    if not needed:  # def search(arguments=None)
        return any(parameter.name.lower() in MAPPING_NAMES for parameter in code.parameters[:1])
    if len(needed) != 1:
        return False
    return needed[0].name.lower() in MAPPING_NAMES or _MAPPINGS.search(needed[0].annotation) is not None


def _is_injected(parameter: Parameter) -> bool:
    return (
        parameter.name in _INJECTED
        or parameter.name.startswith("_")
        or _INJECTED_TYPES.search(parameter.annotation) is not None
        or "Inject" in parameter.annotation
    )


def _compare_parameters(function: DeclaredFunction, code: Implementation, common: frozenset[str]) -> Iterator[Finding]:
    properties = function.properties or {}
    code_parameters = {parameter.name: parameter for parameter in code.parameters}
    missing = [] if code.takes_any else [name for name in properties if name not in code_parameters]
    extra = [
        parameter
        for parameter in code.parameters
        if parameter.name not in properties
        and parameter.required
        and not _is_injected(parameter)
        and parameter.name not in common
    ]
    optional = [
        parameter.name for parameter in code.parameters if parameter.name not in properties and not parameter.required
    ]
    for name in missing:
        counterpart = _find_counterpart(name, missing, extra, optional)
        if (
            counterpart is None
            and code.has_key_parameters
            and not code.takes_any
            and len(missing) == len(optional) == 1
            and not extra
        ):
            counterpart = optional[0]
        if counterpart is not None:
            extra = [parameter for parameter in extra if parameter.name != counterpart]
            yield _report_renamed(function, code, name, code_parameters[counterpart])
        else:
            yield _report_missing(function, code, name)
    for parameter in extra:
        yield _report_extra(function, code, parameter)
    for name, schema in properties.items():
        if name in code_parameters and isinstance(schema, Mapping):
            yield from _compare_parameter(function, code, code_parameters[name], schema)


def _find_counterpart(name: str, missing: list[str], extra: list[Parameter], optional: list[str]) -> str | None:
    """The parameter of the code that the declared `name` was meant to be."""
    candidates = [parameter.name for parameter in extra]
    if len(missing) == 1 and len(candidates) == 1:
        return candidates[0]
    return find_nearest(name, candidates) or next(
        (candidate for candidate in optional if is_related(candidate, name)), None
    )


def _locate(function: DeclaredFunction, name: str) -> Location:
    return function.locate(("parameters", "properties", name))


def _report_renamed(function: DeclaredFunction, code: Implementation, name: str, parameter: Parameter) -> Finding:
    return Finding(
        name="parameter-name",
        location=_locate(function, name),
        message=f"'{function.name}': '{name}' is declared, and {_describe_code(code)} {_get_verb(code)}s '{parameter.name}'",  # noqa: E501
        advice=f"give the parameter one name: {_describe_failure(code)}",
        related=parameter.place,
    )


def _report_missing(function: DeclaredFunction, code: Implementation, name: str) -> Finding:
    return Finding(
        name="parameter-missing",
        location=_locate(function, name),
        message=f"'{function.name}': '{name}' is declared, and {_describe_code(code)} does not {_get_verb(code)} it",
        advice="add the parameter to the code, or take it out of the declaration",
        related=code.place,
    )


def _report_extra(function: DeclaredFunction, code: Implementation, parameter: Parameter) -> Finding:
    return Finding(
        name="parameter-extra",
        location=function.place,
        message=f"'{function.name}': {_describe_code(code)} needs '{parameter.name}', which is not declared",
        advice="declare it, or give it a default: no model can send it",
        related=parameter.place,
    )


def _describe_code(code: Implementation) -> str:
    return f"{code.name}{'' if ' ' in code.name else '()'} in {code.place.file}"


def _get_verb(code: Implementation) -> str:
    return "read" if code.has_key_parameters else "take"


def _describe_failure(code: Implementation) -> str:
    return (
        "what the model sends is never read"
        if code.has_key_parameters
        else "the call fails with an unexpected argument"
    )


def _compare_parameter(
    function: DeclaredFunction, code: Implementation, parameter: Parameter, schema: Mapping[str, Any]
) -> Iterator[Finding]:
    """Type, requiredness, values and default of a parameter that both have."""
    name = parameter.name
    declared = read_types(schema)
    if declared and parameter.types is not None and not declared <= parameter.types and parameter.values is None:
        yield Finding(
            name="parameter-type",
            location=function.locate(("parameters", "properties", name, "type")),
            message=f"'{function.name}': '{name}' is declared as {_join_names(declared)}, "
            f"and {_describe_code(code)} takes {parameter.annotation}",
            advice="declare the type that the code takes",
            related=parameter.place,
        )
    if parameter.required and name not in function.required and "default" not in schema:
        yield Finding(
            name="parameter-required",
            location=_locate(function, name),
            message=f"'{function.name}': '{name}' is optional in the declaration, and {_describe_code(code)} needs it",
            advice=f"add '{name}' to 'required', or give it a default in the code",
            related=parameter.place,
        )
    yield from _compare_values(function, code, parameter, schema)
    yield from _compare_default(function, code, parameter, schema)


def _compare_default(
    function: DeclaredFunction, code: Implementation, parameter: Parameter, schema: Mapping[str, Any]
) -> Iterator[Finding]:
    name = parameter.name
    if (
        "default" in schema
        and parameter.default is not UNKNOWN
        and not _is_equal_default(schema["default"], parameter.default)
    ):
        yield Finding(
            name="parameter-default",
            location=function.locate(("parameters", "properties", name, "default")),
            message=f"'{function.name}': '{name}' defaults to {schema['default']!r} in the declaration "
            f"and to {parameter.default!r} in {_describe_code(code)}",
            advice="make both the same: the model is told what the code does not do",
            related=parameter.place,
        )


def _is_equal_default(first: Any, second: Any) -> bool:
    """JSON equality of two defaults; None in code stands for whatever the code makes of it."""
    return second is None or (isinstance(first, bool) == isinstance(second, bool) and first == second)


def _compare_values(
    function: DeclaredFunction, code: Implementation, parameter: Parameter, schema: Mapping[str, Any]
) -> Iterator[Finding]:
    values = schema.get("enum")
    if parameter.values is None or not isinstance(values, list):
        return
    code_values = [value for value in parameter.values if value is not None]
    unknown = [value for value in values if value not in parameter.values and value is not None]
    hidden = [value for value in code_values if value not in values]
    differences = [f"{_format_values(unknown)} unknown to {_describe_code(code)}"] if unknown else []
    differences += [f"{_format_values(hidden)} missing from the declaration"] if hidden else []
    if differences:
        yield Finding(
            name="parameter-enum",
            location=function.locate(("parameters", "properties", parameter.name, "enum")),
            message=f"'{function.name}': values of '{parameter.name}' differ: {'; '.join(differences)}",
            advice="list the same values in both",
            related=parameter.place,
        )


def _format_values(values: list[Any]) -> str:
    return ", ".join(repr(value) for value in values[:4]) + (
        " and others are" if len(values) > 4 else " is" if len(values) == 1 else " are"
    )


def read_types(schema: Any) -> frozenset[str]:
    """The JSON types that a schema names."""
    if not isinstance(schema, Mapping):
        return frozenset()
    kind = schema.get("type")
    named = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else ()
    return frozenset(_PYTHON_NAMES.get(name, name) for name in named if isinstance(name, str))


def _join_names(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))
