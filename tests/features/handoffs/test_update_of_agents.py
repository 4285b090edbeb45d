"""An update writes hand-offs, delegations and requests for approval as they happened, where a case names them."""

from __future__ import annotations

from pathlib import Path

import pytest

import evalkit
from evalkit.hosts.casecheck.update import Update, build_update
from evalkit.records.settings import Settings
from evalkit.records.verdict import Verdict
from evalkit.runner.run_case import run_case
from evalkit.spec.load import load_case

HEAD = """\
agent: desk   # of several agents
input:
  message: m
  approvals: {pay: [approve, {arguments: {amount: 3}}]}
  mock_function_responses: {pay: {paid: true}, look: {found: true}}
functions: {pay: {needs_approval: true}}
expected_output:
"""


def desk(task: evalkit.Task) -> str:
    with task.act_as("triage"):
        task.hand_over("billing")
        with task.act_as("policies"):
            task.call("look")
        task.call("pay", amount=5)
        task.hand_over("refunds")
        task.call("pay", amount=9)
    return "done"


def run_desk(root: Path, expected: str) -> Verdict:
    path = root / "scenarios" / "desk_001.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEAD + expected, "utf-8")
    return run_case(load_case(path, root=root), desk, Settings(root=root))


def update(root: Path, expected: str) -> Update:
    made = build_update(run_desk(root, expected), root)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "  expected_handoffs: [triage -> shipping]   # who\n",
            "  expected_handoffs: [triage -> billing, billing -> refunds] # who\n",
        ),
        (
            "  expected_handoffs:\n    - sales       # gone\n    - billing   # kept\n",
            "  expected_handoffs:\n    - billing   # kept\n    - billing -> refunds\n",
        ),
        (
            "  expected_handoffs: triage -> billing -> shipping\n",
            "  expected_handoffs:\n    - triage -> billing\n    - billing -> refunds\n",
        ),
        ("  expected_delegations: []\n", "  expected_delegations:\n    - billing -> policies\n"),
        (
            "  expected_delegations: [triage -> sales]\n  expected_handoffs: [billing, refunds]\n",
            "  expected_delegations: [billing -> policies]\n  expected_handoffs: [billing, refunds]\n",
        ),
        (
            "  expected_approvals:\n    - {function_name: pay, arguments: {amount: {$lt: 6}}}   # kept\n",
            "  expected_approvals:\n    - {function_name: pay, arguments: {amount: {$lt: 6}}}   # kept\n"
            "    - function_name: pay\n      arguments:\n        amount: 9\n",
        ),
        (
            "  expected_approvals:\n    - look\n    - {function_name: pay, arguments: {amount: 5}}\n"
            "    - pay   # both\n",
            "  expected_approvals:\n    - {function_name: pay, arguments: {amount: 5}}\n    - pay   # both\n",
        ),
    ],
)
def test_what_happened_is_written_and_what_holds_stays(before: str, after: str, tmp_path: Path) -> None:
    made = update(tmp_path, before)
    assert (made.refusal, made.new) == ("", HEAD + after)
    assert run_desk(tmp_path, after).status == "passed"


def test_where_nobody_is_asked_and_nothing_handed_over_the_lists_become_empty(tmp_path: Path) -> None:
    path = tmp_path / "desk_001.yaml"
    path.write_text(
        HEAD + "  expected_approvals:\n    - pay   # once\n  expected_handoffs: [triage -> billing]\n", "utf-8"
    )

    def alone(task: evalkit.Task) -> str:
        with task.act_as("triage"):
            task.call("look")
        return "done"

    made = build_update(run_case(load_case(path, root=tmp_path), alone, Settings(root=tmp_path)), tmp_path)
    assert made is not None
    assert made.new == HEAD + "  expected_approvals: []\n  expected_handoffs: []\n"


def test_a_broken_policy_is_why_a_case_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios/policies.yaml").write_text("ask-first: {never: pay, before: ask}\n", "utf-8")
    made = update(tmp_path, "  expected_handoffs: []\n")
    assert made.refusal == "a policy is broken, and policies hold whatever a case expects"


def test_what_a_suite_expects_is_not_rewritten(tmp_path: Path) -> None:
    suite = "expected_output: {expected_approvals: [look], expected_handoffs: [sales]}\n"
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios/suite.yaml").write_text(suite, "utf-8")
    made = update(tmp_path, "  response_contains: done\n")
    assert made.refusal.endswith("does not stand in the case's own file, but in what it inherits")
