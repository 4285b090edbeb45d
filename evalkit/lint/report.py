"""One run of lint: everything read, everything judged, and what is left of it after the configuration."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from evalkit.errors import nearest
from evalkit.lint import cases, declarations, pairs, parameters, prompts
from evalkit.lint.baseline import read_baseline, without_known
from evalkit.lint.bynames import patched
from evalkit.lint.facts import SUITE
from evalkit.lint.finding import Finding
from evalkit.lint.gathering import Facts, gather
from evalkit.lint.known import KnownOfCases
from evalkit.lint.matching import Matcher
from evalkit.lint.nearby import Nearby
from evalkit.lint.options import LintOptions
from evalkit.lint.rules import SEVERITIES
from evalkit.lint.schemas import refused
from evalkit.lint.silencing import unsilenced


class LintReport(Struct, frozen=True, kw_only=True):
    """`findings` in the order of their places; `known` are hidden by the baseline, `gone` no longer found."""

    findings: tuple[Finding, ...]
    functions: int = 0
    cases: int = 0
    known: int = 0
    gone: int = 0
    fail_on: str = SEVERITIES[1]

    @property
    def exit_status(self) -> int:
        """1 if a finding is at least as severe as `fail_on`, else 0."""
        failing = SEVERITIES[: SEVERITIES.index(self.fail_on) + 1]
        return int(any(finding.severity in failing for finding in self.findings))


def lint(options: LintOptions) -> LintReport:
    """Cross-check a project without running any model, nor, unless `options.imports`, any of its code.

    Raises UsageError for paths and baselines that can't be read.
    """
    facts = gather(options)
    judged = (
        replace(finding, severity=options.severity_of(finding.name))
        for finding in (*facts.findings, *_judged(facts))
        if not options.is_off(finding.name, finding.location.file)
    )
    findings = sorted(unsilenced(dict.fromkeys(judged), options.root), key=_order)
    known, gone = 0, 0
    if options.baseline is not None:
        findings, known, gone = without_known(findings, read_baseline(options.root / options.baseline))
    return LintReport(
        findings=tuple(findings),
        functions=len({function.name for function in facts.declared}),
        cases=len(facts.cases),
        known=known,
        gone=gone,
        fail_on=options.fail_on,
    )


def _order(finding: Finding) -> tuple[object, ...]:
    location = finding.location
    return (location.file, location.line, location.column, finding.rule.code, finding.message)


def _judged(facts: Facts) -> Iterator[Finding]:
    declared, nearby = facts.declared, Nearby(facts.declared)
    yield from declarations.judge(declared)
    yield from declarations.doubles([*declared])
    yield from declarations.conflicts(declared)
    for function in declared:
        yield from refused(function, facts.options.providers)
    yield from pairs.judge(declared, _trees(facts))
    matched = Matcher(declared, facts.code).match()
    yield from matched.findings
    yield from parameters.judge([*matched.pairs, *patched(declared, facts.code)])
    yield from prompts.judge([*facts.prompts, *facts.code.prompts], nearby, facts.code.aliases, facts.code.offering)
    yield from _of_cases(facts, nearby)


def _trees(facts: Facts) -> Iterator[pairs.Tree]:
    yield from facts.code.trees
    for text in facts.documents:
        tree = pairs.tree_of_headings(text)
        if tree is not None:
            yield tree


def _of_cases(facts: Facts, nearby: Nearby) -> Iterator[Finding]:
    yield from (cases.misnamed(path, problem) for path, problem in facts.misnamed)
    yield from map(cases.invalid_case, facts.broken)
    known_of = KnownOfCases(facts, nearby)
    expected: dict[str, set[str]] = {}
    tested: dict[str, set[str]] = {}
    for case in facts.cases:
        known = known_of.of(case)
        yield from cases.judge(case, known)
        names = {call.name for call in case.expected() if not call.forbidden}
        names |= {meant for name in names if not known.of(name) and (meant := nearest(name, known.names))}
        for function in known.functions:
            tested.setdefault(function.file, set()).add(function.name)
            if names & {function.name, *function.aliases}:
                expected.setdefault(function.file, set()).add(function.name)
    ordered = sorted(facts.declared, key=lambda function: function.form == SUITE)
    yield from cases.never_expected(ordered, expected, tested)
