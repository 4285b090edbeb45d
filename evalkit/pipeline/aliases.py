"""Aliases that only the run knows: an instruction file, or an agent in code, declares them, and a case may use them.

What a case expects is compiled when it is loaded, with the functions that it declares itself. A call by an alias is
recorded under the function's own name, so that an expectation that says the alias is compiled anew after the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from evalkit.checks.compiling import compile_expectation
from evalkit.checks.expectation import Expectation
from evalkit.checks.keys import of_turn
from evalkit.model.case import Case, Declaration
from evalkit.model.template import Template, parse


def with_aliases(case: Case, expectation: Any, declared: Iterable[Declaration]) -> tuple[Any, list[Any]]:
    """`expectation` and those of the case's turns, with the aliases of `declared` known; as they were without any."""
    turns = [turn.expectation for turn in case.turns]
    brought = [function for function in declared if function.aliases]
    if not brought:
        return expectation, turns
    aliases = {alias for function in brought for alias in function.aliases}
    aliases -= {name for function in case.functions for name in (function.name, *function.aliases)}
    if not aliases:
        return expectation, turns
    listed = case.input.get("turns") or ()
    return _anew(case, expectation, ("expected_output",), case.expected_output, aliases, brought), [
        _anew(case, turn, ("input", "turns", number, "expected_output"), listed[number], aliases, brought)
        for number, turn in enumerate(turns)
    ]


def _anew(
    case: Case,
    compiled: Any,
    path: tuple[str | int, ...],
    expected: Any,
    aliases: set[str],
    brought: list[Declaration],
) -> Expectation | Any:
    if path[0] == "input" and isinstance(expected, Mapping):
        own = expected.get("expected_output")
        expected = of_turn(own, case.expected_output) if isinstance(own, Mapping) else own
    words = set(_words(expected))
    if compiled is None or not words & aliases or not isinstance(expected, Mapping):
        return compiled
    # Whatever the case names is known: what is not declared was told when the case was loaded, if it was wrong.
    known = {name: Declaration(name=name) for name in sorted(words - aliases)}
    known |= {function.name: function for function in case.functions}
    for function in brought:
        known[function.name] = replace(
            known.get(function.name, Declaration(name=function.name)), aliases=function.aliases
        )
    anew, problems = compile_expectation(expected, path=path, declarations=known, input=case.input)
    return compiled if problems else anew


def _words(value: Any) -> Iterator[str]:
    """Every text, key and function in a template of a value."""
    if isinstance(value, str):
        parsed = parse(value)
        yield value
        parts = parsed.parts if isinstance(parsed, Template) else ()
        for part in parts:
            if not isinstance(part, str):
                yield from (step for step in part.path if isinstance(step, str))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _words(item)
    elif isinstance(value, list):
        for item in value:
            yield from _words(item)
