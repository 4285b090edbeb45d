"""The reference suites, probed: nothing in them is beyond satisfying, and what was not checked has a reason."""

from __future__ import annotations

from pathlib import Path

from evalkit.probing.walking import walk_case
from evalkit.spec import find_cases, load_case

ROOT = Path(__file__).parents[2]
REASONS = ("the case does not declare ", "its mock refers to arguments that the case leaves open")


def test_every_case_of_this_repository_can_be_satisfied_or_says_what_was_not_checked() -> None:
    walks = [walk_case(load_case(found.path, root=ROOT)) for found in find_cases(["scenarios"], ROOT)]
    assert len(walks) >= 119
    assert [finding for walked in walks for finding in walked.findings] == []
    notes = [note for walked in walks for note in walked.not_checked]
    assert [note for note in notes if not any(reason in note for reason in REASONS)] == []
