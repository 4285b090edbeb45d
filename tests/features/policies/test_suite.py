"""The reference suite `policies`: the desk keeps the rules; the hasty one is told which it broke, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalkit import Settings
from evalkit.hosts.casecheck.mutants import observe
from evalkit.hosts.casecheck.mutation_score import compute_score
from evalkit.project import Project
from evalkit.runner.run_case import run_case

ROOT = Path(__file__).parents[3]
CASES = {Path(file.id).stem: file.case for file in Project(ROOT).load_cases(["scenarios/policies"])}
EARLY = "call 1, send_email: policy warranty-first: never send_email before check_warranty; "
PAID = (
    'call 2, refund: policy valid-only: never refund before check_warranty(result_contains={"status": "valid"}), '
    "for each serial_number; "
)
LATER = "call 3, check_warranty, came later"
UNASKED = 'call 2, refund: policy confirmed: never refund until the user says {"$search": "(?i)\\\\byes\\\\b"}; '
SILENT = "call 2, refund: policy told: must send_email after refund; no send_email came after it"
TICKET = "open_ticket: policy one-ticket: at most 1 open_ticket, for each serial_number; "
BROKEN = {
    "confirmed_001": [EARLY + LATER, PAID + LATER, UNASKED + "the user's message 2, came later", SILENT],
    "expired_001": [EARLY + LATER, PAID + "check_warranty was not called before", SILENT],
    "two_devices_001": [
        EARLY + "check_warranty was not called before",
        f'call 3, {TICKET}call 2, open_ticket, was the one that is allowed, for serial_number "SN1"',
        f'call 5, {TICKET}call 4, open_ticket, was the one that is allowed, for serial_number "SN2"',
    ],
    "letters_001": [EARLY + LATER, PAID + LATER, SILENT],
}


@pytest.mark.parametrize("name", CASES)
def test_the_desk_keeps_the_rules(name: str) -> None:
    case = CASES[name]
    assert case is not None
    verdict = run_case(case, settings=Settings(root=ROOT))
    assert verdict.status == "passed", [str(reason) for reason in verdict.reasons]
    assert len(verdict.features["policies"]) == 5


@pytest.mark.parametrize("name", CASES)
def test_the_hasty_desk_is_told_what_it_broke(name: str) -> None:
    case = CASES[name]
    assert case is not None
    verdict = run_case(case, "hasty_desk", settings=Settings(root=ROOT))
    messages = [reason.message for reason in verdict.reasons if reason.code == "policy_broken"]
    assert [message.partition(" (scenarios/policies/policies.yaml:")[0] for message in messages] == BROKEN[name]
    places = {reason.location for reason in verdict.reasons if reason.code == "policy_broken"}
    assert all(place.startswith("scenarios/policies/policies.yaml:") for place in places)


def test_policies_catch_mutants() -> None:
    """A mutant that makes the last call of `two_devices` again is caught, by the list and by the policy."""
    case = CASES["two_devices_001"]
    assert case is not None
    score = compute_score(observe(case, settings=Settings(root=ROOT)))
    assert not [survivor for survivor in score.survivors if survivor.kind == "repeat_call"]
