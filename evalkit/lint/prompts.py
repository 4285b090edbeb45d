"""Instructions held against the declarations: unknown functions, unknown arguments, text calls beside native ones."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from evalkit.errors import did_you_mean
from evalkit.lint.facts import DECORATED, INSTRUCTION, MCP, PLAIN, Alias, Declared, Mention, Prompt
from evalkit.lint.finding import Edit, Finding
from evalkit.lint.names import difference, related, relative, same_words, words
from evalkit.lint.nearby import Nearby, is_near
from evalkit.lint.schemas import is_service_form
from evalkit.lint.signatures import JSON_TYPES

_NATIVE = (INSTRUCTION, MCP, DECORATED, PLAIN)


def judge(
    prompts: Iterable[Prompt], nearby: Nearby, aliases: Sequence[Alias], offering: Container[str] = ()
) -> Iterator[Finding]:
    """The findings in instructions that are about functions known nearby. `offering`: files that make native calls."""
    also = {alias.name for alias in aliases}
    for prompt in prompts:
        around = nearby.around(prompt.file)
        known = prompt.own if prompt.own is not None else around
        if known and (prompt.own is not None or _is_about(prompt, known)):
            yield from _functions(prompt, known, around, also)
            if not prompt.lists_functions or prompt.file in offering:
                yield from _formats(prompt, known)


def _is_about(prompt: Prompt, known: Iterable[Declared]) -> bool:
    """Whether a text that declares nothing itself speaks of these functions."""
    names = {function.name for function in known}
    return any(
        mention.name in names or any(related(mention.name, name) for name in names) for mention in prompt.mentions
    )


def _functions(
    prompt: Prompt, known: Sequence[Declared], around: Sequence[Declared], aliases: set[str]
) -> Iterator[Finding]:
    own = {name: function for function in known for name in (function.name, *function.aliases)}
    elsewhere = {function.name: function for function in around if function.name not in own}
    told: set[str] = set()
    for mention in prompt.mentions:
        if mention.is_bare and prompt.own is None and not _is_near(mention, own, prompt.file):
            continue
        if mention.name in own:
            yield from _arguments(mention, own[mention.name])
        elif mention.name not in aliases and mention.name not in told:
            finding = _unknown(mention, own, elsewhere)
            if finding is not None:
                told.add(mention.name)
                yield finding


def _is_near(mention: Mention, own: dict[str, Declared], file: str) -> bool:
    """Whether a name among the words can mean the function that has it, or nearly has it: another agent's may, too."""
    meant = mention.name if mention.name in own else relative(mention.name, own)
    return meant is not None and is_near(own[meant].file, file)


def _unknown(mention: Mention, own: dict[str, Declared], elsewhere: dict[str, Declared]) -> Finding | None:
    """A finding about a name that is not declared here, if it is plainly meant as a function's."""
    if _is_something_else(mention.name, own):
        return None
    near = relative(mention.name, own)
    if near is not None and not mention.is_call and same_words(mention.name, near) and len(words(near)) < 2:
        return None  # `grep` need not be the function Grep
    if near is not None:
        declared = own[near]
        message = f"the instruction calls '{mention.name}', declared is '{near}': {difference(mention.name, near)}"
        advice = "write the declared name, or make the other one its alias"
        fix = declared.add_alias(mention.name) if declared.add_alias is not None else None
        return _finding(mention, message, advice, declared, fix)
    if mention.negated or mention.is_bare:
        return None
    other = elsewhere.get(mention.name)
    if other is not None:
        message = f"the instruction speaks of '{mention.name}', which it does not declare; {other.file} does"
        return _finding(mention, message, "declare it here too, or take it out of the text", other)
    if not mention.is_call:
        return None  # any word may stand in backticks
    message = f"the instruction calls '{mention.name}', which is not declared{did_you_mean(mention.name, own)}"
    return _finding(mention, message, "declare it, or take it out of the text")


def _finding(
    mention: Mention, message: str, advice: str, other: Declared | None = None, fix: Edit | None = None
) -> Finding:
    related = None if other is None else other.place
    name = "instruction-function"
    return Finding(name=name, location=mention.place, message=message, advice=advice, related=related, fix=fix)


def _is_something_else(name: str, own: dict[str, Declared]) -> bool:
    """A parameter, a value of an enum, or a type: names that instructions quote as well."""
    if name in JSON_TYPES:
        return True
    for function in own.values():
        properties = function.properties or {}
        if name in properties:
            return True
        if any(name in schema.get("enum", ()) for schema in properties.values() if hasattr(schema, "get")):
            return True
    return False


def _arguments(mention: Mention, function: Declared) -> Iterator[Finding]:
    properties = function.properties
    if properties is None or function.form == DECORATED:
        return
    for name, place in mention.arguments:
        if name not in properties:
            known = ", ".join(properties) or "none"
            yield Finding(
                name="instruction-argument",
                location=place,
                message=f"the instruction calls '{function.name}' with '{name}', which it does not have"
                f"{did_you_mean(name, properties) or f'; it has {known}'}",
                advice="write the declared argument: models copy what instructions show",
                related=function.place,
            )


def _formats(prompt: Prompt, known: Sequence[Declared]) -> Iterator[Finding]:
    native = next((function for function in known if is_service_form(function) or function.form in _NATIVE), None)
    if native is None:
        return
    told: set[str] = set()
    for form in prompt.formats:
        if form.shown in told:
            continue
        told.add(form.shown)
        yield Finding(
            name="text-format",
            location=form.place,
            message=f"the instruction shows calls as text, {form.shown}, while functions are declared for native calls",
            advice="take the format out: the model is told of the functions by their declarations",
            related=native.place,
        )
