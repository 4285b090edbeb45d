"""What features use of the checks of cases: the mutants of a run."""

from __future__ import annotations

from evalkit.hosts.casecheck.mutants import Mutant, describe_made_call, replace_calls

__all__ = ["Mutant", "describe_made_call", "replace_calls"]
