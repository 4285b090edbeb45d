"""The gate: a pure function from a run, a policy and perhaps a baseline to met, missed or not measured, with reasons.

What counts. Each selected case counts once. `passed` and `failed` are measured; `error`, an interrupted case and one
without any verdict are not. Cases skipped on request and quarantined ones leave both sides of the rate. `missed` means
missed even if every unmeasured case would pass; `not_measured` means that the run can't tell. All rates are exact.
"""

from __future__ import annotations

from evalkit.gate.counts import SKIPPED_CODE as SKIPPED_CODE
from evalkit.gate.counts import CaseOutcome as CaseOutcome
from evalkit.gate.counts import build_outcome as build_outcome
from evalkit.gate.decision import decide as decide
from evalkit.gate.decision import decide_outcomes as decide_outcomes
from evalkit.gate.rates import parse_percentage as parse_percentage

__all__ = ["SKIPPED_CODE", "CaseOutcome", "build_outcome", "decide", "decide_outcomes", "parse_percentage"]
