"""What the gate demands of graders: that they agree with people, by labels of values."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, convert

from evalkit.features.graders.records import NAME, Grading, read_gradings
from evalkit.features.graders.rubric import name_criterion
from evalkit.gate.outcomes import GateEvidence
from evalkit.hooks import GateFinding
from evalkit.records.run import MET, MISSED, NOT_MEASURED, Policy
from evalkit.text.format import format_case_count, join_names


class KeptGrades(Struct, frozen=True):
    """What is kept of a case: the models that graded it, and the criteria, as `Rubric.describe` names them."""

    graders: tuple[str, ...]
    criteria: tuple[str, ...]


class GraderAgreement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a grader agrees with people, by its recorded grades of a file of labels; `problem`: why that is not
    known."""

    labels: str
    grader: str = ""
    criteria: tuple[str, ...] = ()  # that are labelled, as `Rubric.describe` names them
    items: int = 0
    kappa: float | None = None
    low: float | None = None
    problem: str = ""


def add_up(runs: Sequence[object]) -> KeptGrades | None:
    """Return what is kept of the runs of a case; None if no model graded it: a person's grades are no model's."""
    gradings: list[Grading] = [
        grading for run in runs for grading in read_gradings(run) if grading.grades and not grading.is_hand_written
    ]
    names = (name_criterion(grade.criterion, grade.rubric) for grading in gradings for grade in grading.grades)
    graders = dict.fromkeys(grading.grader or "" for grading in gradings)
    return KeptGrades(tuple(graders), tuple(dict.fromkeys(names))) if gradings else None


def decide(evidence: GateEvidence) -> Iterator[GateFinding]:
    """Graders must agree with people as far as is demanded. Where nothing is demanded, a note names the graders."""
    policy, kept = evidence.policy, _list_kept(evidence)
    graders = dict.fromkeys(grader for case in kept for grader in case.graders)
    if not graders:
        return
    if policy.min_kappa is None and policy.min_kappa_low is None:
        yield from _find_unchecked(kept, graders)
        return
    if NAME not in evidence.features:
        demand = "the agreement of graders with people is demanded (min_kappa), and the run file says nothing of it"
        yield GateFinding(NOT_MEASURED, f"{demand}; `pytest --evalkit` measures it")
        return
    agreement = convert(evidence.features[NAME], GraderAgreement)
    for grader in graders:
        command = f"`evalkit judge-check {agreement.labels} --grader={grader or 'KIND:MODEL'} --record`"
        name = grader or "a grader without a name"
        if agreement.problem:
            problem = agreement.problem
            yield GateFinding(NOT_MEASURED, f"how far {name} agrees with people is not known: {problem}; {command}")
        elif agreement.grader != grader:
            grades = f"the grades of {agreement.labels} are of {agreement.grader or 'a person'}"
            yield GateFinding(NOT_MEASURED, f"how far {name} agrees with people is not known: {grades}; {command}")
        else:
            yield from _judge_kappa(agreement, policy)
            yield from _find_unlabelled(kept, agreement, policy)


def _list_kept(evidence: GateEvidence) -> list[KeptGrades]:
    """Return what is kept of each case that was graded."""
    return [outcome.features[NAME] for outcome in evidence.list_outcomes() if NAME in outcome.features]


def _find_unchecked(kept: Sequence[KeptGrades], graders: Iterable[str]) -> Iterator[GateFinding]:
    """Name each grader with the cases that it graded: no agreement with people is demanded of it."""
    for grader in graders:
        cases = format_case_count(sum(grader in case.graders for case in kept))
        name = grader or "a grader without a name"
        named = shlex.quote(f"--grader={grader or 'KIND:MODEL'}")
        command = f"`evalkit judge-check labels.csv {named} --record`"
        yield GateFinding(
            MET, f"{name} graded {cases}; how far it agrees with people is not known: {command} measures it"
        )


def _find_unlabelled(kept: Sequence[KeptGrades], agreement: GraderAgreement, policy: Policy) -> Iterator[GateFinding]:
    """Find criteria of which the agreement says nothing, since people labelled no value by them."""
    used = dict.fromkeys(name for case in kept if agreement.grader in case.graders for name in case.criteria)
    covered = [".*".join(map(re.escape, pattern.split("*"))) for pattern in policy.covered_criteria]
    unlabelled = [
        json.dumps(name, ensure_ascii=False)
        for name in used
        if name not in agreement.criteria and not any(re.fullmatch(pattern, name, re.DOTALL) for pattern in covered)
    ]
    if unlabelled:
        count = "a criterion" if len(unlabelled) == 1 else f"{len(unlabelled)} criteria"
        yield GateFinding(
            NOT_MEASURED,
            f"how far {agreement.grader} agrees with people is not known of {count} that {agreement.labels} has no "
            f"labels of: {join_names(unlabelled)}; label values by each, or name criteria for which others stand: "
            "`covers`",
        )


def _judge_kappa(agreement: GraderAgreement, policy: Policy) -> Iterator[GateFinding]:
    for value, limit, name in (
        (agreement.kappa, policy.min_kappa, "kappa"),
        (agreement.low, policy.min_kappa_low, "the lower end of kappa's interval"),
    ):
        if limit is not None and value is not None:
            yield GateFinding(
                MET if value >= limit else MISSED,
                f"{name} of {agreement.grader} is {value:.2f} over {agreement.items} labels; "
                f"at least {limit:g} is demanded",
            )
