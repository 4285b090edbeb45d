"""One run of lint: everything read, everything judged, and what is left of it after the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from evalkit.errors import find_nearest
from evalkit.lint.baseline import read_baseline, remove_known
from evalkit.lint.facts.gather import ProjectFacts, gather
from evalkit.lint.facts.records import SUITE
from evalkit.lint.finding import Finding
from evalkit.lint.options import LintOptions
from evalkit.lint.rules import cases, declarations, parameters
from evalkit.lint.rules import enum_pairs as pairs
from evalkit.lint.rules import instructions as prompts
from evalkit.lint.rules.by_name import find_patched
from evalkit.lint.rules.cases import KnownFunctionsFinder
from evalkit.lint.rules.dispatch import DispatchMatcher
from evalkit.lint.rules.service_limits import check_service_limits
from evalkit.lint.rules.table import SEVERITIES
from evalkit.lint.scope import DeclarationScope


class LintReport(Struct, frozen=True, kw_only=True):
    """`findings` in the order of their places; `known` are hidden by the baseline, `gone` no longer found."""

    findings: tuple[Finding, ...]
    functions: int = 0
    cases: int = 0
    known_count: int = 0
    gone_count: int = 0
    fail_on: str = SEVERITIES[1]

    @property
    def exit_status(self) -> int:
        """1 if a finding is at least as severe as `fail_on`, else 0."""
        failing = SEVERITIES[: SEVERITIES.index(self.fail_on) + 1]
        return int(any(finding.severity in failing for finding in self.findings))


def check_project(options: LintOptions) -> LintReport:
    """Cross-check a project without running any model, nor, unless `options.imports`, any of its code.

    Raises UsageError for paths and baselines that can't be read.
    """
    facts = gather(options)
    selected = (
        replace(finding, severity=options.get_severity(finding.name))
        for finding in (*facts.findings, *_check_facts(facts))
        if not options.is_off(finding.name, finding.location.file)
    )
    findings = sorted(remove_silenced(dict.fromkeys(selected), options.root), key=_get_sort_key)
    known_count, gone_count = 0, 0
    if options.baseline is not None:
        findings, known_count, gone_count = remove_known(findings, read_baseline(options.root / options.baseline))
    return LintReport(
        findings=tuple(findings),
        functions=len({function.name for function in facts.declarations}),
        cases=len(facts.cases),
        known_count=known_count,
        gone_count=gone_count,
        fail_on=options.fail_on,
    )


def _get_sort_key(finding: Finding) -> tuple[object, ...]:
    location = finding.location
    return (location.file, location.line, location.column, finding.rule.code, finding.message)


def _check_facts(facts: ProjectFacts) -> Iterator[Finding]:
    declared, scope = facts.declarations, DeclarationScope(facts.declarations)
    yield from declarations.check_declarations(declared)
    yield from declarations.check_duplicates([*declared])
    yield from declarations.check_conflicts(declared)
    for function in declared:
        yield from check_service_limits(function, facts.options.providers)
    yield from pairs.check_pairs(declared, _find_trees(facts))
    matched = DispatchMatcher(declared, facts.code).match()
    yield from matched.findings
    yield from parameters.check_parameters([*matched.pairs, *find_patched(declared, facts.code)])
    yield from prompts.check_instructions(
        [*facts.prompts, *facts.code.prompts], scope, facts.code.aliases, facts.code.native_call_files
    )
    yield from _check_cases(facts, scope)


def _find_trees(facts: ProjectFacts) -> Iterator[pairs.ValueTree]:
    yield from facts.code.value_trees
    for text in facts.documents:
        tree = pairs.read_headings(text)
        if tree is not None:
            yield tree


def _check_cases(facts: ProjectFacts, scope: DeclarationScope) -> Iterator[Finding]:
    yield from (cases.report_misnamed(path, problem) for path, problem in facts.misnamed_files)
    yield from map(cases.report_problem, facts.case_problems)
    finder = KnownFunctionsFinder(facts, scope)
    expected: dict[str, set[str]] = {}
    tested: dict[str, set[str]] = {}
    for case in facts.cases:
        known_functions = finder.find_known(case)
        yield from cases.check_case(case, known_functions)
        names = {call.name for call in case.list_calls() if not call.is_forbidden}
        names |= {
            declared_name
            for name in names
            if not known_functions.find_declarations(name)
            and (declared_name := find_nearest(name, known_functions.names))
        }
        for function in known_functions.functions:
            tested.setdefault(function.file, set()).add(function.name)
            if names & {function.name, *function.aliases}:
                expected.setdefault(function.file, set()).add(function.name)
    ordered = sorted(facts.declarations, key=lambda function: function.form == SUITE)
    yield from cases.find_never_expected(ordered, expected, tested)


# Findings that a comment on their line silences: ``# evalkit: ignore[never-expected]``.

_COMMENT = re.compile(r"evalkit: *ignore(?:\[(?P<rules>[\w, -]+)\])?")


def remove_silenced(findings: Iterable[Finding], root: Path) -> Iterator[Finding]:
    """Findings whose line has no such comment, or one about other rules."""
    lines: dict[str, list[str]] = {}
    for finding in findings:
        file, line = finding.location.file, finding.location.line
        if line and file not in lines:
            lines[file] = _read_lines(root / file)
        text = lines[file][line - 1] if line and line <= len(lines[file]) else ""
        if not _is_silenced(text, finding):
            yield finding


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.splitlines() if "evalkit:" in text else []


def _is_silenced(text: str, finding: Finding) -> bool:
    match = _COMMENT.search(text)
    if match is None:
        return False
    rules = {rule.strip() for rule in (match["rules"] or "").split(",")} - {""}
    return not rules or bool(rules & {finding.name, finding.rule.code})
