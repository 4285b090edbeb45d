"""Instructions held against the declarations: unknown functions, unknown arguments, text calls beside native ones."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from evalkit.errors import did_you_mean
from evalkit.lint.facts.records import DECORATED, INSTRUCTION, MCP, PLAIN, Alias, DeclaredFunction, Mention, Prompt
from evalkit.lint.facts.signatures import TYPES_OF_ANNOTATIONS
from evalkit.lint.finding import Edit, Finding
from evalkit.lint.names import describe_difference, find_relative, has_same_words, is_related, split_words
from evalkit.lint.rules.service_limits import is_service_form
from evalkit.lint.scope import DeclarationScope, is_near

_NATIVE = (INSTRUCTION, MCP, DECORATED, PLAIN)


def check_instructions(
    prompts: Iterable[Prompt], scope: DeclarationScope, aliases: Sequence[Alias], native_call_files: Container[str] = ()
) -> Iterator[Finding]:
    """The findings in instructions that are about functions known nearby. `offering`: files that make native calls."""
    also = {alias.name for alias in aliases}
    for prompt in prompts:
        surrounding = scope.find_around(prompt.file)
        functions = prompt.own_functions if prompt.own_functions is not None else surrounding
        if functions and (prompt.own_functions is not None or _is_about(prompt, functions)):
            yield from _check_functions(prompt, functions, surrounding, also)
            if not prompt.lists_functions or prompt.file in native_call_files:
                yield from _check_formats(prompt, functions)


def _is_about(prompt: Prompt, functions: Iterable[DeclaredFunction]) -> bool:
    """Whether a text that declares nothing itself speaks of these functions."""
    names = {function.name for function in functions}
    return any(
        mention.name in names or any(is_related(mention.name, name) for name in names) for mention in prompt.mentions
    )


def _check_functions(
    prompt: Prompt, functions: Sequence[DeclaredFunction], surrounding: Sequence[DeclaredFunction], aliases: set[str]
) -> Iterator[Finding]:
    own_functions = {name: function for function in functions for name in (function.name, *function.aliases)}
    elsewhere = {function.name: function for function in surrounding if function.name not in own_functions}
    reported: set[str] = set()
    for mention in prompt.mentions:
        if mention.is_bare and prompt.own_functions is None and not _is_near(mention, own_functions, prompt.file):
            continue
        if mention.name in own_functions:
            yield from _check_arguments(mention, own_functions[mention.name])
        elif mention.name not in aliases and mention.name not in reported:
            finding = _check_unknown(mention, own_functions, elsewhere)
            if finding is not None:
                reported.add(mention.name)
                yield finding


def _is_near(mention: Mention, own_functions: dict[str, DeclaredFunction], file: str) -> bool:
    """Whether a name among the words can mean the function that has it, or nearly has it: another agent's may, too."""
    function_name = mention.name if mention.name in own_functions else find_relative(mention.name, own_functions)
    return function_name is not None and is_near(own_functions[function_name].file, file)


def _check_unknown(
    mention: Mention, own_functions: dict[str, DeclaredFunction], elsewhere: dict[str, DeclaredFunction]
) -> Finding | None:
    """A finding about a name that is not declared here, if it is plainly meant as a function's."""
    if _is_something_else(mention.name, own_functions):
        return None
    similar = find_relative(mention.name, own_functions)
    if (
        similar is not None
        and not mention.is_call
        and has_same_words(mention.name, similar)
        and len(split_words(similar)) < 2
    ):
        return None  # `grep` need not be the function Grep
    if similar is not None:
        declared = own_functions[similar]
        message = f"the instruction calls '{mention.name}', declared is '{similar}': {describe_difference(mention.name, similar)}"  # noqa: E501
        advice = "write the declared name, or make the other one its alias"
        fix = declared.add_alias(mention.name) if declared.add_alias is not None else None
        return _make_finding(mention, message, advice, declared, fix)
    if mention.is_negated or mention.is_bare:
        return None
    other_function = elsewhere.get(mention.name)
    if other_function is not None:
        message = f"the instruction speaks of '{mention.name}', which it does not declare; {other_function.file} does"
        return _make_finding(mention, message, "declare it here too, or take it out of the text", other_function)
    if not mention.is_call:
        return None  # any word may stand in backticks
    message = (
        f"the instruction calls '{mention.name}', which is not declared{did_you_mean(mention.name, own_functions)}"
    )
    return _make_finding(mention, message, "declare it, or take it out of the text")


def _make_finding(
    mention: Mention, message: str, advice: str, other_function: DeclaredFunction | None = None, fix: Edit | None = None
) -> Finding:
    related = None if other_function is None else other_function.place
    name = "instruction-function"
    return Finding(name=name, location=mention.place, message=message, advice=advice, related=related, fix=fix)


def _is_something_else(name: str, own_functions: dict[str, DeclaredFunction]) -> bool:
    """A parameter, a value of an enum, or a type: names that instructions quote as well."""
    if name in TYPES_OF_ANNOTATIONS:
        return True
    for function in own_functions.values():
        properties = function.properties or {}
        if name in properties:
            return True
        if any(name in schema.get("enum", ()) for schema in properties.values() if hasattr(schema, "get")):
            return True
    return False


def _check_arguments(mention: Mention, function: DeclaredFunction) -> Iterator[Finding]:
    properties = function.properties
    if properties is None or function.form == DECORATED:
        return
    for name, place in mention.arguments:
        if name not in properties:
            names = ", ".join(properties) or "none"
            yield Finding(
                name="instruction-argument",
                location=place,
                message=f"the instruction calls '{function.name}' with '{name}', which it does not have"
                f"{did_you_mean(name, properties) or f'; it has {names}'}",
                advice="write the declared argument: models copy what instructions show",
                related=function.place,
            )


def _check_formats(prompt: Prompt, functions: Sequence[DeclaredFunction]) -> Iterator[Finding]:
    native = next((function for function in functions if is_service_form(function) or function.form in _NATIVE), None)
    if native is None:
        return
    reported: set[str] = set()
    for form in prompt.formats:
        if form.example in reported:
            continue
        reported.add(form.example)
        yield Finding(
            name="text-format",
            location=form.place,
            message=f"the instruction shows calls as text, {form.example}, while functions are declared for native calls",  # noqa: E501
            advice="take the format out: the model is told of the functions by their declarations",
            related=native.place,
        )
