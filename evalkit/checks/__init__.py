"""Judging: what the case expects, held against what happened.

`compile_expectation` turns `expected_output` into an `Expectation` once, when the case is loaded;
`Expectation.judge` holds it against a Transcript and never raises.

What counts as a call: every attempt. A call that failed, that no mock answered, that named an unknown function or
whose arguments could not be read is a call like any other, and can be forbidden, counted and found in the wrong place.
Whether it succeeded is a question of its own (`outcome`). Each actual call meets at most one expected call, and
the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.checks.compiling import compile_expectation
from evalkit.checks.expectation import Expectation
from evalkit.checks.judgement import Judgement
from evalkit.checks.keys import CALL_KEYS, DEFINITIONS, EXPECTED_KEYS, FORBIDDEN_KEYS, GROUP_KEYS, Key, merge_turn_keys
from evalkit.lazily import imported_on_use

if TYPE_CHECKING:
    from evalkit.checks.custom import check
    from evalkit.checks.on_fault import allow_stop_reason, compile_on_fault, find_on_fault_problems
    from evalkit.checks.turns import extract_turn, judge_conversation

__all__ = [
    "CALL_KEYS",
    "DEFINITIONS",
    "EXPECTED_KEYS",
    "FORBIDDEN_KEYS",
    "GROUP_KEYS",
    "Expectation",
    "Judgement",
    "Key",
    "allow_stop_reason",
    "check",
    "compile_expectation",
    "compile_on_fault",
    "extract_turn",
    "find_on_fault_problems",
    "judge_conversation",
    "merge_turn_keys",
]

_SELDOM = {
    "check": "custom",
    "ending_as": "on_fault",
    "expectation_on_fault": "on_fault",
    "judge_conversation": "turns",
    "part_of": "turns",
    "problems_of_on_fault": "on_fault",
}

__getattr__ = imported_on_use(__name__, _SELDOM)
