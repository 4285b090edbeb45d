"""``{{ calls.X[n].result.path }}`` and ``{{ input.path }}`` in expected values: checked at load, resolved later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from evalkit.checks.reading import ExpectationReader, KeyPath
from evalkit.model.template import Reference, Template, TemplateError, follow_path, parse_template
from evalkit.model.transcript import FunctionCall

PARTS = ("result", "arguments")


def find_references(value: Any) -> Iterator[Reference]:
    """Every reference in the strings of an expected value; below `$literal` there are none."""
    if isinstance(value, str):
        if "{{" in value:
            yield from _parse_references(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "$literal":
                yield from find_references(item)
    elif isinstance(value, list):
        for item in value:
            yield from find_references(item)


def _parse_references(text: str) -> Iterator[Reference]:
    try:
        template = parse_template(text)
    except TemplateError:
        return  # reported where the value is compiled
    if isinstance(template, Template):
        yield from (part for part in template.parts if isinstance(part, Reference))


def check_references(reader: ExpectationReader, path: KeyPath, value: Any, *, in_call: bool = False) -> bool:
    """Report references that can lead nowhere, whatever happens. Returns whether `{{ arguments... }}` is used."""
    needs_call = False
    for reference in find_references(value):
        problem = _find_problem(reader, reference, in_call)
        if problem:
            reader.add_problem(path, f"{reader.format_place(path)}: template {reference.text} {problem}")
        needs_call = needs_call or reference.root == "arguments"
    return needs_call


def _find_problem(reader: ExpectationReader, reference: Reference, in_call: bool) -> str:
    if reference.root == "state":
        return "can't be known here: state belongs to the mocks; expectations may use calls, input and arguments"
    if reference.root == "arguments":
        return "" if in_call else "can't be known here: arguments are those of one expected call"
    return (
        _find_calls_problem(reader, reference) if reference.root == "calls" else _find_input_problem(reader, reference)
    )


def _find_input_problem(reader: ExpectationReader, reference: Reference) -> str:
    if reader.case_input is None:
        return ""
    try:
        follow_path(reader.case_input, reference.path, "")
    except TemplateError as error:
        return str(error).removeprefix("template  ")
    return ""


def _find_calls_problem(reader: ExpectationReader, reference: Reference) -> str:
    from evalkit.errors import did_you_mean

    path = reference.path
    if not path or not isinstance(path[0], str):
        return "names no function; write {{ calls.create_ticket.result.ticket_id }}"
    if reader.declarations and reader.find_canonical(path[0]) is None:
        return f"names '{path[0]}', which is not declared{did_you_mean(path[0], reader.declarations)}"
    rest = path[1:]
    if rest and isinstance(rest[0], int):
        if rest[0] < 1:
            return "counts calls from 0; the first call is [1], as in the trace"
        rest = rest[1:]
    if not rest or rest[0] not in PARTS:
        return f"must go on with .result or .arguments after the function{did_you_mean(rest[0] if rest else '', PARTS)}"
    return ""


def build_resolver(
    calls: Sequence[FunctionCall], case_input: Any, aliases: Mapping[str, str] | None = None
) -> Callable[[Reference], Any]:
    """What a reference stands for, given the calls made and the case's input. Raises TemplateError where nothing is.

    `aliases` give the names that functions are recorded under.
    """

    def resolve(reference: Reference) -> Any:
        if reference.root == "input":
            return follow_path(case_input, reference.path, reference.text)
        if reference.root == "calls":
            return _resolve_call_reference(calls, reference, aliases or {})
        raise TemplateError(f"template {reference.text} can't be known here")

    return resolve


def build_call_resolver(resolve: Callable[[Reference], Any], call: FunctionCall) -> Callable[[Reference], Any]:
    """As `resolve`, where ``arguments`` are those of `call`."""

    def resolve_in_call(reference: Reference) -> Any:
        if reference.root == "arguments":
            return follow_path(call.arguments, reference.path, reference.text)
        return resolve(reference)

    return resolve_in_call


def _resolve_call_reference(calls: Sequence[FunctionCall], reference: Reference, aliases: Mapping[str, str]) -> Any:
    name, *rest = reference.path
    names = (name, aliases.get(str(name), name))
    named = [call for call in calls if call.name in names or call.requested_name == name]
    successful = [call for call in named if call.outcome == "ok"]
    number = rest.pop(0) if rest and isinstance(rest[0], int) else 1
    if not isinstance(number, int) or not 1 <= number <= len(successful):
        counts = _describe_count(str(name), len(successful), len(named))
        raise TemplateError(f"template {reference.text} leads nowhere: {counts}")
    part, *path = rest
    call = successful[number - 1]
    return follow_path(call.result if part == "result" else call.arguments, tuple(path), reference.text)


def _describe_count(name: str, successful: int, attempts: int) -> str:
    if not attempts:
        return f"{name} was not called"
    if not successful:
        return f"{name} was called, but never successfully"
    return f"{name} succeeded {successful} time{'s' if successful > 1 else ''}"
