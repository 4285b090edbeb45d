"""Cases and mocks held against the declarations: names, arguments, values, answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from msgspec.structs import replace

from evalkit.errors import Problem, did_you_mean
from evalkit.fields.schema import compile_schema
from evalkit.functions.arguments import find_argument_names
from evalkit.functions.mocks.reader import find_return_problems
from evalkit.lint.facts.cases import CaseCall, CaseFacts, is_operator
from evalkit.lint.facts.gather import ProjectFacts
from evalkit.lint.facts.records import SUITE, UNKNOWN, DataPath, DeclaredFunction
from evalkit.lint.finding import Edit, Finding, Rename
from evalkit.lint.names import find_relative, is_alike, is_related
from evalkit.lint.scope import DeclarationScope, list_folders
from evalkit.spec.discover import make_case_name
from evalkit.spec.source import SUITE_FILE

_RULE_OF_PROBLEM = {"unknown_function": "case-function", "unknown_argument": "case-argument"}


def check_case(case: CaseFacts, known_functions: KnownFunctions) -> Iterator[Finding]:
    """Every finding of one case."""
    findings = [*_check_label(case), *_check_functions(case, known_functions)]
    yield from findings
    places = {finding.location for finding in findings}
    for problem in case.examined.problems:
        if problem.location not in places or not problem.location.line:
            yield report_problem(problem)


def report_problem(problem: Problem) -> Finding:
    """A problem that the loader of cases has found, as a finding."""
    return Finding(
        name=_RULE_OF_PROBLEM.get(problem.code, "invalid-case"),
        location=problem.location,
        message=problem.message,
        advice="correct the case; docs/case-format.md describes it",
    )


def report_misnamed(path: FilePath, problem: Problem) -> Finding:
    """A file that holds a case, and has not a case's name."""
    is_suite = path.stem.lower() in ("suite", "suites")
    name = SUITE_FILE if is_suite else make_case_name(path.name)
    folder = problem.location.file.rpartition("/")[0]
    to = f"{folder}/{name}" if folder else name
    return Finding(
        name="case-name",
        location=problem.location,
        message=problem.message,
        advice=f"rename it to {name}",
        fix=None if path.with_name(name).exists() else Rename(problem.location.file, to),
    )


def _check_label(case: CaseFacts) -> Iterator[Finding]:
    label = case.examined.data.get("scenario_id")
    stem = case.file.rpartition("/")[2].partition(".")[0]
    if isinstance(label, str) and label != stem:
        yield Finding(
            name="case-name",
            location=case.locate(("scenario_id",)),
            message=f"scenario_id is '{label}', but the file's name says '{stem}'",
            advice=f"write scenario_id: {stem}, or leave it out",
            fix=_make_replacement(case, ("scenario_id",), label, stem, key=False),
        )


def _check_functions(case: CaseFacts, known_functions: KnownFunctions) -> Iterator[Finding]:
    if not known_functions:
        return
    for output, _ in case.list_expectations():
        if output.get("valid_arguments") is False:
            return
    for call in case.list_calls():
        functions = known_functions.find_declarations(call.name)
        if not functions:
            if known_functions.has_similar(call.name) or (known_functions.is_complete and not call.is_forbidden):
                yield _report_unknown_function(case, call, known_functions)
            continue
        if call.data.get("valid") is not False:
            yield from _check_arguments(case, call, functions)
    for name in case.mocks:
        if not known_functions.find_declarations(name) and (
            known_functions.is_complete or known_functions.has_similar(name)
        ):
            yield _report_undeclared_mock(case, name, known_functions)
    yield from _check_conditions(case, known_functions)
    yield from _check_answers(case, known_functions)


def _report_unknown_function(case: CaseFacts, call: CaseCall, known_functions: KnownFunctions) -> Finding:
    place = case.locate(call.path)
    listed = ", ".join(sorted(known_functions.names)) or "none"
    verb = "forbids" if call.is_forbidden else "expects"
    return Finding(
        name="case-function",
        location=place,
        message=f"the case {verb} '{call.name}', which is not declared"
        f"{did_you_mean(call.name, known_functions.names) or f'; declared are {listed}'}",
        advice="write the declared name, or declare the function",
        fix=None if call.is_forbidden else _make_renaming(case, call.path, call.name, known_functions, key=False),
    )


def _report_undeclared_mock(case: CaseFacts, name: str, known_functions: KnownFunctions) -> Finding:
    path = case.build_mock_path(name)
    listed = ", ".join(sorted(known_functions.names)) or "none"
    return Finding(
        name="mock-function",
        location=case.locate(path, key=True),
        message=f"'{name}' is mocked, and not declared{did_you_mean(name, known_functions.names) or f'; declared are {listed}'}",  # noqa: E501
        advice="mock the declared name, or declare the function",
        fix=_make_renaming(case, path, name, known_functions, key=True),
    )


def _make_renaming(
    case: CaseFacts, path: DataPath, name: str, known_functions: KnownFunctions, *, key: bool
) -> Edit | None:
    """The edit that writes the declared name instead, where only one is meant."""
    declared_name = find_relative(name, known_functions.names)
    is_there = key and declared_name in case.mocks  # a key can't be there twice
    return None if declared_name is None or is_there else _make_replacement(case, path, name, declared_name, key=key)


def _make_replacement(case: CaseFacts, path: DataPath, old: str, new: str, *, key: bool) -> Edit | None:
    """The edit that writes `new` for `old` at `path`, if it stands there as it is."""
    place = case.locate(path, key=key)
    layer = next((candidate for candidate in case.examined.source.layers if candidate.file == place.file), None)
    if layer is None or layer.path is None or not place.column:
        return None
    with open(layer.path, encoding="utf-8-sig") as file:
        text = file.read()
    start = sum(map(len, text.splitlines(keepends=True)[: place.line - 1])) + place.column - 1
    start += text[start : start + 1] in ("'", '"')
    return Edit(place.file, start, start + len(old), new) if text.startswith(old, start) else None


def _check_arguments(case: CaseFacts, call: CaseCall, functions: list[DeclaredFunction]) -> Iterator[Finding]:
    names = _collect_argument_names(functions)
    if names is not None:
        for argument, path, is_sent in call.list_arguments():
            slip = any(is_alike(argument, name) for name in names)
            if argument not in names and (slip or (is_sent and not call.is_forbidden)):
                yield _report_unknown_argument(case, call, argument, path, names)
    function = functions[0]
    if len(functions) > 1 or function.properties is None:
        return
    exact = call.data.get("arguments")
    if exact is None and "arguments" in call.data:
        exact = {}
    if isinstance(exact, Mapping) and not is_operator(exact) and not call.is_forbidden:
        yield from _check_required_arguments(case, call, function, exact)
    for key in ("arguments", "arguments_contain"):
        values = call.data.get(key)
        if isinstance(values, Mapping) and not is_operator(values):
            for argument, value in values.items():
                schema = (function.properties or {}).get(argument)
                if isinstance(schema, Mapping):
                    path = (*call.root, key, argument)
                    yield from _check_value(case, function, argument, value, schema, path, partial=key != "arguments")


def _collect_argument_names(functions: Iterable[DeclaredFunction]) -> frozenset[str] | None:
    """All arguments that any of the declarations allows; None where one allows others."""
    allowed: set[str] = set()
    for function in functions:
        names = find_argument_names(function.parameters) if isinstance(function.parameters, Mapping) else None
        if names is None:
            return None
        allowed |= names
    return frozenset(allowed)


def _report_unknown_argument(
    case: CaseFacts, call: CaseCall, argument: str, path: DataPath, names: Iterable[str]
) -> Finding:
    listed = ", ".join(sorted(names)) or "no arguments"
    return Finding(
        name="case-argument",
        location=case.locate(path, key=True),
        message=f"function '{call.name}' has no argument '{argument}'"
        f"{did_you_mean(argument, names) or f'; it has: {listed}'}",
        advice="write a declared argument, or declare this one",
    )


def _check_required_arguments(
    case: CaseFacts, call: CaseCall, function: DeclaredFunction, exact: Mapping[str, Any]
) -> Iterator[Finding]:
    missing = [name for name in function.required if name not in exact]
    if missing and call.data.get("outcome") != "error":
        names = ", ".join(f"'{name}'" for name in missing)
        yield Finding(
            name="case-argument-missing",
            location=case.locate((*call.root, "arguments"), key=True),
            message=f"exact arguments of '{call.name}' lack {names}, which the function requires",
            advice="add the argument, or write arguments_contain: no valid call can match",
        )


def _check_value(
    case: CaseFacts,
    function: DeclaredFunction,
    name: str,
    value: Any,
    schema: Mapping[str, Any],
    path: DataPath,
    *,
    partial: bool,
) -> Iterator[Finding]:
    if isinstance(value, Mapping) and value.keys() == {"$literal"}:
        value = value["$literal"]
    if _is_open(value) or "$ref" in schema:
        return
    if partial and not _can_be_part(value, schema):
        problem = f"{value!r} is part of none of {', '.join(map(repr, schema['enum']))}" if "enum" in schema else ""
        problem = problem or f"{value!r} is not of type {schema.get('type')}"
    elif partial:
        return
    else:
        error = next(iter(compile_schema(schema).find_errors(value)), None)
        if error is None:
            return
        problem = "; ".join(message for _, message in find_return_problems(value, schema)[:1])
    words = schema.get("enum") if isinstance(schema.get("enum"), list) else ()
    hint = did_you_mean(value, [word for word in words or () if isinstance(word, str)]) if "mean" not in problem else ""
    yield Finding(
        name="case-value",
        location=case.locate(path),
        message=f"'{function.name}': no valid call has this '{name}': {problem}{hint}",
        advice="expect a value that the schema allows, or correct the schema",
    )


def _is_open(value: Any) -> bool:
    """Whether the value is known only in the run, or judged by an operator."""
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, Mapping):
        return any(str(key).startswith("$") for key in value) or any(map(_is_open, value.values()))
    return isinstance(value, list) and any(map(_is_open, value))


def _can_be_part(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether some valid value may contain this one, by type and enum, as `arguments_contain` understands it."""
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if kinds and not any(compile_schema({"type": kind}).is_valid(value) for kind in kinds):
        return False
    values = schema.get("enum")
    if not isinstance(values, list):
        return True
    folded = str(value).casefold()
    return value in values or (isinstance(value, str) and any(folded in str(item).casefold() for item in values))


def _check_conditions(case: CaseFacts, known_functions: KnownFunctions) -> Iterator[Finding]:
    for function, argument, path in case.list_conditions():
        names = (
            _collect_argument_names(known_functions.find_declarations(function))
            if known_functions.find_declarations(function)
            else None
        )
        if names is not None and argument not in names:
            listed = ", ".join(sorted(names)) or "none"
            yield Finding(
                name="mock-argument",
                location=case.locate(path, key=True),
                message=f"the mock of '{function}' matches on '{argument}', which the function does not have"
                f"{did_you_mean(argument, names) or f'; it has: {listed}'}",
                advice="match on a declared argument: this rule never answers",
            )


def _check_answers(case: CaseFacts, known_functions: KnownFunctions) -> Iterator[Finding]:
    for answer in case.list_answers():
        functions = [function for function in known_functions.find_declarations(answer.name) if function.form != SUITE]
        schemas = [function.returns for function in functions if function.returns is not None]
        if len(schemas) != len(functions) or not schemas:
            continue
        problems = [find_return_problems(answer.value, schema) for schema in schemas]
        if all(problems):
            inner_path, message = problems[0][0]
            yield Finding(
                name="mock-result",
                location=case.locate((*answer.path, *inner_path)),
                message=f"the mock of '{answer.name}' breaks its 'returns' schema: {message}",
                advice="answer what the function could return",
            )


def find_never_expected(
    declared: Iterable[DeclaredFunction], expected: Mapping[str, set[str]], tested: Mapping[str, set[str]]
) -> Iterator[Finding]:
    """Functions that cases could expect, and none does. Both mappings: file of the declaration -> names."""
    reported: set[str] = set()
    for function in declared:
        file, name = function.file, function.name
        if name in tested.get(file, ()) and name not in expected.get(file, ()) and name not in reported:
            reported.add(name)
            yield Finding(
                name="never-expected",
                location=function.place,
                message=f"'{name}' is declared, and no case expects a call of it",
                advice="write a case in which it must be called, or take it away",
            )


# Which functions a case may name: its own, its agent's, and those declared around it.


class KnownFunctions:
    """Declared functions by name and alias. `is_complete`: there are no others that can't be told."""

    def __init__(self, functions: Iterable[DeclaredFunction], *, is_complete: bool) -> None:
        self.functions = tuple(functions)
        self.is_complete = is_complete
        self._by_name: dict[str, list[DeclaredFunction]] = {}
        for function in self.functions:
            for name in (function.name, *function.aliases):
                self._by_name.setdefault(name, []).append(function)

    def __bool__(self) -> bool:
        return bool(self._by_name)

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def find_declarations(self, name: str) -> list[DeclaredFunction]:
        """The declarations of a name; of several, those that say something of the parameters."""
        declarations = self._by_name.get(name, [])
        described = [function for function in declarations if function.parameters not in (None, UNKNOWN)]
        return described or declarations

    def has_similar(self, name: str) -> bool:
        return any(is_related(name, known_name) for known_name in self._by_name)


class KnownFunctionsFinder:
    """Finds what each case may name. Cases of one place and agent share the answer."""

    def __init__(self, facts: ProjectFacts, scope: DeclarationScope) -> None:
        self._facts = facts
        self._scope = scope
        self._by_key: dict[object, KnownFunctions] = {}
        self._suites = {case.file.rpartition("/")[0] for case in facts.cases}
        self._suite_functions: dict[str, list[DeclaredFunction]] = {}
        for function in facts.declarations:
            if function.form == SUITE:
                self._suite_functions.setdefault(function.file, []).append(function)

    def find_known(self, case: CaseFacts) -> KnownFunctions:
        functions = case.examined.data.get("functions")
        agent = case.agent if isinstance(case.agent, str) else ""
        key = (case.file.rpartition("/")[0], agent, id(functions))
        if key not in self._by_key:
            self._by_key[key] = self._find(case, agent, functions)
        return self._by_key[key]

    def _find(self, case: CaseFacts, agent: str, functions: object) -> KnownFunctions:
        own_functions = (
            list(self._suite_functions.get(case.find_suite_file(functions) or case.file, ())) if functions else []
        )
        if agent.endswith(".md"):
            file = case.find_instruction_file(agent)
            instruction_functions = [function for function in self._facts.declarations if function.file == file]
            return KnownFunctions(
                [*own_functions, *instruction_functions], is_complete=bool(own_functions or instruction_functions)
            )
        surrounding = [
            function
            for function in self._find_agent_functions(case, agent)
            if not self._is_of_other_suite(function, case)
        ]
        folders = {function.file.rpartition("/")[0] for function in surrounding}
        is_complete = not any(place.file.rpartition("/")[0] in folders for place in self._facts.code.opaque_places)
        candidates = [*own_functions, *surrounding]
        return KnownFunctions(
            [*candidates, *self._apply_aliases(candidates)], is_complete=is_complete and bool(candidates)
        )

    def _is_of_other_suite(self, function: DeclaredFunction, case: CaseFacts) -> bool:
        """Whether the function is declared inside a folder of cases that is not around this case: another suite's."""
        folders = list_folders(case.file)
        return any(folder in self._suites and folder not in folders for folder in list_folders(function.file))

    def _apply_aliases(self, functions: list[DeclaredFunction]) -> list[DeclaredFunction]:
        """Declared functions under the other names that the code's alias maps give them."""
        by_name = {function.name: function for function in functions}
        pairs = [(alias.name, alias.target) for alias in self._facts.code.aliases]
        return [
            replace(by_name[known_name], name=new_name, aliases=())
            for alias_name, target in pairs
            for new_name, known_name in ((alias_name, target), (target, alias_name))
            if known_name in by_name and new_name not in by_name
        ]

    def _find_agent_functions(self, case: CaseFacts, agent: str) -> tuple[DeclaredFunction, ...]:
        module, colon, _ = agent.partition(":")
        if colon:
            return self._scope.find_around(module.replace(".", "/") + ".py")
        return self._scope.find_around(self._facts.code.agents.get(agent, case.file))
