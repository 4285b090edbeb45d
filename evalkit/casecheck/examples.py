"""A value that an expectation accepts: `{$gt: 5}` gives 6. What is proposed is held against the expectation itself."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from evalkit.model.template import Reference, Template, parse_template, render_templates, strip_literals
from evalkit.operators.builtin import BUILTIN_OPERATORS
from evalkit.operators.compile import Mode, OperatorProblems, compile_value
from evalkit.operators.text import Pattern

Resolve = Callable[[Reference], Any]

_OF_TYPE: dict[str, Any] = {
    "string": "x", "integer": 1, "number": 1.5, "boolean": True, "null": None, "array": [], "object": {},
}  # fmt: skip
_OTHER_VALUES: tuple[Any, ...] = ("something else", 1, 0, -1, True, None, [], {})
_TRIES = 50
# A generator that knows nothing of these may miss texts that exist.
_BEYOND_GENERATING = ("(?=", "(?!", "(?<", "(?P=", "\\1", "\\2", "\\p", "\\X", "(?R", "(?&", "(?>", "++", "*+", "?+")


class ExampleNotFoundError(Exception):
    """No value was found, which does not mean that there is none."""


class NoExampleError(Exception):
    """There is no such value."""


class OmittedArgumentError(Exception):
    """The argument is not to be sent at all."""


def make_example(value: Any, resolve: Resolve, offers: tuple[Any, ...] = (), mode: Mode = "contain") -> Any:
    """Make an example that `value`, as it stands in a case, accepts; one of `offers` if one of them is accepted.

    Raises Unsure, Impossible, LeftOut, and TemplateError for a template that leads nowhere.
    """
    if isinstance(value, str):
        parsed = parse_template(value)
        return strip_literals(render_templates(parsed, resolve)) if isinstance(parsed, Template) else value
    if isinstance(value, list):
        return [make_example(item, resolve, mode=mode) for item in value]
    if not isinstance(value, dict):
        return value
    if not is_operator(value):
        result = {}
        for key, item in value.items():
            with suppress(OmittedArgumentError):
                result[key] = make_example(item, resolve, mode=mode)
        return result
    if value == {"$absent": True}:
        raise OmittedArgumentError
    try:
        matcher = compile_value(value, mode=mode).bind(resolve)
    except OperatorProblems:  # the loader refuses such a case
        raise ExampleNotFoundError(f"{value} is no operator") from None
    for candidate in (*offers, *_list_candidates(value, resolve, mode)):
        if matcher.is_match(candidate):
            return candidate
    if len(value) == 1 and (name := next(iter(value))) in ("$regex", "$search"):
        hopeless = explain_unmatchable(name, value[name])
        if hopeless:
            raise NoExampleError(hopeless)
    raise ExampleNotFoundError(f"no value was found that {', '.join(value)} accepts")


def is_operator(value: Any) -> bool:
    """Tell whether a value of a case is a mapping of operators."""
    return isinstance(value, dict) and bool(value) and all(str(key).startswith("$") for key in value)


def is_accepted(value: Any, actual: Any, resolve: Resolve) -> bool:
    """Tell whether `value`, as it stands under `arguments`, accepts `actual`."""
    return compile_value(value, mode="equal").bind(resolve).is_match(actual)


def _list_candidates(value: dict[str, Any], resolve: Resolve, mode: Mode) -> Iterator[Any]:
    if "$literal" in value:
        yield value["$literal"]
    for name, operand in value.items():
        yield from _list_operator_candidates(name, operand, resolve, mode)
    texts = [value[name] for name in ("$starts_with", "$contains", "$ends_with") if isinstance(value.get(name), str)]
    yield "".join(texts)
    bounds = [limit for limit in value.values() if isinstance(limit, (int, float)) and not isinstance(limit, bool)]
    if len(bounds) > 1:
        yield sum(bounds) / len(bounds)
    yield from _OTHER_VALUES


def _list_operator_candidates(name: str, operand: Any, resolve: Resolve, mode: Mode) -> Iterator[Any]:
    operator = BUILTIN_OPERATORS.get(name)
    if operator is not None and operator.propose is not None:
        yield from operator.propose(operand)
    elif name in ("$one_of", "$all_of"):
        for option in operand:
            yield from _try_example(option, resolve, mode)
    elif name in ("$regex", "$search"):
        yield from generate_texts(operand)
    elif name == "$between":
        yield operand[0]
    elif name == "$type":
        yield from (_OF_TYPE.get(kind) for kind in (operand if isinstance(operand, list) else [operand]))
    elif name == "$each":
        yield from ([item] for item in _try_example(operand, resolve, mode))
    elif name == "$len":
        for length in _try_example(operand, resolve, mode):
            if isinstance(length, int):
                yield from ("x" * length, ["x"] * length)
    else:
        for candidate in _try_example(operand, resolve, mode):
            yield from (candidate, [candidate])
            if isinstance(candidate, (int, float)) and not isinstance(candidate, bool):
                yield from (candidate + 1, candidate - 1, candidate + 0.5)


def _try_example(value: Any, resolve: Resolve, mode: Mode) -> Iterator[Any]:
    try:
        yield make_example(value, resolve, mode=mode)
    except (ExampleNotFoundError, NoExampleError, OmittedArgumentError):
        return


def generate_texts(pattern: Any) -> Iterator[str]:
    """Generate texts from a regular expression, always the same ones. Anchors are ignored, so that some don't match."""
    from rstr import Rstr

    source = Rstr(random.Random(0))  # noqa: S311 - no secret is made here
    for _ in range(_TRIES):
        try:
            yield str(source.xeger(str(pattern)))
        except Exception:  # a pattern of `regex` that the standard library's parser does not know
            return


def explain_unmatchable(name: str, pattern: str) -> str:
    """Explain why nothing matches the pattern; "" where that is not certain."""
    if any(part in pattern for part in _BEYOND_GENERATING):
        return ""
    texts = list(generate_texts(pattern))
    if not texts or any(Pattern(name, pattern).is_match(text) for text in texts):
        return ""
    return f"none of {len(texts)} texts made from the pattern {pattern} matches it"


_BY_FORMAT = {
    "date": "2026-01-18",
    "date-time": "2026-01-18T10:00:00Z",
    "email": "customer@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_DEPTH = 5


def make_schema_example(schema: Any, depth: int = 0) -> Any:
    """Make a value from the schema's `const`, `default`, `enum` or `examples`, else a small value of its type.

    The value may violate other keywords: callers validate it.
    """
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return "x"
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return make_schema_example(schema[key][0], depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _make_of_kind(kind[0] if isinstance(kind, list) and kind else kind, schema, depth)


def _make_matching_text(schema: Mapping[str, Any]) -> str:
    """Make a text that matches the pattern and has the length; any text from the pattern where none has both."""
    texts = list(generate_texts(schema["pattern"]))
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", sys.maxsize)
    fitting = (
        text
        for text in texts
        if shortest <= len(text) <= longest and Pattern("$search", schema["pattern"]).is_match(text)
    )
    return next(fitting, texts[0] if texts else "x")


def _make_of_kind(kind: Any, schema: Mapping[str, Any], depth: int) -> Any:
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: make_schema_example(properties.get(name), depth + 1) for name in schema.get("required") or ()}
    if kind == "array":
        return [make_schema_example(schema.get("items"), depth + 1) for _ in range(schema.get("minItems", 0))]
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("maximum", 1))
    if kind == "string" and isinstance(schema.get("pattern"), str):
        return _make_matching_text(schema)
    if kind == "string":
        text = _BY_FORMAT.get(str(schema.get("format")), "x")
        return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
    return {"boolean": True, "null": None}.get(str(kind), "x")
