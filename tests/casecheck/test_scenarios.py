"""The reference suites, probed: nothing in them is beyond satisfying, and what was not checked has a reason."""

from __future__ import annotations

from pathlib import Path

from evalkit.agents.registry import load_case_instruction
from evalkit.hosts.casecheck.smoke import SmokeResult, run_smoke_check
from evalkit.project import Project
from evalkit.records.case import Case

ROOT = Path(__file__).parents[2]
REASONS = (
    "the case does not declare ",
    "its mock refers to arguments that the case leaves open",
    "is for a model to grade, in a run",
    ": only a run can tell",
)


def walked(case: Case) -> SmokeResult:
    instruction = load_case_instruction(case, ROOT)
    brought = (instruction.available_functions if instruction else None) or ()
    return run_smoke_check(case, None, {function.name: function for function in brought})


def test_every_case_of_this_repository_can_be_satisfied_or_says_what_was_not_checked() -> None:
    walks = [walked(loaded.case) for loaded in Project(ROOT).load_cases([]) if loaded.case is not None]
    assert len(walks) >= 119
    assert [finding for one in walks for finding in one.findings] == []
    notes = [note for one in walks for note in one.not_checked]
    assert [note for note in notes if not any(reason in note for reason in REASONS)] == []
