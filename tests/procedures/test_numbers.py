"""The detour in numbers, from runs: native rate, unanswered calls, model turns per call, alert, multiplier."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from evalkit.gate.decision import decide
from evalkit.hosts.reports.summary import build_fallback_warning, format_accounting
from evalkit.records.run import Policy, Run
from evalkit.records.verdict import Verdict
from evalkit.stats.accounting import Accounting, Channels, cost_multiplier

Verdicts = Callable[[str], dict[str, Verdict]]
Accounts = Callable[[str], Accounting]
README = Path(__file__).parents[2] / "scenarios" / "procedures" / "README.md"


def test_both_systems_answer_the_same_questions_alike(verdicts: Verdicts) -> None:
    """The same cases, the same searches with the same arguments, the same answers: no test of these told them apart."""

    def seen(verdict: Verdict) -> object:
        transcript = verdict.transcript
        searches = [(call.name, call.arguments) for call in transcript.calls if not call.is_refused]
        return transcript.input, transcript.response, searches

    found, repaired = verdicts("as_found"), verdicts("repaired")
    assert found.keys() == repaired.keys()
    assert len(found) == 9
    for stem in found:
        assert seen(found[stem]) == seen(repaired[stem])


def test_not_one_call_was_native_as_found(accounting: Accounts) -> None:
    """Every call came as text, its argument without a name, after two native ones in vain."""
    calls = accounting("as_found").calls
    assert calls == Channels(text=13, mended=13, unanswered=26)
    assert (calls.native_rate, calls.text_rate) == (0.0, 1.0)


def test_every_call_is_native_once_repaired(accounting: Accounts) -> None:
    calls = accounting("repaired").calls
    assert calls == Channels(native=13)
    assert (calls.native_rate, calls.text_rate) == (1.0, 0.0)


def test_the_rates_are_kept_by_function(accounting: Accounts) -> None:
    assert accounting("as_found").functions == {
        "search_procedure": Channels(text=5, mended=5, unanswered=10),
        "search_guidelines": Channels(text=4, mended=4, unanswered=8),
        "search_rag": Channels(text=4, mended=4, unanswered=8),
    }


@pytest.mark.parametrize(
    ("stem", "found", "repaired"),
    [
        ("no_search_001", 1, 1),
        ("one_search_001", 4, 2),
        ("two_searches_001", 7, 3),
        ("three_searches_001", 10, 4),
    ],
)
def test_every_workflow_takes_two_to_three_times_the_model_turns(
    verdicts: Verdicts, stem: str, found: int, repaired: int
) -> None:
    """Three turns a call instead of one, and the answer."""
    assert len(verdicts("as_found")[stem].transcript.turns) == found
    assert len(verdicts("repaired")[stem].transcript.turns) == repaired
    assert found == repaired == 1 or 2 <= found / repaired < 3


def test_the_cost_multiplier_comes_from_the_runs(accounting: Accounts) -> None:
    """48 turns for 13 calls, against 22."""
    found, repaired = accounting("as_found"), accounting("repaired")
    assert (found.turns, repaired.turns) == (48, 22)
    assert found.turns_per_call == 48 / 13
    multiplier = cost_multiplier(found, repaired)
    assert multiplier.turns == pytest.approx(48 / 22)
    assert multiplier.tokens is not None
    assert 2.2 < multiplier.tokens < 2.6


def test_the_alert_is_given_above_ten_percent_and_only_there(accounting: Accounts) -> None:
    assert build_fallback_warning(accounting("as_found"), Fraction(10)) == (
        "13 of 13 calls came as text (100 %), more than 10 %: search_procedure 5 of 5, search_guidelines 4 of 4, "
        "search_rag 4 of 4; more: docs/text-calls.md"
    )
    assert build_fallback_warning(accounting("repaired"), Fraction(10)) is None


def test_what_nobody_carried_out_is_said(accounting: Accounts) -> None:
    assert list(format_accounting(accounting("as_found")))[-1] == (
        "26 native calls carried out by no code: search_procedure 10, search_guidelines 8, search_rag 8; "
        "`evalkit lint` compares the names"
    )
    assert not any("no code" in line for line in format_accounting(accounting("repaired")))


def test_the_gate_can_be_asked_to_mind_the_fallback(verdicts: Verdicts) -> None:
    """All cases pass in both, so only the rate of text calls tells them apart."""

    def decided(folder: str, policy: Policy) -> str:
        run = Run(
            verdicts=tuple(verdicts(folder).values()), selected=tuple(v.case_id for v in verdicts(folder).values())
        )
        return decide(run, policy).status

    assert decided("as_found", Policy()) == "met"
    assert decided("as_found", Policy(max_text_call_rate="10")) == "missed"
    assert decided("repaired", Policy(max_text_call_rate="10")) == "met"


def test_the_readme_says_these_numbers(accounting: Accounts) -> None:
    found, repaired = accounting("as_found"), accounting("repaired")
    multiplier = cost_multiplier(found, repaired)
    rows = {
        "function calls": (found.calls.total, repaired.calls.total),
        "native": (f"{100 * (found.calls.native_rate or 0):.0f} %", f"{100 * (repaired.calls.native_rate or 0):.0f} %"),
        "native calls carried out by no code": (found.calls.unanswered, repaired.calls.unanswered),
        "model turns": (found.turns, repaired.turns),
        "model turns per function call": (f"{found.turns_per_call:.1f}", f"{repaired.turns_per_call:.1f}"),
        "tokens": tuple(f"{it.usage.input_tokens + it.usage.output_tokens:,}" for it in (found, repaired) if it.usage),
    }
    page = README.read_text("utf-8")
    for name, (one, other) in rows.items():
        assert f"| {name} | {one} | {other} |" in page
    assert f"{multiplier.turns:.1f} times the model turns and {multiplier.tokens:.1f} times the tokens" in page
