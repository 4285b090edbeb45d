"""`state` and `state_contains`, the state that a run ends with, and `input.state_probe`, which reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from evalkit.checks.absence import Demand
from evalkit.checks.call_checks import build_mismatch_reason
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_key import ONLY_A_RUN, ExpectationDraft, ExpectedKey
from evalkit.checks.reader import check_references
from evalkit.checks.reasons import NOT_JUDGED, build_failures, build_pass, build_unmeasured
from evalkit.errors import KeyPath, format_path
from evalkit.operators.base import Matcher
from evalkit.operators.compile import Mode
from evalkit.operators.late import note_late_values
from evalkit.records.verdict import CheckResult
from evalkit.spec.case_reader import CaseKey, CaseReader

PROBE_KEY = CaseKey(
    CaseReader.read_anything,  # read by `FinalStates.compile`, which knows what the project allows
    {
        "type": "object",
        "properties": {"$call": {"type": "string", "pattern": ":"}, "$sql": {"type": "object"}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    },
    "What reads the state of a real system once the agent has ended: `{$call: ...}`, `{$sql: {database, query}}`.",
)


class FinalState(Demand, Struct, frozen=True):
    """`state` or `state_contains`: the state at the end of the run, whatever the calls that led there."""

    key: str
    matcher: Matcher
    path: KeyPath

    def judge(self, evidence: Evidence) -> CheckResult:
        """Compare the state."""
        state = evidence.transcript.state
        if state is None:
            message = "the run has no state; declare input.state, or input.state_probe"
            if evidence.transcript.fault is not None:
                message = "the run broke off before its state was read"
            return build_unmeasured(self.key, f"can't be judged: {message}", format_path(self.path), evidence.mode)
        matcher = self.matcher.bind(evidence.resolve) if self.matcher.has_templates else self.matcher
        if matcher.is_match(state):
            note_late_values(matcher, state, ("state",), "")
            return build_pass(self.key, "the state is as expected")
        place = format_path(self.path)
        reasons = [build_mismatch_reason("state_mismatch", item, place) for item in matcher.explain(state, ("state",))]
        return build_failures(self.key, reasons)


class PartialStateKey(ExpectedKey):
    """`state_contains`."""

    name = "state_contains"
    schema: Mapping[str, Any] = {"type": ["object", "array"], "minProperties": 1}
    doc = "The state at the end of the run must hold these keys, equal on their values; operators are allowed."
    mode: Mode = "partial"
    in_turns = False
    untraced = "no state"

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> FinalState | None:
        matcher = draft.reader.read_matcher(path, value, self.mode)
        check_references(draft.reader, path, value)
        return None if matcher is None else FinalState(self.name, matcher, path)

    def explain_open(self, result: CheckResult) -> str:
        return ONLY_A_RUN if result.status == NOT_JUDGED else ""


class StateKey(PartialStateKey):
    """`state`, which is equal as a whole."""

    name = "state"
    schema: Mapping[str, Any] = {}
    doc = "The state at the end of the run (`input.state`, `input.state_probe`) must be this: values and operators."
    mode = "equal"
