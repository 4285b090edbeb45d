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
from evalkit.checks.keys import merge_turn_keys
from evalkit.model.case import Case, Declaration
from evalkit.model.template import Template, parse_template


def compile_with_aliases(case: Case, expectation: Any, declared: Iterable[Declaration]) -> tuple[Any, list[Any]]:
    """`expectation` and those of the case's turns, with the aliases of `declared` known; as they were without any."""
    turns = [turn.expectation for turn in case.turns]
    additions = [function for function in declared if function.aliases]
    if not additions:
        return expectation, turns
    aliases = {alias for function in additions for alias in function.aliases}
    aliases -= {name for function in case.functions for name in (function.name, *function.aliases)}
    if not aliases:
        return expectation, turns
    user_turns = case.input.get("turns") or ()
    return _recompile(case, expectation, ("expected_output",), case.expected_output, aliases, additions), [
        _recompile(case, turn, ("input", "turns", number, "expected_output"), user_turns[number], aliases, additions)
        for number, turn in enumerate(turns)
    ]


def _recompile(
    case: Case,
    compiled: Any,
    path: tuple[str | int, ...],
    expected: Any,
    aliases: set[str],
    additions: list[Declaration],
) -> Expectation | Any:
    if path[0] == "input" and isinstance(expected, Mapping):
        turn_expected = expected.get("expected_output")
        expected = (
            merge_turn_keys(turn_expected, case.expected_output)
            if isinstance(turn_expected, Mapping)
            else turn_expected
        )
    words = set(_walk_words(expected))
    if compiled is None or not words & aliases or not isinstance(expected, Mapping):
        return compiled
    # Whatever the case names is known: what is not declared was told when the case was loaded, if it was wrong.
    declarations = {name: Declaration(name=name) for name in sorted(words - aliases)}
    declarations |= {function.name: function for function in case.functions}
    for function in additions:
        declarations[function.name] = replace(
            declarations.get(function.name, Declaration(name=function.name)), aliases=function.aliases
        )
    expectation, problems = compile_expectation(expected, path=path, declarations=declarations, input=case.input)
    return compiled if problems else expectation


def _walk_words(value: Any) -> Iterator[str]:
    """Every text, key and function in a template of a value."""
    if isinstance(value, str):
        parsed = parse_template(value)
        yield value
        parts = parsed.parts if isinstance(parsed, Template) else ()
        for part in parts:
            if not isinstance(part, str):
                yield from (step for step in part.path if isinstance(step, str))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _walk_words(item)
    elif isinstance(value, list):
        for item in value:
            yield from _walk_words(item)
