"""Every warranty case fails when its transcript is perturbed, and says why with a fitting code.

A case that still passes after the agent did something else demands nothing there. What a case leaves open on
purpose (the order of parallel calls) is listed in `FREE_ORDER`, and must be left open.
"""

from __future__ import annotations

import pytest

from tests.warranty.perturbing import perturbed, swapped
from tests.warranty.suite import STEMS, Passed

FREE_ORDER = {("valid_warranty_009", 0), ("valid_warranty_009", 2)}  # neighbours from here on may change places


@pytest.mark.parametrize("stem", STEMS)
def test_whatever_goes_wrong_is_failed_with_a_fitting_code(stem: str, passed: Passed) -> None:
    case, verdict = passed(stem)
    wrong: list[str] = []
    everything = list(perturbed(case, verdict))
    for what, transcript, codes in everything:
        judgement = case.expectation.judge(transcript, input=case.input)
        found = {reason.code for reason in judgement.reasons}
        if judgement.status != "failed" or not found & codes:
            wrong.append(f"{what}: {judgement.status} with {sorted(found)}, expected failed with {sorted(codes)}")
    assert wrong == []
    assert len(everything) >= 5


@pytest.mark.parametrize("stem", STEMS)
def test_two_calls_in_the_wrong_order_are_failed(stem: str, passed: Passed) -> None:
    case, verdict = passed(stem)
    status = {index: case.expectation.judge(t, input=case.input).status for index, t in swapped(verdict.transcript)}
    assert status == {index: "passed" if (stem, index) in FREE_ORDER else "failed" for index in status}


@pytest.mark.parametrize("stem", STEMS)
def test_an_unperturbed_transcript_passes(stem: str, passed: Passed) -> None:
    """Otherwise the tests above would prove nothing."""
    case, verdict = passed(stem)
    assert case.expectation.judge(verdict.transcript, input=case.input).status == "passed"
