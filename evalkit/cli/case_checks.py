"""`evalkit mutate`, `smoke` and `judge-check`: mistakes that a case would not notice, cases that nothing could satisfy,
and how far a grader agrees with people."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import CodeType

from msgspec import Struct, to_builtins

from evalkit.agents.grader import Grader, check_graders
from evalkit.agents.model_choice import aclose_shared
from evalkit.agents.registry import load_case_instruction
from evalkit.config import read_options
from evalkit.errors import SpecError, UsageError, did_you_mean
from evalkit.gate.decision import EXIT_STATUS
from evalkit.hosts.casecheck.expected_calls import list_expected_names
from evalkit.hosts.casecheck.judge_check import (
    CheckOutcome,
    GradedValue,
    LabelledValue,
    find_obstacles,
    find_shortfalls,
    grade_labels,
    measure_by_criterion,
    measure_grader,
    open_label_grader,
    read_labels,
)
from evalkit.hosts.casecheck.mutants import list_kinds, observe
from evalkit.hosts.casecheck.mutation_score import CaseScore, compute_score
from evalkit.hosts.casecheck.smoke import SmokeResult, run_smoke_check
from evalkit.hosts.commands.api import open_project
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.operators.judged import describe_grade, describe_grader, quote
from evalkit.records.registry import AGENTS, look_up_from
from evalkit.records.run import MET, MISSED, NOT_MEASURED
from evalkit.records.settings import Settings
from evalkit.records.side_usage import SideUsage
from evalkit.spec.files import explain_no_case
from evalkit.stats.accounting import Grades
from evalkit.stats.agreement import FEW, Agreement
from evalkit.text.format import escape_controls, escape_json_commands, format_count, format_value, parse_percentage
from evalkit.text.redact import find_secrets
from evalkit.yamlfile.write import dump


def score_cases(paths: Sequence[str], leave_out: Sequence[str], *, untrusted: bool = False) -> list[CaseScore]:
    """Return a score per case of `paths`; cases that don't pass, and broken files, have no mutants."""
    for kind in leave_out:
        if kind not in list_kinds():
            suggestion = did_you_mean(kind, list_kinds()) or f"; there are {', '.join(list_kinds())}"
            raise UsageError(f"--without {kind}: no such kind of mutant{suggestion}")
    project = open_project(untrusted=untrusted)
    case_scores = []
    for loaded in project.load_cases(paths):
        if loaded.case is None:
            case_scores.append(CaseScore(loaded.id, skipped=f"error: {loaded.problems[0]}"))
        else:
            agent = project.agent if loaded.case.agent is None else None
            with look_up_from(loaded.case.folder):
                case_scores.append(compute_score(observe(loaded.case, agent, project.settings), leave_out=leave_out))
    if not case_scores:
        raise UsageError(explain_no_case(paths or project.paths))
    return case_scores


def compute_score_status(case_scores: Sequence[CaseScore], min_score: str | None) -> int:
    """Return 0 if the score is met or none is demanded, 1 if it is missed, 6 if no case could be probed."""
    floor = Fraction(0) if min_score is None else parse_percentage(min_score, "--min-score")
    caught, total = _count_mutants(case_scores)
    if not total:
        return EXIT_STATUS[NOT_MEASURED]
    return EXIT_STATUS[MET] if Fraction(caught * 100, total) >= floor else EXIT_STATUS[MISSED]


def render_scores_as_json(case_scores: Sequence[CaseScore], status: int) -> str:
    """Return the scores as one JSON document."""
    caught, total = _count_mutants(case_scores)
    document = {"version": 1, "caught": caught, "total": total, "score": _compute_percent(caught, total)}
    return json.dumps({**document, "exit_status": status, "cases": to_builtins(case_scores)}, indent=2)


def render_scores_as_text(case_scores: Sequence[CaseScore], min_score: str | None, status: int) -> list[str]:
    """Return a paragraph per case with survivors, and the total score."""
    lines: list[str] = []
    for case_score in case_scores:
        if case_score.skipped:
            lines.append(f"{case_score.case_id}: not probed; {escape_controls(case_score.skipped)}")
        elif case_score.survivors:
            graded = "; no criterion of judge was graded anew, and none could catch one" if case_score.graded else ""
            lines.append(f"{case_score.case_id}: {case_score.caught} of {case_score.total} mutants caught{graded}")
        for survivor in case_score.survivors:
            lines.append(f"  accepted: {escape_controls(survivor.description)} ({survivor.kind})")
            if survivor.keys is None:
                lines.append("    no single expectation of this case would notice it")
            else:
                lines.append(f"    would be caught by, at {escape_controls(survivor.place)}:")
                lines += [f"      {escape_controls(line)}" for line in dump(survivor.keys).splitlines()]
    caught, total = _count_mutants(case_scores)
    if not total:
        return [*lines, "mutation score NOT MEASURED: no case passed, so that nothing could be perturbed"]
    probed = sum(not case_score.skipped for case_score in case_scores)
    unprobed = len(case_scores) - probed
    also = f"; {unprobed} not probed" if unprobed else ""
    of = f"{caught} of {total} mutants of {format_count(probed, 'case')}{also}"
    word = "" if min_score is None else f", {'met' if status == EXIT_STATUS[MET] else 'MISSED'}: at least {min_score} %"
    return [*lines, f"mutation score {_compute_percent(caught, total)} % ({of}){word}"]


def _count_mutants(case_scores: Sequence[CaseScore]) -> tuple[int, int]:
    """Return the numbers of caught mutants and of all."""
    return sum(score.caught for score in case_scores), sum(score.total for score in case_scores)


def _compute_percent(caught: int, total: int) -> float:
    """Return percent to one digit, rounded down, so that nothing less is shown as 100."""
    return float(Fraction(caught * 1000, total).__floor__() / 10) if total else 0.0


class SmokeRow(Struct, frozen=True):
    """The smoke report of one case, or the problems of a file that is no valid case."""

    report: SmokeResult
    problems: tuple[str, ...] = ()


def smoke_cases(paths: Sequence[str], *, untrusted: bool = False) -> list[SmokeRow]:
    """Check every case of `paths`. No agent runs and no model is called."""
    project = open_project(untrusted=untrusted)
    results = []
    files = list(project.load_cases(paths))
    expected = [set() if loaded.case is None else set(list_expected_names(loaded.case)) for loaded in files]
    counts = Counter(name for names in expected for name in names)
    for loaded, own_names in zip(files, expected, strict=True):
        if loaded.case is None:
            results.append(SmokeRow(SmokeResult(loaded.id), tuple(map(str, loaded.problems))))
            continue
        instruction = load_case_instruction(loaded.case, project.root)
        functions = {function.name: function for function in (instruction and instruction.available_functions) or ()}
        agent = loaded.case.agent or project.agent
        known_names = {name for name, count in counts.items() if count > (name in own_names)}
        with look_up_from(loaded.case.folder):
            known_names |= _list_texts(getattr(AGENTS.get(agent), "__code__", None))
            results.append(SmokeRow(run_smoke_check(loaded.case, project.settings, functions, known_names)))
    if not results:
        raise UsageError(explain_no_case(paths or project.paths))
    return results


def _list_texts(code: CodeType | None) -> set[str]:
    """List the texts in the code of an agent, which are the functions that it calls, among others."""
    constants = () if code is None else code.co_consts
    inner = [_list_texts(constant) for constant in constants if isinstance(constant, CodeType)]
    return {constant for constant in constants if isinstance(constant, str)}.union(*inner)


def compute_smoke_status(results: Sequence[SmokeRow]) -> int:
    """Return 1 if a case can't be satisfied, else 6 if a file could not be checked, else 0."""
    if any(row.report.findings for row in results):
        return EXIT_STATUS[MISSED]
    return EXIT_STATUS[NOT_MEASURED] if any(row.problems for row in results) else EXIT_STATUS[MET]


def render_findings_as_json(results: Sequence[SmokeRow], status: int) -> str:
    """Return the findings as one JSON document."""
    cases = [{**to_builtins(row.report), "problems": list(row.problems)} for row in results]
    return json.dumps({"version": 1, "exit_status": status, "cases": cases}, indent=2)


def render_findings_as_text(results: Sequence[SmokeRow], *, verbose: bool) -> list[str]:
    """Return a line per finding with its advice, then a summary; `verbose` lists also what was not checked."""
    lines: list[str] = []
    findings = {finding for row in results for finding in row.report.findings}  # of a suite's file they are shared
    for result in results:
        lines += [f"{escape_controls(problem)}" for problem in result.problems]
        for finding in result.report.findings:
            if finding not in findings:
                continue
            findings.remove(finding)
            first, *details = finding.message.splitlines() or [""]
            texts = [f"{finding.location}: {first} [{finding.code}]"]
            texts += [f"    {text}" for text in (*details, finding.advice)]
            lines += map(escape_controls, texts)
        if verbose:
            lines += [
                f"{result.report.case_id}: not checked: {escape_controls(note)}" for note in result.report.not_checked
            ]
    reports = [row.report for row in results if not row.problems]
    wrong = sum(bool(report.findings) for report in reports)
    calls, notes = sum(report.calls for report in reports), sum(len(report.not_checked) for report in reports)
    text = f"{format_count(len(reports), 'case')} walked through with {format_count(calls, 'call')}: "
    text += f"{wrong} can't be satisfied" if wrong else "each can be satisfied"
    broken = len(results) - len(reports)
    if broken:
        text += f"; {format_count(broken, 'file')} not checked, as they are no valid cases"
    return [*lines, text + (f"; {format_count(notes, 'detail')} not checked (-v tells)" if notes else "")]


_SHOWN = 120  # characters of a value


class GraderCheck(Struct, frozen=True):
    """The outcome of a check with what was demanded of it."""

    labels: Path
    outcome: CheckOutcome
    missed: tuple[str, ...]
    unmeasured: tuple[str, ...]

    @property
    def status(self) -> int:
        """0: met, 1: a demand is missed, 6: not measured."""
        return EXIT_STATUS[MISSED if self.missed else NOT_MEASURED if self.unmeasured else MET]


def check_grader(
    labels: Path | None,
    grader: str | None,
    criterion: str | None,
    demands: Mapping[str, float | None],
    *,
    record: bool = False,
) -> GraderCheck:
    """Grade the labelled values and compare. What is not given stands in [tool.evalkit.judge_check]."""
    options = read_options(Path.cwd())
    table = options.get("judge_check", {})
    if labels is None and "labels" not in table:
        raise UsageError("judge-check needs a file of labels: evalkit judge-check labels.csv")
    path = labels or Path(table["labels"])
    settings = build_settings(options, grader)
    check_graders(settings.grader)
    try:
        rows = read_labels(path, criterion)
    except SpecError as error:
        raise UsageError(str(error)) from None
    graded = asyncio.run(_grade(open_label_grader(path, settings, record=record), rows, settings))
    outcome = measure_grader(graded)
    limits = {name: table[name] for name in ("min_kappa", "min_kappa_low") if name in table}
    limits |= {name: value for name, value in demands.items() if value is not None}
    return GraderCheck(path, outcome, tuple(find_shortfalls(outcome, limits)), tuple(find_obstacles(outcome)))


def build_settings(options: JsonObject, grader: str | None) -> Settings:
    """Build the settings of a grader from the options of the project. One that is named here grades anew."""
    names = ("prices", "max_tokens", "deadline_s")
    values: JsonDict = {name: options[name] for name in names if name in options}
    rates = ("requests_per_minute", "tokens_per_minute")
    limits = {**options.get("limits", {}), **{rate: options[rate] for rate in rates if rate in options}}
    secrets = {"secrets": find_secrets(os.environ), "secret_keys": options.get("secret_keys", ())}
    return Settings(
        root=Path.cwd(), grader=grader, limits=limits, max_cost_usd=options.get("max_cost"), extra=secrets, **values
    )


async def _grade(grader: Grader, rows: list[LabelledValue], settings: Settings) -> list[GradedValue]:
    try:
        return await grade_labels(rows, grader, settings, anew=settings.grader is not None)
    finally:
        await aclose_shared()


# ---- what is printed ----


def render_check(check: GraderCheck, *, as_json: bool = False) -> list[str]:
    """Return the lines that say how the grader does."""
    if as_json:
        return [escape_json_commands(json.dumps(_to_json(check), indent=2))]
    return [escape_controls(line) for line in _describe(check)]


def _describe(check: GraderCheck) -> Iterator[str]:
    outcome = check.outcome
    graders = dict.fromkeys(
        "grades of the file" if graded.row.grade is graded.grade else describe_grader(graded.grading)
        for graded in outcome.graded
        if graded.grade is not None
    )
    yield f"{check.labels}: {len(outcome.graded)} labels, {'; '.join(graders) or 'none graded'}"
    decisions = outcome.decisions
    if decisions.share is not None:
        yield f"agreement: {decisions.agreed} of {decisions.items} ({100 * decisions.share:.3g} %)"
        yield f"Cohen's kappa: {_format_kappa(decisions)}"
        yield from _format_matrix(outcome.matrix, ("met", "not met"))
    if outcome.scores is not None and outcome.scale is not None:
        yield f"scores, weighted (quadratic) kappa: {_format_kappa(outcome.scores)}"
        low, high = outcome.scale
        yield from _format_matrix(outcome.score_matrix, [str(score) for score in range(low, high + 1)])
    by_criterion = list(measure_by_criterion(outcome.graded))
    if len(by_criterion) > 1:
        yield "by criterion:"
        for criterion, part in by_criterion:
            counts = f"{part.decisions.agreed} of {part.decisions.items}"
            yield f"  {quote(criterion)}: {counts}, kappa {_format_kappa(part.decisions)}"
    if outcome.disagreements:
        yield f"disagreements ({len(outcome.disagreements)}):"
        for graded in outcome.disagreements:
            yield from _describe_disagreement(graded)
    for graded in outcome.ungraded:
        reason = graded.problem.splitlines()[0]
        yield f"not graded: {graded.row.location}, {graded.row.name}: {reason}"
    grades = Grades().with_gradings([graded.grading for graded in outcome.graded])
    if grades.answers:
        when = " when it was recorded" if any(graded.grading.cassette for graded in outcome.graded) else ""
        yield f"grading took {SideUsage(usage=grades.usage, cost_usd=grades.cost_usd).describe()}{when}"
    yield from (f"not measured: {reason}" for reason in check.unmeasured)
    yield from (f"MISSED: {reason}" for reason in check.missed)


def _format_kappa(agreement: Agreement) -> str:
    if agreement.kappa is None or agreement.low is None or agreement.high is None:
        return "undefined (all in one category)"
    few = f"; {agreement.items} labels are few" if agreement.items < FEW else ""
    return f"{agreement.kappa:.2f} (95 % interval {agreement.low:.2f} to {agreement.high:.2f}{few})"


def _format_matrix(matrix: tuple[tuple[int, ...], ...], names: tuple[str, ...] | list[str]) -> Iterator[str]:
    width = max(8, *(len(name) + 2 for name in names))
    yield f"  {'person / grader':18}{''.join(f'{name:>{width}}' for name in names)}"
    for name, row in zip(names, matrix, strict=True):
        yield f"  {name:18}{''.join(f'{count:>{width}}' for count in row)}"


def _describe_disagreement(graded: GradedValue) -> Iterator[str]:
    row, grade = graded.row, graded.grade
    if grade is None:
        return
    label = row.label if not isinstance(row.label, bool) else "met" if row.label else "not met"
    grade_text = grade.score if grade.score is not None else "met" if grade.passed else "not met"
    yield f"  {row.location}, {row.name}: {quote(str(row.rubric.text))}"
    yield f"    person: {label}; grader: {grade_text}{describe_grade(grade)}"
    yield f"    {format_value(row.value, _SHOWN)}"


def _to_json(check: GraderCheck) -> JsonDict:
    outcome = check.outcome

    def describe(agreement: Agreement) -> JsonDict:
        names = ("items", "agreed", "share", "kappa", "low", "high")
        return {name: getattr(agreement, name) for name in names}

    return {
        "version": 1,
        "labels": check.labels.as_posix(),
        "exit_status": check.status,
        "decisions": {**describe(outcome.decisions), "matrix": outcome.matrix},
        "scores": None if outcome.scores is None else {**describe(outcome.scores), "matrix": outcome.score_matrix},
        "criteria": [
            {"criterion": criterion, **describe(part.decisions)}
            for criterion, part in measure_by_criterion(outcome.graded)
        ],
        "disagreements": [
            {
                "line": graded.row.location.line,
                "id": graded.row.name,
                "criterion": str(graded.row.rubric.text),
                "label": graded.row.label,
                "passed": graded.grade.passed,
                "score": graded.grade.score,
                "reason": graded.grade.reason,
            }
            for graded in outcome.disagreements
            if graded.grade is not None
        ],
        "not_graded": [
            {"line": graded.row.location.line, "id": graded.row.name, "problem": graded.problem}
            for graded in outcome.ungraded
        ],
        "missed": list(check.missed),
        "not_measured": list(check.unmeasured),
    }
