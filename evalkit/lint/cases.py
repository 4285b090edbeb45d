"""Cases and mocks held against the declarations: names, arguments, values, answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from evalkit.errors import Problem, did_you_mean
from evalkit.functions.mockchecks import return_problems
from evalkit.functions.schemas import compiled
from evalkit.functions.violations import argument_names
from evalkit.lint.casefacts import CaseFacts, ExpectedCall, is_operator
from evalkit.lint.facts import SUITE, Declared, Path
from evalkit.lint.finding import Edit, Finding, Rename
from evalkit.lint.known import Known
from evalkit.lint.names import alike, relative
from evalkit.spec.naming import suggested
from evalkit.spec.suites import SUITE_FILE

_OF_LOADER = {"unknown_function": "case-function", "unknown_argument": "case-argument"}


def judge(case: CaseFacts, known: Known) -> Iterator[Finding]:
    """Every finding of one case."""
    found = [*_label(case), *_own(case, known)]
    yield from found
    places = {finding.location for finding in found}
    for problem in case.examined.problems:
        if problem.location not in places or not problem.location.line:
            yield invalid_case(problem)


def invalid_case(problem: Problem) -> Finding:
    """A problem that the loader of cases has found, as a finding."""
    return Finding(
        name=_OF_LOADER.get(problem.code, "invalid-case"),
        location=problem.location,
        message=problem.message,
        advice="correct the case; docs/case-format.md describes it",
    )


def misnamed(path: FilePath, problem: Problem) -> Finding:
    """A file that holds a case, and has not a case's name."""
    is_suite = path.stem.lower() in ("suite", "suites")
    name = SUITE_FILE if is_suite else suggested(path.name)
    folder = problem.location.file.rpartition("/")[0]
    to = f"{folder}/{name}" if folder else name
    return Finding(
        name="case-name",
        location=problem.location,
        message=problem.message,
        advice=f"rename it to {name}",
        fix=None if path.with_name(name).exists() else Rename(problem.location.file, to),
    )


def _label(case: CaseFacts) -> Iterator[Finding]:
    label = case.examined.data.get("scenario_id")
    stem = case.file.rpartition("/")[2].partition(".")[0]
    if isinstance(label, str) and label != stem:
        yield Finding(
            name="case-name",
            location=case.locate(("scenario_id",)),
            message=f"scenario_id is '{label}', but the file's name says '{stem}'",
            advice=f"write scenario_id: {stem}, or leave it out",
            fix=_replacing(case, ("scenario_id",), label, stem, key=False),
        )


def _own(case: CaseFacts, known: Known) -> Iterator[Finding]:
    if not known:
        return
    for output, _ in case.expectations():
        if output.get("valid_arguments") is False:
            return
    for call in case.expected():
        functions = known.of(call.name)
        if not functions:
            if known.near(call.name) or (known.is_complete and not call.forbidden):
                yield _unknown_function(case, call, known)
            continue
        if call.written.get("valid") is not False:
            yield from _arguments(case, call, functions)
    for name in case.mocks:
        if not known.of(name) and (known.is_complete or known.near(name)):
            yield _undeclared_mock(case, name, known)
    yield from _conditions(case, known)
    yield from _answers(case, known)


def _unknown_function(case: CaseFacts, call: ExpectedCall, known: Known) -> Finding:
    place = case.locate(call.path)
    listed = ", ".join(sorted(known.names)) or "none"
    what = "forbids" if call.forbidden else "expects"
    return Finding(
        name="case-function",
        location=place,
        message=f"the case {what} '{call.name}', which is not declared"
        f"{did_you_mean(call.name, known.names) or f'; declared are {listed}'}",
        advice="write the declared name, or declare the function",
        fix=None if call.forbidden else _renaming(case, call.path, call.name, known, key=False),
    )


def _undeclared_mock(case: CaseFacts, name: str, known: Known) -> Finding:
    path = case.mock_path(name)
    listed = ", ".join(sorted(known.names)) or "none"
    return Finding(
        name="mock-function",
        location=case.locate(path, key=True),
        message=f"'{name}' is mocked, and not declared{did_you_mean(name, known.names) or f'; declared are {listed}'}",
        advice="mock the declared name, or declare the function",
        fix=_renaming(case, path, name, known, key=True),
    )


def _renaming(case: CaseFacts, path: Path, name: str, known: Known, *, key: bool) -> Edit | None:
    """The edit that writes the declared name instead, where only one is meant."""
    meant = relative(name, known.names)
    is_there = key and meant in case.mocks  # a key can't be there twice
    return None if meant is None or is_there else _replacing(case, path, name, meant, key=key)


def _replacing(case: CaseFacts, path: Path, old: str, new: str, *, key: bool) -> Edit | None:
    """The edit that writes `new` for `old` at `path`, if it stands there as it is."""
    place = case.locate(path, key=key)
    layer = next((it for it in case.examined.source.layers if it.file == place.file), None)
    if layer is None or layer.path is None or not place.column:
        return None
    with open(layer.path, encoding="utf-8-sig") as file:
        text = file.read()
    start = sum(map(len, text.splitlines(keepends=True)[: place.line - 1])) + place.column - 1
    start += text[start : start + 1] in ("'", '"')
    return Edit(place.file, start, start + len(old), new) if text.startswith(old, start) else None


def _arguments(case: CaseFacts, call: ExpectedCall, functions: list[Declared]) -> Iterator[Finding]:
    names = _names(functions)
    if names is not None:
        for argument, path, is_sent in call.named_arguments():
            slip = any(alike(argument, name) for name in names)
            if argument not in names and (slip or (is_sent and not call.forbidden)):
                yield _unknown_argument(case, call, argument, path, names)
    function = functions[0]
    if len(functions) > 1 or function.properties is None:
        return
    exact = call.written.get("arguments")
    if exact is None and "arguments" in call.written:
        exact = {}
    if isinstance(exact, Mapping) and not is_operator(exact) and not call.forbidden:
        yield from _missing(case, call, function, exact)
    for key in ("arguments", "arguments_contain"):
        values = call.written.get(key)
        if isinstance(values, Mapping) and not is_operator(values):
            for argument, value in values.items():
                schema = (function.properties or {}).get(argument)
                if isinstance(schema, Mapping):
                    path = (*call.root, key, argument)
                    yield from _value(case, function, argument, value, schema, path, partial=key != "arguments")


def _names(functions: Iterable[Declared]) -> frozenset[str] | None:
    """All arguments that any of the declarations allows; None where one allows others."""
    found: set[str] = set()
    for function in functions:
        names = argument_names(function.parameters) if isinstance(function.parameters, Mapping) else None
        if names is None:
            return None
        found |= names
    return frozenset(found)


def _unknown_argument(case: CaseFacts, call: ExpectedCall, argument: str, path: Path, names: Iterable[str]) -> Finding:
    listed = ", ".join(sorted(names)) or "no arguments"
    return Finding(
        name="case-argument",
        location=case.locate(path, key=True),
        message=f"function '{call.name}' has no argument '{argument}'"
        f"{did_you_mean(argument, names) or f'; it has: {listed}'}",
        advice="write a declared argument, or declare this one",
    )


def _missing(case: CaseFacts, call: ExpectedCall, function: Declared, exact: Mapping[str, Any]) -> Iterator[Finding]:
    left = [name for name in function.required if name not in exact]
    if left and call.written.get("outcome") != "error":
        shown = ", ".join(f"'{name}'" for name in left)
        yield Finding(
            name="case-argument-missing",
            location=case.locate((*call.root, "arguments"), key=True),
            message=f"exact arguments of '{call.name}' lack {shown}, which the function requires",
            advice="add the argument, or write arguments_contain: no valid call can match",
        )


def _value(
    case: CaseFacts, function: Declared, name: str, value: Any, schema: Mapping[str, Any], path: Path, *, partial: bool
) -> Iterator[Finding]:
    if isinstance(value, Mapping) and value.keys() == {"$literal"}:
        value = value["$literal"]
    if _is_open(value) or "$ref" in schema:
        return
    if partial and not _may_be_part(value, schema):
        problem = f"{value!r} is part of none of {', '.join(map(repr, schema['enum']))}" if "enum" in schema else ""
        problem = problem or f"{value!r} is not of type {schema.get('type')}"
    elif partial:
        return
    else:
        error = next(iter(compiled(schema).errors(value)), None)
        if error is None:
            return
        problem = "; ".join(message for _, message in return_problems(value, schema)[:1])
    words = schema.get("enum") if isinstance(schema.get("enum"), list) else ()
    near = did_you_mean(value, [word for word in words or () if isinstance(word, str)]) if "mean" not in problem else ""
    yield Finding(
        name="case-value",
        location=case.locate(path),
        message=f"'{function.name}': no valid call has this '{name}': {problem}{near}",
        advice="expect a value that the schema allows, or correct the schema",
    )


def _is_open(value: Any) -> bool:
    """Whether the value is known only in the run, or judged by an operator."""
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, Mapping):
        return any(str(key).startswith("$") for key in value) or any(map(_is_open, value.values()))
    return isinstance(value, list) and any(map(_is_open, value))


def _may_be_part(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether some valid value may contain this one, by type and enum, as `arguments_contain` understands it."""
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if kinds and not any(compiled({"type": kind}).fits(value) for kind in kinds):
        return False
    values = schema.get("enum")
    if not isinstance(values, list):
        return True
    folded = str(value).casefold()
    return value in values or (isinstance(value, str) and any(folded in str(item).casefold() for item in values))


def _conditions(case: CaseFacts, known: Known) -> Iterator[Finding]:
    for function, argument, path in case.conditions():
        names = _names(known.of(function)) if known.of(function) else None
        if names is not None and argument not in names:
            listed = ", ".join(sorted(names)) or "none"
            yield Finding(
                name="mock-argument",
                location=case.locate(path, key=True),
                message=f"the mock of '{function}' matches on '{argument}', which the function does not have"
                f"{did_you_mean(argument, names) or f'; it has: {listed}'}",
                advice="match on a declared argument: this rule never answers",
            )


def _answers(case: CaseFacts, known: Known) -> Iterator[Finding]:
    for answer in case.answers():
        functions = [function for function in known.of(answer.name) if function.form != SUITE]
        schemas = [function.returns for function in functions if function.returns is not None]
        if len(schemas) != len(functions) or not schemas:
            continue
        problems = [return_problems(answer.value, schema) for schema in schemas]
        if all(problems):
            where, message = problems[0][0]
            yield Finding(
                name="mock-result",
                location=case.locate((*answer.path, *where)),
                message=f"the mock of '{answer.name}' breaks its 'returns' schema: {message}",
                advice="answer what the function could return",
            )


def never_expected(
    declared: Iterable[Declared], expected: Mapping[str, set[str]], tested: Mapping[str, set[str]]
) -> Iterator[Finding]:
    """Functions that cases could expect, and none does. Both mappings: file of the declaration -> names."""
    told: set[str] = set()
    for function in declared:
        file, name = function.file, function.name
        if name in tested.get(file, ()) and name not in expected.get(file, ()) and name not in told:
            told.add(name)
            yield Finding(
                name="never-expected",
                location=function.place,
                message=f"'{name}' is declared, and no case expects a call of it",
                advice="write a case in which it must be called, or take it away",
            )
