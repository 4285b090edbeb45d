"""A value that an expectation accepts: `{$gt: 5}` gives 6. What is proposed is held against the expectation itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from evalkit.model.template import Reference, Template, parse, plain, render
from evalkit.operators.compile import Mode, OperatorProblems, compile_value

Resolve = Callable[[Reference], Any]

_OF_TYPE: dict[str, Any] = {
    "string": "x", "integer": 1, "number": 1.5, "boolean": True, "null": None, "array": [], "object": {},
}  # fmt: skip
_OTHERS: tuple[Any, ...] = ("something else", 1, 0, -1, True, None, [], {})
_TRIES = 50
# A generator that knows nothing of these may miss texts that exist.
_BEYOND_GENERATING = ("(?=", "(?!", "(?<", "(?P=", "\\1", "\\2", "\\p", "\\X", "(?R", "(?&", "(?>", "++", "*+", "?+")


class Unsure(Exception):  # noqa: N818 - it says what is the case; nobody did anything wrong
    """No value was found, which does not mean that there is none."""


class Impossible(Exception):  # noqa: N818 - it is caught and reported as a finding
    """There is no such value."""


class LeftOut(Exception):  # noqa: N818 - a result, not an error
    """The argument is not to be sent at all."""


def example(value: Any, resolve: Resolve, offered: tuple[Any, ...] = (), mode: Mode = "contain") -> Any:
    """A value that `value`, as it stands in a case, accepts; one of `offered` if one of them will do.

    Raises Unsure, Impossible, LeftOut, and TemplateError for a template that leads nowhere.
    """
    if isinstance(value, str):
        parsed = parse(value)
        return plain(render(parsed, resolve)) if isinstance(parsed, Template) else value
    if isinstance(value, list):
        return [example(item, resolve, mode=mode) for item in value]
    if not isinstance(value, dict):
        return value
    if not is_operator(value):
        return _mapping(value, resolve, mode)
    if value == {"$absent": True}:
        raise LeftOut
    return _of_operators(value, resolve, offered, mode)


def is_operator(value: Any) -> bool:
    """Whether a value of a case is a mapping of operators."""
    return isinstance(value, dict) and bool(value) and all(str(key).startswith("$") for key in value)


def accepts(value: Any, actual: Any, resolve: Resolve) -> bool:
    """Whether `value`, as it stands under `arguments`, accepts `actual`."""
    return compile_value(value, mode="equal").bind(resolve).matches(actual)


def _mapping(value: dict[str, Any], resolve: Resolve, mode: Mode) -> dict[str, Any]:
    result = {}
    for key, item in value.items():
        try:
            result[key] = example(item, resolve, mode=mode)
        except LeftOut:
            continue
    return result


def _of_operators(value: dict[str, Any], resolve: Resolve, offered: tuple[Any, ...], mode: Mode) -> Any:
    try:
        matcher = compile_value(value, mode=mode).bind(resolve)
    except OperatorProblems:  # the loader refuses such a case
        raise Unsure(f"{value} is no operator") from None
    for candidate in (*offered, *_candidates(value, resolve, mode)):
        if matcher.matches(candidate):
            return candidate
    hopeless = _unmatchable(value)
    if hopeless:
        raise Impossible(hopeless)
    raise Unsure(f"no value was found that {', '.join(value)} accepts")


def _candidates(value: dict[str, Any], resolve: Resolve, mode: Mode) -> Iterator[Any]:
    if "$literal" in value:
        yield value["$literal"]
    for name, operand in value.items():
        yield from _of_one(name, operand, resolve, mode)
    texts = [value[name] for name in ("$starts_with", "$contains", "$ends_with") if isinstance(value.get(name), str)]
    yield "".join(texts)
    bounds = [bound for bound in value.values() if isinstance(bound, (int, float)) and not isinstance(bound, bool)]
    if len(bounds) > 1:
        yield sum(bounds) / len(bounds)
    yield from _OTHERS


def _of_one(name: str, operand: Any, resolve: Resolve, mode: Mode) -> Iterator[Any]:
    if name in ("$one_of", "$all_of"):
        for option in operand:
            yield from _tried(option, resolve, mode)
    elif name in ("$regex", "$search"):
        yield from texts_of(operand)
    elif name == "$between":
        yield operand[0]
    elif name == "$type":
        yield from (_OF_TYPE.get(kind) for kind in (operand if isinstance(operand, list) else [operand]))
    elif name == "$each":
        yield from ([item] for item in _tried(operand, resolve, mode))
    elif name == "$len":
        for length in _tried(operand, resolve, mode):
            if isinstance(length, int):
                yield from ("x" * length, ["x"] * length)
    else:
        for found in _tried(operand, resolve, mode):
            yield from (found, [found])
            if isinstance(found, (int, float)) and not isinstance(found, bool):
                yield from (found + 1, found - 1, found + 0.5)


def _tried(value: Any, resolve: Resolve, mode: Mode) -> Iterator[Any]:
    try:
        yield example(value, resolve, mode=mode)
    except (Unsure, Impossible, LeftOut):
        return


def texts_of(pattern: Any) -> Iterator[str]:
    """Texts made from a regular expression, always the same ones; not all of them match, for anchors are ignored."""
    from rstr import Rstr

    source = Rstr(random.Random(0))  # noqa: S311 - no secret is made here
    for _ in range(_TRIES):
        try:
            yield str(source.xeger(str(pattern)))
        except Exception:  # a pattern of `regex` that the standard library's parser does not know
            return


def _unmatchable(value: dict[str, Any]) -> str:
    """Why a lone pattern can't match, where the generator knows everything that it is made of."""
    if len(value) != 1:
        return ""
    ((name, pattern),) = value.items()
    return unmatchable(name, pattern) if name in ("$regex", "$search") else ""


def unmatchable(name: str, pattern: str) -> str:
    """A sentence, or "" where nothing can be said."""
    from evalkit.operators.text import Pattern

    if any(part in pattern for part in _BEYOND_GENERATING):
        return ""
    made = list(texts_of(pattern))
    if not made or any(Pattern(name, pattern).matches(text) for text in made):
        return ""
    return f"none of {len(made)} texts made from the pattern {pattern} matches it"
