"""Mutants of approvals, hand-offs and delegations: which demands of a case catch them, and what is advised."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.errors import FunctionError
from evalkit.hosts.casecheck.mutants import observe
from evalkit.hosts.casecheck.mutation_score import Survivor, compute_score
from evalkit.records.settings import Settings
from evalkit.spec.load import case_from_dict

KINDS = ("deny_approval", "skip_approval", "change_handoff", "drop_handoff")


def desk(task: evalkit.Task) -> str:
    with task.act_as("triage"):
        task.hand_over("billing")
        with task.act_as("policies"):
            task.call("look")
        for amount in (5, 9):
            with suppress(FunctionError):
                task.call("pay", amount=amount)
    return "done"


def list_survivors(root: Path, expected: dict[str, Any], **given: Any) -> list[Survivor]:
    approvals = {"pay": [{"deny": "too much"}, "approve"]}
    data = {
        "agent": "x",
        "functions": {"pay": {"needs_approval": True}},
        "input": {"message": "m", "approvals": approvals, "mock_function_responses": {"pay": {}, "look": {}}, **given},
        "expected_output": expected,
    }
    case = case_from_dict(data, root / "scenarios/desk_001.yaml", root=root)
    score = compute_score(observe(case, desk, Settings(root=root)))
    assert (score.skipped, score.total > 0) == ("", True)
    return [survivor for survivor in score.survivors if survivor.kind in KINDS]


def test_a_case_that_looks_at_calls_alone_accepts_them_and_is_told_what_would_catch_them(tmp_path: Path) -> None:
    calls = ["look", {"function_name": "pay", "outcome": "any"}, {"function_name": "pay", "outcome": "any"}]
    survivors = list_survivors(tmp_path, {"expected_function_calls": calls})

    assert [(survivor.kind, survivor.description) for survivor in survivors] == [
        ("skip_approval", "pay (call 2) is made, and nobody is asked"),
        ("deny_approval", "pay (call 3) is denied"),
        ("skip_approval", "pay (call 3) is made, and nobody is asked"),
        ("change_handoff", "the hand-off triage -> billing goes to policies"),
        ("drop_handoff", "the hand-off triage -> billing is left out"),
        ("change_handoff", "the delegation billing -> policies goes to triage"),
        ("drop_handoff", "the delegation billing -> policies is left out"),
    ]
    assert [survivor.keys for survivor in survivors] == [
        {"approval": "denied"},
        {"approval": "approved"},
        {"approval": "approved"},
        *[{"expected_handoffs": ["triage -> billing"]}] * 2,
        *[{"expected_delegations": ["billing -> policies"]}] * 2,
    ]


@pytest.mark.parametrize(
    ("expected", "accepted"),
    [
        ({"expected_handoffs": ["billing"]}, {"deny_approval", "skip_approval", "change_handoff", "drop_handoff"}),
        ({"expected_handoffs": ["billing"], "expected_delegations": ["policies"]}, {"deny_approval", "skip_approval"}),
        ({"expected_approvals": ["pay", "pay"]}, {"deny_approval", "change_handoff", "drop_handoff"}),
    ],
)
def test_demands_catch_what_they_are_about(expected: dict[str, Any], accepted: set[str], tmp_path: Path) -> None:
    assert {survivor.kind for survivor in list_survivors(tmp_path, expected)} == accepted


def test_calls_of_the_right_agent_and_approvals_of_calls_catch_all_of_them(tmp_path: Path) -> None:
    pay = {"function_name": "pay", "by": "billing"}
    calls = [{"function_name": "look", "by": "policies"}, pay | {"approval": "denied"}, pay | {"approval": "approved"}]
    assert list_survivors(tmp_path, {"expected_function_calls": calls}) == []


def test_the_state_of_a_mutant_is_that_of_its_own_approvals(tmp_path: Path) -> None:
    """Only the second call is paid; a mutant in which it is denied, or the first one made, leads to another state."""
    pays = {"pay": {"$push": {"paid": "{{ arguments.amount }}"}, "$return": {}}, "look": {}}
    calls = ["look", *[{"function_name": "pay", "outcome": "any"}] * 2]
    expected = {"expected_function_calls": calls, "state": {"paid": [9]}}
    survivors = list_survivors(tmp_path, expected, state={"paid": []}, mock_function_responses=pays)
    assert [survivor.description for survivor in survivors if "approval" in survivor.kind] == [
        "pay (call 3) is made, and nobody is asked"
    ]
