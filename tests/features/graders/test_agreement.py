"""A gate that demands how far graders agree with people: below it is red, and what is not known is never green."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evalkit.features.graders.gate import GraderAgreement
from evalkit.features.graders.records import Grade, Grading, get_gradings, put_gradings
from evalkit.gate.decision import decide
from evalkit.records.run import Policy, Run
from evalkit.records.transcript import Transcript
from evalkit.records.verdict import PASSED, Verdict

GRADER = "gemini:judge-x"
MEASURED = GraderAgreement(labels="labels.csv", grader=GRADER, items=60, kappa=0.8, low=0.6, criteria=("c",))


def build_run(agreement: GraderAgreement | None, **grading: Any) -> Run:
    known = {"grades": (Grade(criterion="c", passed=True),), "grader": GRADER}
    graded = Grading(place="judge", **known | grading)
    verdict = Verdict(case_id="a_001.yaml", status=PASSED, transcript=put_gradings(Transcript(), (graded,)))
    metadata = {} if agreement is None else {"features": {"graders": agreement}}
    run = Run(verdicts=(verdict,), collected=1, selected=("a_001.yaml",), metadata=metadata, ended="now")
    return Run.from_json(run.to_json())


@pytest.mark.parametrize(
    ("policy", "status", "reason"),
    [
        (Policy(min_kappa=0.8), "met", "kappa of gemini:judge-x is 0.80 over 60 labels; at least 0.8 is demanded"),
        (Policy(min_kappa=0.9), "missed", "kappa of gemini:judge-x is 0.80 over 60 labels; at least 0.9 is demanded"),
        (
            Policy(min_kappa_low=0.7),
            "missed",
            "the lower end of kappa's interval of gemini:judge-x is 0.60 over 60 labels; at least 0.7 is demanded",
        ),
    ],
)
def test_kappa_is_held_against_what_is_demanded(policy: Policy, status: str, reason: str) -> None:
    decision = decide(build_run(MEASURED), policy)
    assert decision.status == status
    assert reason in decision.reasons


COMMAND = "`evalkit judge-check labels.csv --grader=gemini:judge-x --record`"


@pytest.mark.parametrize(
    ("agreement", "reason"),
    [
        (
            None,
            "the agreement of graders with people is demanded (min_kappa), and the run file says nothing of it; "
            "`pytest --evalkit` measures it",
        ),
        (
            GraderAgreement(labels="labels.csv", grader="openai:other", items=60, kappa=1.0, low=1.0),
            "how far gemini:judge-x agrees with people is not known: the grades of labels.csv are of openai:other; "
            + COMMAND,
        ),
        (
            GraderAgreement(labels="labels.csv", grader=GRADER, kappa=1.0, problem="3 of 60 values were not graded"),
            f"how far gemini:judge-x agrees with people is not known: 3 of 60 values were not graded; {COMMAND}",
        ),
    ],
)
def test_what_was_not_measured_is_never_green(agreement: GraderAgreement | None, reason: str) -> None:
    decision = decide(build_run(agreement), Policy(min_kappa=0.5))
    assert (decision.status, decision.exit_status) == ("not_measured", 6)
    assert decision.reasons[0] == reason


@pytest.mark.parametrize("grading", [{"grades": ()}, {"cassette": "hand-written", "grader": None}])
def test_without_a_grade_of_a_model_nothing_is_demanded(grading: dict[str, Any]) -> None:
    assert decide(build_run(None, **grading), Policy(min_kappa=0.5)).status == "met"


SCALED = Grade(criterion="warm", passed=True, rubric={"rubric": "warm", "scale": "1..5", "at_least": 4}, score=5)


@pytest.mark.parametrize(
    ("grades", "covers", "unlabelled"),
    [
        (
            [Grade(criterion="names Łódź", passed=True)],
            (),
            'a criterion that labels.csv has no labels of: "names Łódź"',
        ),
        ([Grade(criterion="c", passed=True), SCALED], (), '"warm (1..5, at least 4)"; label values by each, or'),
        ([Grade(criterion="d", passed=True), Grade(criterion="e", passed=True)], ("d",), 'no labels of: "e"; label'),
        ([Grade(criterion="names Łódź", passed=True), SCALED], ("names *", "warm (1..5*"), ""),
        ([Grade(criterion="names", passed=True)], ("n?mes",), '"names"'),
    ],
)
def test_a_criterion_without_labels_is_not_covered_by_the_agreement_of_others(
    grades: list[Grade], covers: tuple[str, ...], unlabelled: str
) -> None:
    decision = decide(build_run(MEASURED, grades=grades), Policy(min_kappa=0.5, covered_criteria=covers))
    assert decision.status == ("not_measured" if unlabelled else "met")
    assert unlabelled in decision.reasons[0]


def test_a_person_may_grade_by_criteria_that_nobody_labelled() -> None:
    verdicts = tuple(build_run(MEASURED).verdicts)
    by_hand = Grading(place="judge", cassette="hand-written", grades=(Grade(criterion="d", passed=True),))
    gradings = (*get_gradings(verdicts[0].transcript), by_hand)
    mixed = replace(verdicts[0], transcript=put_gradings(verdicts[0].transcript, gradings))
    assert decide(replace(build_run(MEASURED), verdicts=(mixed,)), Policy(min_kappa=0.5)).status == "met"


def test_without_a_demand_nothing_is_said() -> None:
    decision = decide(build_run(MEASURED), Policy())
    assert decision.status == "met"
    assert not any("kappa" in reason for reason in decision.reasons)
