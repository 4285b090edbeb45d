"""Which scenario a mail belongs to, decided before any model runs.

Every instruction file says in its frontmatter when it applies, so a new scenario is a new file and no Python::

    trigger:
      priority: 20                          # of the triggers that hold, the highest decides
      serial_numbers: some                  # none, one, several or some (one or several)
      mentions: [warranty … expired]        # at least one of these phrases stands in the mail; … leaves out some words
      not_mentions: [not expired]           # and none of these
      context: {warranty_service: down}     # what the mail system says in input.context

All conditions that are given must hold. Triage knows only the mail: a customer who says that the warranty has
expired may be wrong. It picks the instructions; `check_warranty` finds the truth, and the instructions say what
to do when it differs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evalkit.agents.instruction import Instruction, load_instruction
from scenarios.warranty.mail import Mail

COUNTS: dict[str, Callable[[int], bool]] = {
    "none": lambda count: count == 0,
    "one": lambda count: count == 1,
    "several": lambda count: count > 1,
    "some": lambda count: count > 0,
}
_WITHIN_A_SENTENCE = "[^.!?。！？]{0,40}?"


class TriggerError(ValueError):
    """A frontmatter whose `trigger` says nothing, or something that triage does not know."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What triage may know: the serial numbers in the mail, its words, and what the mail system adds."""

    serials: tuple[str, ...]
    words: str
    context: Mapping[str, Any]

    @staticmethod
    def of(mail: Mail, serials: tuple[str, ...], context: Mapping[str, Any] | None) -> Facts:
        return Facts(serials, _folded(mail.words), context or {})


Condition = Callable[[Facts], bool]


@dataclass(frozen=True, slots=True)
class Scenario:
    """An instruction file and its trigger, ready to be asked."""

    instruction: Instruction
    priority: int
    conditions: tuple[Condition, ...]

    def applies(self, facts: Facts) -> bool:
        return all(condition(facts) for condition in self.conditions)


def detect_scenario(folder: Path, facts: Facts) -> Instruction | None:
    """The instruction file in `folder` whose trigger holds; the highest priority first, then by name."""
    return next((scenario.instruction for scenario in load_scenarios(folder) if scenario.applies(facts)), None)


@cache
def load_scenarios(folder: Path) -> tuple[Scenario, ...]:
    """Every ``*.md`` of `folder`, in the order in which triage asks them. Raises TriggerError."""
    scenarios = [_scenario(load_instruction(path)) for path in sorted(folder.glob("*.md"))]
    return tuple(sorted(scenarios, key=lambda scenario: -scenario.priority))


def _scenario(instruction: Instruction) -> Scenario:
    try:
        priority, conditions = _read_trigger(instruction.trigger)
    except TriggerError as error:
        raise TriggerError(f"{instruction.path}: trigger {error}") from None
    return Scenario(instruction, priority, conditions)


def _read_trigger(trigger: object) -> tuple[int, tuple[Condition, ...]]:
    known = ", ".join(CONDITIONS)
    if not isinstance(trigger, Mapping) or not trigger.keys() - {"priority"}:
        raise TriggerError(f"needs at least one of {known}; got {trigger!r}")
    unknown = trigger.keys() - CONDITIONS.keys() - {"priority"}
    if unknown:
        raise TriggerError(f"has unknown condition '{min(unknown)}'; known are {known}")
    priority = trigger.get("priority", 0)
    if not isinstance(priority, int):
        raise TriggerError(f"priority is a whole number, got {priority!r}")
    return priority, tuple(CONDITIONS[name](value) for name, value in trigger.items() if name != "priority")


def _serial_numbers(wanted: object) -> Condition:
    holds = COUNTS.get(str(wanted))
    if holds is None:
        raise TriggerError(f"serial_numbers is one of {', '.join(COUNTS)}; got {wanted!r}")
    return lambda facts: holds(len(facts.serials))


def _mentions(phrases: object) -> Condition:
    pattern = _any_of("mentions", phrases)
    return lambda facts: pattern.search(facts.words) is not None


def _not_mentions(phrases: object) -> Condition:
    pattern = _any_of("not_mentions", phrases)
    return lambda facts: pattern.search(facts.words) is None


def _any_of(name: str, phrases: object) -> re.Pattern[str]:
    if not isinstance(phrases, list) or not phrases or not all(isinstance(phrase, str) for phrase in phrases):
        raise TriggerError(f"{name} is a list of phrases, got {phrases!r}")
    parts = [[re.escape(part.strip()) for part in _folded(phrase).split("…")] for phrase in phrases]
    return re.compile("|".join(_WITHIN_A_SENTENCE.join(of_phrase) for of_phrase in parts))


def _context(wanted: object) -> Condition:
    if not isinstance(wanted, Mapping):
        raise TriggerError(f"context is a mapping, got {wanted!r}")
    return lambda facts: all(facts.context.get(key) == value for key, value in wanted.items())


CONDITIONS: dict[str, Callable[[Any], Condition]] = {
    "serial_numbers": _serial_numbers,
    "mentions": _mentions,
    "not_mentions": _not_mentions,
    "context": _context,
}


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).replace("’", "'").casefold().split())
