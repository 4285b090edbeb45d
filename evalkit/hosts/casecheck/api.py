"""What features use of the checks of cases: the mutants of a run, example arguments, and how the calls of two runs
differ."""

from __future__ import annotations

from evalkit.hosts.casecheck.call_differences import PROSE, find_call_differences, format_call, is_prose
from evalkit.hosts.casecheck.expected_calls import make_schema_example
from evalkit.hosts.casecheck.mutants import Mutant, describe_made_call, replace_calls

__all__ = [
    "PROSE",
    "Mutant",
    "describe_made_call",
    "find_call_differences",
    "format_call",
    "is_prose",
    "make_schema_example",
    "replace_calls",
]
