"""What is wrong with a JSON Schema: against its metaschema, misspelt keywords, references that lead nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.errors import did_you_mean
from evalkit.functions.quickschema import TYPES
from evalkit.functions.schemas import KeyPath, SchemaProblem, get_validator_class

_NESTED = ("items", "contains", "not", "if", "then", "else", "propertyNames", "additionalProperties", "additionalItems")
_NESTED_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NESTED_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_STANDARD = """$anchor $comment $defs $dynamicAnchor $dynamicRef $id $ref $schema $vocabulary additionalItems
    additionalProperties allOf anyOf const contains contentEncoding contentMediaType contentSchema default definitions
    dependencies dependentRequired dependentSchemas deprecated description else enum examples exclusiveMaximum
    exclusiveMinimum format id if items maxContains maxItems maxLength maxProperties maximum minContains minItems
    minLength minProperties minimum multipleOf not oneOf pattern patternProperties prefixItems properties
    propertyNames readOnly required then title type unevaluatedItems unevaluatedProperties uniqueItems writeOnly"""
_DIALECTS = "discriminator example externalDocs nullable propertyOrdering xml"  # OpenAPI's and Gemini's
_KEYWORDS = frozenset(_STANDARD.split()) | frozenset(_DIALECTS.split())


def find_schema_problems(schema: Mapping[str, Any]) -> list[SchemaProblem]:
    """In the order in which they are worth mending: references are followed in a schema that is well-formed."""
    return [*_find_malformed(schema), *_find_misspelt(schema, ())] or list(_find_unresolved(schema, schema, ()))


def _find_malformed(schema: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    """Against the metaschema; jsonschema's words where they help, better ones for `type`."""
    cls = get_validator_class(schema)
    metaschema = cls(cls.META_SCHEMA, format_checker=cls.FORMAT_CHECKER)
    paths: set[KeyPath] = set()
    for error in sorted(metaschema.iter_errors(schema), key=lambda error: [str(step) for step in error.absolute_path]):
        path = tuple(error.absolute_path)
        if path in paths:
            continue
        paths.add(path)
        if path and path[-1] == "type" and not isinstance(error.instance, Mapping):
            yield path, _explain_type(error.instance)
        elif error.validator == "format" and error.validator_value == "regex":
            yield path, f"{error.instance!r} is not a regular expression that Python can read"
        else:
            yield path, _cut_message(error.message)


def _explain_type(value: Any) -> str:
    listed = value if isinstance(value, list) else [value]
    names = [name for name in listed if not isinstance(name, str) or name not in TYPES]
    name = names[0] if names else value
    # The names that Python programmers and other languages' schemas use.
    usual_names = {
        "dict": "object",
        "float": "number",
        "int": "integer",
        "str": "string",
        "list": "array",
        "bool": "boolean",
    }
    is_usual = isinstance(name, str) and name in usual_names
    hint = f"; did you mean '{usual_names[name]}'?" if is_usual else did_you_mean(name, TYPES)
    return f"{name!r} is not a JSON Schema type ({', '.join(TYPES)}){hint}"


def _cut_message(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:120]} … {text[-60:]}"


def _find_misspelt(schema: Any, path: KeyPath) -> Iterator[SchemaProblem]:
    """JSON Schema ignores keywords that it does not know, so `requird` would check nothing, silently."""
    from difflib import get_close_matches

    for key in schema:
        if isinstance(key, str) and key not in _KEYWORDS and not key.startswith("x-"):
            close = get_close_matches(key, _KEYWORDS, n=1, cutoff=0.85)
            if close:
                yield (*path, key), f"unknown keyword '{key}'; did you mean '{close[0]}'?"
    for step, part in _iter_subschemas(schema):
        yield from _find_misspelt(part, (*path, *step))


def _iter_subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    for key in _NESTED:
        if isinstance(schema.get(key), Mapping):
            yield (key,), schema[key]
    for key in _NESTED_NAMED:
        if isinstance(schema.get(key), Mapping):
            yield from (((key, name), part) for name, part in schema[key].items() if isinstance(part, Mapping))
    for key in _NESTED_LISTS:
        if isinstance(schema.get(key), list):
            yield from (((key, index), part) for index, part in enumerate(schema[key]) if isinstance(part, Mapping))


def _find_unresolved(root: Mapping[str, Any], schema: Mapping[str, Any], path: KeyPath) -> Iterator[SchemaProblem]:
    reference = schema.get("$ref")
    if isinstance(reference, str) and "$id" not in root and not _is_resolvable(root, reference):
        named = [f"#/{key}/{name}" for key in ("$defs", "definitions") for name in root.get(key) or ()]
        hint = "" if reference.startswith("#") else "; references must lead into the declaration itself ('#/...')"
        yield (*path, "$ref"), f"'{reference}' leads nowhere{did_you_mean(reference, named) or hint}"
    for step, part in _iter_subschemas(schema):
        yield from _find_unresolved(root, part, (*path, *step))


def _is_resolvable(root: Mapping[str, Any], reference: str) -> bool:
    from jsonschema_specifications import REGISTRY
    from referencing import Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resource = Resource.from_contents(dict(root), default_specification=DRAFT202012)
    try:
        REGISTRY.with_resource("", resource).resolver("").lookup(reference)
    except Unresolvable:
        return False
    return True
