"""What is wrong with declarations by themselves: doubles, conflicts, descriptions, required names."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from evalkit.errors import did_you_mean, format_path
from evalkit.fields.schema import compile_schema
from evalkit.lint.facts.records import DECORATED, INSTRUCTION, SUITE, UNKNOWN, DataPath, DeclaredFunction
from evalkit.lint.finding import Finding
from evalkit.lint.scope import select_closest

_OPTIONAL = re.compile(r"^\(?optional\b|\(optional[,;) ]|[,;.] optional[,;.]?$", re.IGNORECASE)
# "Required for refunds", "Required parameter of `create`", "mandatory if ..." name a condition, and contradict nothing.
_REQUIRED = re.compile(
    r"(?:^\(?required\b|\(required(?=[,;) ])|[,;.] required(?=[,;.]?$)|\bmandatory\b)"
    r"(?!(?: (?:parameter|argument|field|value)s?)?(?: only)? (?:of|for|if|when|by|with|in|unless|to|on|as|only)\b)",
    re.IGNORECASE,
)
_DEFAULT = re.compile(r"\bdefaults?(?: value)?(?: is| to|:|=)? *['\"`]?(-?[\w.]*\w)['\"`]?", re.IGNORECASE)
_QUOTED = re.compile(r"(?<!\w)['\"`]([\w-]+)['\"`](?!\w)")
# `pdf`, `docx` or `odt`: quoted words that stand in one enumeration.
_BETWEEN = re.compile(r"(?:\([^()]*\))?\s*(?:[,/|]|\bor\b|\band\b|,\s*(?:or|and)\b)\s*")
_TYPE = re.compile(
    r"(?:(\w+)['\"`]?\s*)?\((string|str|integer|int|number|float|boolean|bool|array|list|object|dict)\)", re.IGNORECASE
)
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}
_PARAMETER = re.compile(r"(?:parameter|argument)s? [`'\"](\w+)[`'\"]|[`'\"](\w+)[`'\"] (?:parameter|argument)\b")


def check_declarations(declared: Iterable[DeclaredFunction]) -> Iterator[Finding]:
    """The findings in single declarations."""
    for function in declared:
        yield from _check_schema(function)
        yield from _check_descriptions(function)
        yield from _check_required(function)
        yield from _check_texts(function)


def _check_schema(function: DeclaredFunction) -> Iterator[Finding]:
    """What is wrong with the schema itself. Instruction files and cases are checked where they are read."""
    if function.form in (INSTRUCTION, SUITE, DECORATED) or not isinstance(function.parameters, Mapping):
        return
    for path, message in compile_schema(function.parameters).find_problems():
        path_text = format_path(("parameters", *path))
        yield Finding(
            name="invalid-declaration",
            location=function.locate(("parameters", *path)),
            message=f"'{function.name}': {path_text}: {message}",
            advice="correct the schema: services refuse it, or ignore what they do not know",
        )


def _check_descriptions(function: DeclaredFunction) -> Iterator[Finding]:
    if function.form == SUITE:
        return  # a suite may declare no more than a patch or an alias
    is_private = function.form == DECORATED and function.name.startswith("_")  # made into a tool by more code
    if is_private:
        return
    if function.description is None or (isinstance(function.description, str) and not function.description.strip()):
        kind = "a docstring" if function.form == DECORATED else "a description"
        yield Finding(
            name="description-missing",
            location=function.place,
            message=f"'{function.name}' is declared without {kind}",
            advice="say what the function does and when to call it: models choose by the description",
        )
    properties = function.properties or {}
    bare = [
        name
        for name, schema in properties.items()
        if isinstance(schema, Mapping) and not {"description", "enum", "$ref", "const", "title"} & schema.keys()
    ]
    if bare and function.form != DECORATED:
        yield Finding(
            name="parameter-description-missing",
            location=function.locate(("parameters", "properties", bare[0])),
            message=f"'{function.name}': no description of {', '.join(repr(name) for name in bare)}",
            advice="say what is expected there, with an example",
        )


def _check_required(function: DeclaredFunction) -> Iterator[Finding]:
    properties = function.properties
    if properties is None:
        return
    for name in function.required:
        if name not in properties:
            yield Finding(
                name="required-undeclared",
                location=function.locate(("parameters", "required")),
                message=f"'{function.name}': 'required' names '{name}', which is no parameter"
                f"{did_you_mean(name, properties)}",
                advice="declare it under 'properties', or take it out of 'required'",
            )


def _check_texts(function: DeclaredFunction) -> Iterator[Finding]:
    properties = function.properties or {}
    for name, schema in properties.items():
        text = schema.get("description") if isinstance(schema, Mapping) else None
        if isinstance(text, str):
            other_names = properties.keys() - {name}
            for message, advice in _compare_with_schema(text, name, schema, name in function.required, other_names):
                at: DataPath = ("parameters", "properties", name, "description")
                yield _report_contradiction(function, at, message, advice)
    if isinstance(function.description, str) and function.properties is not None and function.form != DECORATED:
        for match in _PARAMETER.finditer(function.description):
            name = match[1] or match[2]
            if name not in properties:
                message = f"the description speaks of a parameter '{name}', and there is none"
                hint = did_you_mean(name, properties).removeprefix("; ")
                yield _report_contradiction(
                    function, ("description",), message, hint or "declare it, or correct the text"
                )


def _report_contradiction(function: DeclaredFunction, path: DataPath, message: str, advice: str) -> Finding:
    return Finding(
        name="description-contradicts",
        location=function.locate(path),
        message=f"'{function.name}': {message}",
        advice=advice,
    )


def _compare_with_schema(
    text: str, name: str, schema: Mapping[str, Any], is_required: bool, other_names: Container[str]
) -> Iterator[tuple[str, str]]:
    if is_required and _OPTIONAL.search(text):
        yield f"'{name}' is optional by its description and required by the schema", "correct one of them"
    if not is_required and _REQUIRED.search(text) and "default" not in schema:
        yield f"'{name}' is required by its description and optional by the schema", f"add '{name}' to 'required'"
    default_match = _DEFAULT.search(text)
    if default_match and "default" in schema and not _is_same_default(default_match[1], schema["default"]):
        yield (
            f"'{name}' defaults to {default_match[1]} by its description and to {_format_value(schema['default'])} by the schema",  # noqa: E501
            ("correct one of them"),
        )
    type_match = _TYPE.search(text)
    kind = schema.get("type")
    if type_match and isinstance(kind, str) and type_match[1] not in other_names:
        word = type_match[2].lower()
        described_type = _TYPES.get(word, word)
        if described_type != kind and {described_type, kind} != {"number", "integer"}:
            yield (
                f"'{name}' is of type {described_type} by its description and of type {kind} by the schema",
                ("correct one of them"),
            )
    yield from _compare_with_enum(text, name, schema.get("enum"))


def _compare_with_enum(text: str, name: str, values: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return
    listed = [words for words in _find_enumerations(text) if any(word in values for word in words)]
    strange = list(dict.fromkeys(word for words in listed for word in words if word not in values))
    if strange:
        yield (
            f"the description of '{name}' names {', '.join(map(repr, strange))}, which its enum lacks",
            ("add it to the enum, or correct the text"),
        )


def _find_enumerations(text: str) -> Iterator[list[str]]:
    """Quoted words that are listed together; one that stands alone may be anything."""
    words: list[str] = []
    end = 0
    for match in _QUOTED.finditer(text):
        if words and not _BETWEEN.fullmatch(text[end : match.start()]):
            yield words
            words = []
        words.append(match[1])
        end = match.end()
    yield words


def _is_same_default(text: str, default: Any) -> bool:
    spellings = {str(default).lower(), _format_value(default).lower()}
    if text.lower().rstrip(".") in spellings or default is None or isinstance(default, (list, dict)):
        return True
    try:
        return float(text) == float(default)
    except (TypeError, ValueError):
        # Words are free: "defaults to today". Only a number or a known word can contradict.
        return not (text.lower() in ("true", "false", "none", "null") or (isinstance(default, str) and text.isupper()))


def _format_value(value: Any) -> str:
    return (
        {True: "true", False: "false", None: "null"}.get(value, str(value)) if not isinstance(value, list) else "a list"
    )


def check_duplicates(declared: Iterable[DeclaredFunction]) -> Iterator[Finding]:
    """The same name twice in one list."""
    first_by_name: dict[tuple[object, str], DeclaredFunction] = {}
    for function in declared:
        if function.list_key is None:
            continue
        first = first_by_name.setdefault((function.list_key, function.name), function)
        if first is not function:
            yield Finding(
                name="duplicate-declaration",
                location=function.place,
                message=f"'{function.name}' is declared twice in one list",
                advice="keep one; services refuse doubles or take the last",
                related=first.place,
            )


def check_conflicts(declared: list[DeclaredFunction]) -> Iterator[Finding]:
    """Declarations of one function that tell the model different things about its parameters."""
    by_name: dict[str, list[DeclaredFunction]] = {}
    for function in declared:
        if function.form != DECORATED and function.properties is not None:
            by_name.setdefault(function.name, []).append(function)
    for same in by_name.values():
        outside_suites = [function for function in same if function.form != SUITE]
        for function in same:
            candidates = outside_suites if function.form == SUITE else outside_suites[: outside_suites.index(function)]
            for other_function in _select_comparable(function, candidates):
                difference = _describe_difference(other_function, function)
                if difference:
                    yield _report_conflict(function, other_function, difference)
                    break


def _report_conflict(function: DeclaredFunction, other_function: DeclaredFunction, difference: str) -> Finding:
    return Finding(
        name="conflicting-declarations",
        location=function.place,
        message=f"'{function.name}' is declared otherwise in {other_function.file}: {difference}",
        advice="declare it once, or make both say the same",
        related=other_function.place,
    )


def _select_comparable(function: DeclaredFunction, candidates: list[DeclaredFunction]) -> list[DeclaredFunction]:
    """Those of `others` that mean the same function: of the same folder's instructions, or the nearest elsewhere.

    Two lists of tools in code may belong to two agents; they are not compared.
    """
    comparable = [
        candidate
        for candidate in candidates
        if _get_layer(candidate) != _get_layer(function)
        or (function.form == INSTRUCTION and _get_folder(candidate) == _get_folder(function))
    ]
    if function.form == SUITE and not function.parameters:
        return []  # it says nothing of them
    closest_functions = select_closest(comparable, function.file, [candidate.file for candidate in comparable])
    return closest_functions[:1] if len(closest_functions) == 1 or function.form == INSTRUCTION else []


def _get_layer(function: DeclaredFunction) -> str:
    if function.form in (INSTRUCTION, SUITE):
        return function.form
    return "data" if function.file.endswith(".json") else "code"


def _get_folder(function: DeclaredFunction) -> str:
    return function.file.rpartition("/")[0]


def _describe_difference(first: DeclaredFunction, second: DeclaredFunction) -> str:
    """How the parameters of `other` differ from those of `one`."""
    mine, theirs = first.properties or {}, second.properties or {}
    if UNKNOWN in (first.parameters, second.parameters):
        return ""
    differences = [] if _is_open(second) else [f"no '{name}' here" for name in mine if name not in theirs]
    differences += [] if _is_open(first) else [f"'{name}' is new here" for name in theirs if name not in mine]
    for name in mine:
        if name in theirs and isinstance(mine[name], Mapping) and isinstance(theirs[name], Mapping):
            before, now = mine[name].get("type"), theirs[name].get("type")
            if before != now and before is not None and now is not None:
                differences.append(f"'{name}' is {_format_type(now)}, there {_format_type(before)}")
            elif (name in first.required) != (name in second.required):
                differences.append(f"'{name}' is {'required' if name in second.required else 'optional'} here alone")
    return "; ".join(differences[:3]) + (f"; and {len(differences) - 3} more" if len(differences) > 3 else "")


def _is_open(function: DeclaredFunction) -> bool:
    """Whether the declaration says that it leaves parameters out."""
    return isinstance(function.parameters, Mapping) and bool(function.parameters.get("additionalProperties"))


def _format_type(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list) else str(value)
