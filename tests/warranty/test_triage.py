"""The scenario is chosen by the triggers of the instruction files, before any model runs."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from evalkit.records.case import Declaration
from scenarios.warranty.agent import INSTRUCTIONS
from scenarios.warranty.mail import Mail
from scenarios.warranty.triage import Facts, TriggerError, detect_scenario, load_scenarios

CHOSEN: dict[str, tuple[str, list[str], dict[str, str], str]] = {
    "one serial number": ("Is it covered?", ["SN1"], {}, "valid-warranty"),
    "several serial numbers": ("Are they covered?", ["SN1", "SN2"], {}, "valid-warranty"),
    "no serial number": ("Is it covered?", [], {}, "missing-info"),
    "expired, no serial number": ("My warranty has expired.", [], {}, "missing-info"),
    "expired": ("My warranty has expired.", ["SN1"], {}, "invalid-warranty"),
    "expired, words between": ("my warranty has conveniently Expired FIVE MONTHS ago", ["SN1"], {}, "invalid-warranty"),
    "ran out": ("I know that the warranty ran out", ["SN1"], {}, "invalid-warranty"),
    "out of warranty": ("it is out of\nwarranty by now", ["SN1"], {}, "invalid-warranty"),
    "not expired": ("The warranty has not expired yet!", ["SN1"], {}, "valid-warranty"),
    "hasn't expired": ("The warranty hasn’t expired.", ["SN1"], {}, "valid-warranty"),
    "two sentences": ("Is there a warranty? My patience has expired.", ["SN1"], {}, "valid-warranty"),
    "German": ("Die Garantie ist vermutlich längst abgelaufen", ["SN1"], {}, "invalid-warranty"),
    "Polish": ("Zmywarka już po gwarancji", ["SN1"], {}, "invalid-warranty"),
    "French": ("La garantie a expiré en mai", ["SN1"], {}, "invalid-warranty"),
    "Spanish": ("La garantía ya ha caducado", ["SN1"], {}, "invalid-warranty"),
    "Italian": ("la garanzia è scaduta", ["SN1"], {}, "invalid-warranty"),
    "Japanese": ("保証期間はもう切れていますが", ["SN1"], {}, "invalid-warranty"),
    "register down": ("Is it covered?", ["SN1"], {"warranty_service": "down"}, "graceful-degradation"),
    "register down, no serial number": ("Hello", [], {"warranty_service": "down"}, "graceful-degradation"),
    "register up": ("Hello", ["SN1"], {"warranty_service": "up"}, "valid-warranty"),
}

FUNCTIONS = {
    "valid-warranty": ["check_warranty", "create_ticket", "send_email"],
    "invalid-warranty": ["check_warranty", "send_email"],
    "missing-info": ["send_email"],
    "graceful-degradation": ["send_email"],
}

BROKEN = {
    "trigger: always": "trigger needs at least one of serial_numbers, mentions, not_mentions, context; got 'always'",
    "trigger: {priority: 3}": (
        "trigger needs at least one of serial_numbers, mentions, not_mentions, context; got {'priority': 3}"
    ),
    "trigger: {mention: [x]}": (
        "trigger has unknown condition 'mention'; known are serial_numbers, mentions, not_mentions, context"
    ),
    "trigger: {serial_numbers: 2}": "trigger serial_numbers is one of none, one, several, some; got 2",
    "trigger: {mentions: expired}": "trigger mentions is a list of phrases, got 'expired'",
    "trigger: {context: down}": "trigger context is a mapping, got 'down'",
    "trigger: {priority: high, serial_numbers: some}": "trigger priority is a whole number, got 'high'",
}


def facts(text: str, serials: list[str], context: dict[str, str] | None = None) -> Facts:
    return Facts.of(Mail(text=text), tuple(serials), context)


def write(folder: Path, name: str, trigger: str) -> Path:
    path = folder / f"{name}.md"
    path.write_text(f"---\nname: {name}\n{trigger}\navailable_functions: []\n---\nAnswer.\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("text", "serials", "context", "scenario"), CHOSEN.values(), ids=CHOSEN.keys())
def test_the_scenario_follows_from_the_mail(
    text: str, serials: list[str], context: dict[str, str], scenario: str
) -> None:
    chosen = detect_scenario(INSTRUCTIONS, facts(text, serials, context))
    assert chosen is not None
    assert chosen.name == scenario


@pytest.mark.parametrize(("scenario", "names"), FUNCTIONS.items())
def test_each_scenario_has_its_own_functions(scenario: str, names: list[str]) -> None:
    instruction = next(s.instruction for s in load_scenarios(INSTRUCTIONS) if s.instruction.name == scenario)
    assert [function.name for function in instruction.available_functions or ()] == names


def test_the_same_function_is_declared_alike_in_every_instruction_file() -> None:
    """A function that two files declare differently would be judged by whichever was loaded."""
    declared: dict[str, list[Declaration]] = defaultdict(list)
    for scenario in load_scenarios(INSTRUCTIONS):
        for function in scenario.instruction.available_functions or ():
            declared[function.name].append(function)
    assert {name: [d for d in found if d != found[0]] for name, found in declared.items()} == {
        "check_warranty": [],
        "create_ticket": [],
        "send_email": [],
    }


def test_a_new_scenario_is_a_new_file(tmp_path: Path) -> None:
    """No Python: the file says when it applies, what may be called, and what to do."""
    folder = Path(shutil.copytree(INSTRUCTIONS, tmp_path / "instructions"))
    write(folder, "recall", "trigger: {priority: 50, serial_numbers: some, mentions: [recall notice, Rückruf]}")
    recalled = facts("I got your Recall Notice. My warranty has expired.", ["SN1"])
    chosen = detect_scenario(folder, recalled)
    assert chosen is not None
    assert chosen.name == "recall"
    unchanged = detect_scenario(INSTRUCTIONS, recalled)
    assert unchanged is not None
    assert unchanged.name == "invalid-warranty"


def test_of_two_triggers_that_hold_the_higher_priority_decides_and_then_the_name(tmp_path: Path) -> None:
    write(tmp_path, "b-low", "trigger: {serial_numbers: one}")
    write(tmp_path, "a-low", "trigger: {serial_numbers: some}")
    write(tmp_path, "c-high", "trigger: {serial_numbers: several, priority: 1}")
    names = [detect_scenario(tmp_path, facts("", serials)) for serials in (["SN1"], ["SN1", "SN2"], [])]
    assert [instruction.name if instruction else None for instruction in names] == ["a-low", "c-high", None]


@pytest.mark.parametrize(("trigger", "message"), BROKEN.items())
def test_a_trigger_that_triage_cannot_read_says_so(tmp_path: Path, trigger: str, message: str) -> None:
    path = write(tmp_path, "odd", trigger)
    with pytest.raises(TriggerError) as caught:
        load_scenarios(tmp_path)
    assert str(caught.value) == f"{path}: {message}"


def test_context_compares_values_of_any_type() -> None:
    context: dict[str, Any] = {"warranty_service": "down", "since": 3}
    chosen = detect_scenario(INSTRUCTIONS, Facts.of(Mail(), (), context))
    assert chosen is not None
    assert chosen.name == "graceful-degradation"
