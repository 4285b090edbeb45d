"""JSON Schemas: compiled once per distinct schema and process, and checked for mistakes of their own.

jsonschema-rs accepts most values, fast. jsonschema has the last word: it judges what jsonschema-rs refuses, words the
violations, and handles schemas in which the two could disagree (references, other drafts, patterns that Python reads in
its own way). It takes long to import, and most runs never need it. References are resolved inside the schema alone;
nothing is ever fetched. Patterns are searched under a time limit, in the values and names that a model sent.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

from evalkit.errors import KeyPath, did_you_mean
from evalkit.fields.patterns import PatternLimitError, find_pattern_problem, match_pattern
from evalkit.jsonvalue import JsonObject

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

SchemaProblem = tuple[KeyPath, str]  # where in the schema, and what is wrong there

TYPES = ("object", "array", "string", "boolean", "null", "integer", "number")

_SHOWN_PATTERN = 80
_COMPILED: dict[str, CompiledSchema] = {}


def compile_schema(schema: JsonObject) -> CompiledSchema:
    """Return the compiled form of `schema`: the same object for every equal schema in this process."""
    key = json.dumps(schema, sort_keys=True, default=repr)
    compiled_schema = _COMPILED.get(key)
    if compiled_schema is None:
        compiled_schema = _COMPILED.setdefault(key, CompiledSchema(schema))
    return compiled_schema


class CompiledSchema:
    """A schema, ready to judge values. Thread-safe; jsonschema's validator is made when it is first needed."""

    __slots__ = ("_accepts", "_lock", "_validator", "schema")

    def __init__(self, schema: JsonObject) -> None:
        self.schema = schema
        self._accepts = compile_fast_check(schema)
        self._validator: Validator | None = None
        self._lock = threading.Lock()

    def is_valid(self, value: object) -> bool:
        """Return whether `value` (JSON data) is valid."""
        return self._is_accepted(value) or next(self._iter_errors(value), None) is None

    def find_errors(self, value: object) -> list[ValidationError]:
        """List every violation, in order of its path in the value; empty if and only if `value` is valid."""
        if self._is_accepted(value):
            return []
        return sorted(self._iter_errors(value), key=lambda error: [str(step) for step in error.absolute_path])

    def find_problems(self) -> list[SchemaProblem]:
        """List the mistakes in the schema itself."""
        if self._accepts is not None:
            return []
        problems = find_schema_problems(self.schema)
        if problems:
            return problems
        try:
            list(self._get_validator().iter_errors({}))
        except RecursionError:
            return [((), "it refers to itself without end")]
        except Exception as error:
            return [((), f"it cannot be used: {type(error).__name__}: {error}")]
        return []

    def _is_accepted(self, value: object) -> bool:
        if self._accepts is None:
            return False
        try:
            return self._accepts(value)
        except Exception:  # a text that is no Unicode, a key that is no text: jsonschema decides
            return False

    def _iter_errors(self, value: Any) -> Iterator[ValidationError]:
        from jsonschema.exceptions import ValidationError

        try:
            yield from self._get_validator().iter_errors(value)
        except PatternLimitError as error:
            yield ValidationError(f"could not be checked: the pattern {error}")
        except Exception as error:  # an unresolvable or endless reference behind an `if` that no sample reached
            yield ValidationError(f"could not be checked: {type(error).__name__}: {error}")

    def _get_validator(self) -> Validator:
        with self._lock:
            if self._validator is None:
                from jsonschema_specifications import REGISTRY

                # An explicit registry: with the default one jsonschema fetches what it does not know.
                validator_class = _limit_patterns(_get_validator_class(self.schema))
                self._validator = validator_class(self.schema, registry=REGISTRY)
            return self._validator


def _get_validator_class(schema: JsonObject) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, default=Draft202012Validator)


# ---- patterns ----


@cache
def _limit_patterns(validator_class: Any) -> Any:
    """Return the class with the keywords that search for patterns, which jsonschema has `re` do without a limit."""
    from jsonschema.validators import extend

    originals = validator_class.VALIDATORS
    keywords = {
        "pattern": _check_pattern,
        "patternProperties": _check_pattern_properties,
        "additionalProperties": partial(_check_additional_properties, originals.get("additionalProperties")),
        "unevaluatedProperties": partial(_check_unevaluated_properties, originals.get("unevaluatedProperties")),
    }
    checks_by_name = {name: check for name, check in keywords.items() if name in originals}
    return extend(validator_class, checks_by_name)  # type: ignore[no-untyped-call]


def _check_pattern(validator: object, pattern: str, instance: object, schema: object) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and not search_limited(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _check_pattern_properties(
    validator: Any, parts: JsonObject, instance: object, schema: object
) -> Iterator[ValidationError]:
    values: JsonObject = instance if isinstance(instance, dict) else {}
    for pattern, part in parts.items():
        for name in values:
            if search_limited(pattern, name):
                yield from validator.descend(values[name], part, path=name, schema_path=pattern)


def _check_additional_properties(
    original: Any, validator: Any, allowed: object, instance: object, schema: JsonObject
) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    patterns = schema.get("patternProperties")
    if not patterns or not isinstance(instance, dict):
        yield from original(validator, allowed, instance, schema)
        return
    extras = [
        name
        for name in instance
        if name not in schema.get("properties", {}) and not any(search_limited(pattern, name) for pattern in patterns)
    ]
    if isinstance(allowed, Mapping):
        for name in extras:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extras:
        verb, names = "does" if len(extras) == 1 else "do", ", ".join(map(repr, sorted(extras)))
        listed = ", ".join(map(repr, sorted(patterns)))
        yield ValidationError(f"{names} {verb} not match any of the regexes: {listed}")


def _check_unevaluated_properties(
    original: Any, validator: Any, allowed: object, instance: object, schema: JsonObject
) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        schema = _match_names(validator, schema, instance, ())
    yield from original(validator, allowed, instance, schema)


def _match_names(validator: Any, schema: Any, instance: JsonObject, references: tuple[str, ...]) -> Any:
    """Return `schema` with the names in `instance` that match a pattern in place of `patternProperties`, here and in
    each schema that judges the same object."""
    if not isinstance(schema, Mapping):
        return schema
    matched = dict(schema)
    for keyword in ("allOf", "anyOf", "oneOf"):
        if keyword in schema:
            matched[keyword] = [_match_names(validator, part, instance, references) for part in schema[keyword]]
    for keyword in ("if", "then", "else"):
        if keyword in schema:
            matched[keyword] = _match_names(validator, schema[keyword], instance, references)
    if "dependentSchemas" in schema:
        matched["dependentSchemas"] = {
            name: _match_names(validator, part, instance, references)
            for name, part in schema["dependentSchemas"].items()
        }
    patterns = matched.pop("patternProperties", {})
    if patterns:
        properties = dict(schema.get("properties", {}))
        for name in instance:
            parts = [part for pattern, part in patterns.items() if search_limited(pattern, name)]
            if parts:
                properties[name] = {"allOf": [properties[name], *parts] if name in properties else parts}
        matched["properties"] = properties
    reference = schema.get("$ref")
    if not instance or not isinstance(reference, str) or not reference.startswith("#") or reference in references:
        return matched
    del matched["$ref"]
    target = validator._resolver.lookup(reference).contents
    inner = _match_names(validator, target, instance, (*references, reference))
    # What a reference evaluates counts also where it does not hold: so it is with `then` and `dependentSchemas`.
    return {"if": {}, "then": matched, "dependentSchemas": {next(iter(instance)): inner}}


def search_limited(pattern: str, text: str) -> bool:
    """Search `text` for `pattern`: what Rust's engine accepts is found; else Python decides, under a time limit.

    Raises PatternLimitError where only Python can read the pattern, and gives up.
    """
    accepts = _compile_linear(pattern)
    try:
        if accepts is not None and accepts(text):
            return True
    except ValueError:
        pass  # half a character: Python decides
    try:
        if "too large" in (problem := find_pattern_problem(pattern)):
            raise PatternLimitError(problem)
        return match_pattern(pattern, text, whole=False)
    except PatternLimitError as error:
        if accepts is not None:
            return False  # Rust has searched it to the end
        raise PatternLimitError(f"{pattern[:_SHOWN_PATTERN]!r} {error}") from None


@lru_cache(maxsize=1024)
def _compile_linear(pattern: str) -> Callable[[object], bool] | None:
    """Compile a pattern for Rust's engine, which needs no time limit; None where it may read it in another way."""
    return compile_fast_check({"pattern": pattern})


# ---- the fast check ----

_NUMBER_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SIZE_KEYWORDS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_ANNOTATIONS = ("title", "description", "format", "default", "examples", "deprecated")
_PLAIN_KEYWORDS = {"type", "enum", "const", "required", *_NUMBER_KEYWORDS, *_SIZE_KEYWORDS, *_ANNOTATIONS}
# Patterns in which Rust accepts no more than Python does: no groups with `?`, no classes but \d, no set operations.
_PORTABLE_PATTERN = re.compile(r"(?:[^\\({]|\((?!\?)|\{\d|\\[d.+*?()\[\]{}|/^$-])*")
_SET_OPERATION = re.compile(r"&&|--|~~|\|\||\[[^\]]*\[|\[\^[^\]]*\\d")


def compile_fast_check(schema: object) -> Callable[[object], bool] | None:
    """Compile a check that is true only for valid values; None for a schema that jsonschema has to judge.

    A schema with such a check is itself well-formed.
    """
    if not isinstance(schema, Mapping) or not _is_everyday(schema):
        return None
    from jsonschema_rs import Draft202012Validator

    try:
        return Draft202012Validator(dict(schema), validate_formats=False).is_valid
    except Exception:  # it is malformed; jsonschema says how
        return None


def _is_everyday(schema: object) -> bool:
    """Return whether the two libraries judge alike by `schema`."""
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, Mapping):
        return False
    for keyword, argument in schema.items():
        if keyword == "properties":
            if not isinstance(argument, Mapping) or not all(map(_is_everyday, argument.values())):
                return False
        elif keyword in ("items", "additionalProperties"):
            if not _is_everyday(argument):
                return False
        elif keyword in ("anyOf", "allOf"):
            if not isinstance(argument, list) or not all(map(_is_everyday, argument)):
                return False
        elif keyword == "pattern":
            if not isinstance(argument, str) or not _is_portable(argument):
                return False
        elif keyword not in _PLAIN_KEYWORDS:
            return False
    return True


def _is_portable(pattern: str) -> bool:
    if not _PORTABLE_PATTERN.fullmatch(pattern) or _SET_OPERATION.search(pattern):
        return False
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


# ---- mistakes in a schema ----

_NESTED = [
    "items",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "additionalProperties",
    "additionalItems",
    "unevaluatedItems",
    "unevaluatedProperties",
]
_NESTED_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NESTED_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_STANDARD = """$anchor $comment $defs $dynamicAnchor $dynamicRef $id $ref $schema $vocabulary additionalItems
    additionalProperties allOf anyOf const contains contentEncoding contentMediaType contentSchema default definitions
    dependencies dependentRequired dependentSchemas deprecated description else enum examples exclusiveMaximum
    exclusiveMinimum format if items maxContains maxItems maxLength maxProperties maximum minContains minItems
    minLength minProperties minimum multipleOf not oneOf pattern patternProperties prefixItems properties
    propertyNames readOnly required then title type unevaluatedItems unevaluatedProperties uniqueItems writeOnly"""
_DIALECTS = "discriminator example externalDocs id nullable propertyOrdering xml"  # old drafts', OpenAPI's, Gemini's
STANDARD_KEYWORDS = frozenset(_STANDARD.split())
_KEYWORDS = STANDARD_KEYWORDS.union(_DIALECTS.split())


def find_schema_problems(schema: JsonObject) -> list[SchemaProblem]:
    """List the mistakes in `schema`. References are followed only in a schema that is well-formed otherwise."""
    problems = list(_find_malformed(schema))
    for path, part in walk_schemas(schema):
        for key in part:  # JSON Schema would ignore `requird` in silence
            if isinstance(key, str) and key not in _KEYWORDS and not key.startswith("x-"):
                close = get_close_matches(key, _KEYWORDS, n=1, cutoff=0.85)
                if close:
                    problems.append(((*path, key), f"unknown keyword '{key}'; did you mean '{close[0]}'?"))
    return problems or [*_find_large_patterns(schema), *_find_unresolved(schema)]


def walk_schemas(schema: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, JsonObject]]:
    """Yield a schema and every schema inside it, with their paths from `path` on."""
    pending: list[tuple[KeyPath, object]] = [(path, schema)]
    while pending:
        path, item = pending.pop()
        if not isinstance(item, Mapping):
            continue
        yield path, item
        inner: list[tuple[KeyPath, object]] = []
        for key, part in item.items():
            if key in _NESTED_NAMED and isinstance(part, Mapping):
                inner += [((*path, key, name), named) for name, named in part.items()]
            elif key in _NESTED_LISTS and isinstance(part, list):
                inner += [((*path, key, index), listed) for index, listed in enumerate(part)]
            elif key in _NESTED:
                inner.append(((*path, key), part))
        pending += reversed(inner)


def _find_large_patterns(root: JsonObject) -> Iterator[SchemaProblem]:
    for path, schema in walk_schemas(root):
        patterns: list[tuple[KeyPath, object]] = [((*path, "pattern"), schema.get("pattern"))]
        named = schema.get("patternProperties")
        patterns += [((*path, "patternProperties", key), key) for key in (named if isinstance(named, Mapping) else ())]
        for place, pattern in patterns:
            if isinstance(pattern, str) and "too large" in (problem := find_pattern_problem(pattern)):
                yield place, f"the pattern {pattern[:_SHOWN_PATTERN]!r} {problem}"


def _find_malformed(schema: JsonObject) -> Iterator[SchemaProblem]:
    """Check against the metaschema, with jsonschema's words where they help, and better ones for `type`."""
    cls = _get_validator_class(schema)
    metaschema = cls(cls.META_SCHEMA, format_checker=cls.FORMAT_CHECKER)
    paths: set[KeyPath] = set()
    for error in sorted(metaschema.iter_errors(schema), key=lambda error: [str(step) for step in error.absolute_path]):
        path = tuple(error.absolute_path)
        if path in paths:
            continue
        paths.add(path)
        if path and path[-1] == "type" and not isinstance(error.instance, Mapping):
            listed = error.instance if isinstance(error.instance, list) else [error.instance]
            names = [name for name in listed if not isinstance(name, str) or name not in TYPES]
            name = names[0] if names else error.instance
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
            yield path, f"{name!r} is not a JSON Schema type ({', '.join(TYPES)}){hint}"
        elif error.validator == "format" and error.validator_value == "regex":
            yield path, f"{error.instance!r} is not a regular expression that Python can read"
        else:
            text = error.message
            yield path, text if len(text) <= 200 else f"{text[:120]} … {text[-60:]}"


def _find_unresolved(root: JsonObject) -> Iterator[SchemaProblem]:
    for path, schema in walk_schemas(root):
        reference = schema.get("$ref")
        if isinstance(reference, str) and "$id" not in root and not _is_resolvable(root, reference):
            named = [f"#/{key}/{name}" for key in ("$defs", "definitions") for name in root.get(key) or ()]
            hint = "" if reference.startswith("#") else "; references must lead into the declaration itself ('#/...')"
            yield (*path, "$ref"), f"'{reference}' leads nowhere{did_you_mean(reference, named) or hint}"


def _is_resolvable(root: JsonObject, reference: str) -> bool:
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
