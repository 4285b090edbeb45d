"""What is wrong with declarations by themselves: doubles, conflicts, descriptions, required names."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from evalkit.errors import did_you_mean, shown_path
from evalkit.functions.schemas import compiled
from evalkit.lint.facts import DECORATED, INSTRUCTION, SUITE, UNKNOWN, Declared, Path
from evalkit.lint.finding import Finding
from evalkit.lint.nearby import closest

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


def judge(declared: Iterable[Declared]) -> Iterator[Finding]:
    """The findings in single declarations."""
    for function in declared:
        yield from _schema_problems(function)
        yield from _descriptions(function)
        yield from _required(function)
        yield from _contradictions(function)


def _schema_problems(function: Declared) -> Iterator[Finding]:
    """What is wrong with the schema itself. Instruction files and cases are checked where they are read."""
    if function.form in (INSTRUCTION, SUITE, DECORATED) or not isinstance(function.parameters, Mapping):
        return
    for path, message in compiled(function.parameters).problems():
        where = shown_path(("parameters", *path))
        yield Finding(
            name="invalid-declaration",
            location=function.locate(("parameters", *path)),
            message=f"'{function.name}': {where}: {message}",
            advice="correct the schema: services refuse it, or ignore what they do not know",
        )


def _descriptions(function: Declared) -> Iterator[Finding]:
    if function.form == SUITE:
        return  # a suite may declare no more than a patch or an alias
    is_private = function.form == DECORATED and function.name.startswith("_")  # made into a tool by more code
    if is_private:
        return
    if function.description is None or (isinstance(function.description, str) and not function.description.strip()):
        where = "a docstring" if function.form == DECORATED else "a description"
        yield Finding(
            name="description-missing",
            location=function.place,
            message=f"'{function.name}' is declared without {where}",
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


def _required(function: Declared) -> Iterator[Finding]:
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


def _contradictions(function: Declared) -> Iterator[Finding]:
    properties = function.properties or {}
    for name, schema in properties.items():
        text = schema.get("description") if isinstance(schema, Mapping) else None
        if isinstance(text, str):
            others = properties.keys() - {name}
            for message, advice in _against_schema(text, name, schema, name in function.required, others):
                at: Path = ("parameters", "properties", name, "description")
                yield _contradiction(function, at, message, advice)
    if isinstance(function.description, str) and function.properties is not None and function.form != DECORATED:
        for match in _PARAMETER.finditer(function.description):
            name = match[1] or match[2]
            if name not in properties:
                message = f"the description speaks of a parameter '{name}', and there is none"
                hint = did_you_mean(name, properties).removeprefix("; ")
                yield _contradiction(function, ("description",), message, hint or "declare it, or correct the text")


def _contradiction(function: Declared, path: Path, message: str, advice: str) -> Finding:
    return Finding(
        name="description-contradicts",
        location=function.locate(path),
        message=f"'{function.name}': {message}",
        advice=advice,
    )


def _against_schema(
    text: str, name: str, schema: Mapping[str, Any], is_required: bool, others: Container[str]
) -> Iterator[tuple[str, str]]:
    if is_required and _OPTIONAL.search(text):
        yield f"'{name}' is optional by its description and required by the schema", "correct one of them"
    if not is_required and _REQUIRED.search(text) and "default" not in schema:
        yield f"'{name}' is required by its description and optional by the schema", f"add '{name}' to 'required'"
    said = _DEFAULT.search(text)
    if said and "default" in schema and not _same_default(said[1], schema["default"]):
        yield (
            f"'{name}' defaults to {said[1]} by its description and to {_shown(schema['default'])} by the schema",
            ("correct one of them"),
        )
    named = _TYPE.search(text)
    kind = schema.get("type")
    if named and isinstance(kind, str) and named[1] not in others:
        word = named[2].lower()
        wanted = _TYPES.get(word, word)
        if wanted != kind and {wanted, kind} != {"number", "integer"}:
            yield (
                f"'{name}' is of type {wanted} by its description and of type {kind} by the schema",
                ("correct one of them"),
            )
    yield from _against_enum(text, name, schema.get("enum"))


def _against_enum(text: str, name: str, values: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return
    listed = [words for words in _enumerations(text) if any(word in values for word in words)]
    strange = list(dict.fromkeys(word for words in listed for word in words if word not in values))
    if strange:
        yield (
            f"the description of '{name}' names {', '.join(map(repr, strange))}, which its enum lacks",
            ("add it to the enum, or correct the text"),
        )


def _enumerations(text: str) -> Iterator[list[str]]:
    """Quoted words that are listed together; one that stands alone may be anything."""
    found: list[str] = []
    end = 0
    for match in _QUOTED.finditer(text):
        if found and not _BETWEEN.fullmatch(text[end : match.start()]):
            yield found
            found = []
        found.append(match[1])
        end = match.end()
    yield found


def _same_default(said: str, default: Any) -> bool:
    shown = {str(default).lower(), _shown(default).lower()}
    if said.lower().rstrip(".") in shown or default is None or isinstance(default, (list, dict)):
        return True
    try:
        return float(said) == float(default)
    except (TypeError, ValueError):
        # Words are free: "defaults to today". Only a number or a known word can contradict.
        return not (said.lower() in ("true", "false", "none", "null") or (isinstance(default, str) and said.isupper()))


def _shown(value: Any) -> str:
    return (
        {True: "true", False: "false", None: "null"}.get(value, str(value)) if not isinstance(value, list) else "a list"
    )


def doubles(declared: Iterable[Declared]) -> Iterator[Finding]:
    """The same name twice in one list."""
    seen: dict[tuple[object, str], Declared] = {}
    for function in declared:
        if function.listed_in is None:
            continue
        first = seen.setdefault((function.listed_in, function.name), function)
        if first is not function:
            yield Finding(
                name="duplicate-declaration",
                location=function.place,
                message=f"'{function.name}' is declared twice in one list",
                advice="keep one; services refuse doubles or take the last",
                related=first.place,
            )


def conflicts(declared: list[Declared]) -> Iterator[Finding]:
    """Declarations of one function that tell the model different things about its parameters."""
    by_name: dict[str, list[Declared]] = {}
    for function in declared:
        if function.form != DECORATED and function.properties is not None:
            by_name.setdefault(function.name, []).append(function)
    for same in by_name.values():
        told = [function for function in same if function.form != SUITE]
        for function in same:
            others = told if function.form == SUITE else told[: told.index(function)]
            for other in _comparable(function, others):
                difference = _difference(other, function)
                if difference:
                    yield _conflict(function, other, difference)
                    break


def _conflict(function: Declared, other: Declared, difference: str) -> Finding:
    return Finding(
        name="conflicting-declarations",
        location=function.place,
        message=f"'{function.name}' is declared otherwise in {other.file}: {difference}",
        advice="declare it once, or make both say the same",
        related=other.place,
    )


def _comparable(function: Declared, others: list[Declared]) -> list[Declared]:
    """Those of `others` that mean the same function: of the same folder's instructions, or the nearest elsewhere.

    Two lists of tools in code may belong to two agents; they are not compared.
    """
    found = [
        other
        for other in others
        if _layer(other) != _layer(function) or (function.form == INSTRUCTION and _folder(other) == _folder(function))
    ]
    if function.form == SUITE and not function.parameters:
        return []  # it says nothing of them
    near = closest(found, function.file, [other.file for other in found])
    return near[:1] if len(near) == 1 or function.form == INSTRUCTION else []


def _layer(function: Declared) -> str:
    if function.form in (INSTRUCTION, SUITE):
        return function.form
    return "data" if function.file.endswith(".json") else "code"


def _folder(function: Declared) -> str:
    return function.file.rpartition("/")[0]


def _difference(one: Declared, other: Declared) -> str:
    """How the parameters of `other` differ from those of `one`."""
    mine, theirs = one.properties or {}, other.properties or {}
    if UNKNOWN in (one.parameters, other.parameters):
        return ""
    found = [] if _takes_more(other) else [f"no '{name}' here" for name in mine if name not in theirs]
    found += [] if _takes_more(one) else [f"'{name}' is new here" for name in theirs if name not in mine]
    for name in mine:
        if name in theirs and isinstance(mine[name], Mapping) and isinstance(theirs[name], Mapping):
            before, now = mine[name].get("type"), theirs[name].get("type")
            if before != now and before is not None and now is not None:
                found.append(f"'{name}' is {_type(now)}, there {_type(before)}")
            elif (name in one.required) != (name in other.required):
                found.append(f"'{name}' is {'required' if name in other.required else 'optional'} here alone")
    return "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")


def _takes_more(function: Declared) -> bool:
    """Whether the declaration says that it leaves parameters out."""
    return isinstance(function.parameters, Mapping) and bool(function.parameters.get("additionalProperties"))


def _type(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list) else str(value)
