"""The hooks of hand-offs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalkit.checks.expected_key import ExpectedKey
from evalkit.features.handoffs.keys import HANDOFF_KEYS
from evalkit.features.handoffs.log import HandoffLog
from evalkit.features.handoffs.records import DELEGATION, NAME, Handoff, get_handoffs, read_handoffs
from evalkit.functions.call_log import CallLog
from evalkit.hooks import EXPECTED, Feature, Place, RunPart, RunReport
from evalkit.records.transcript import Transcript


class Handoffs(Feature):
    """The passing of a run from one agent to another."""

    name = NAME
    transcript_data = tuple[Handoff, ...]

    def list_keys(self) -> Mapping[Place, Mapping[str, ExpectedKey]]:
        return {EXPECTED: {key.name: key for key in HANDOFF_KEYS}}

    def start_late(self, log: CallLog) -> RunPart:
        return HandoffLog(log)

    def list_agents(self, data: Any) -> Iterable[str]:
        return (name for handoff in read_handoffs(data) for name in (handoff.source, handoff.target) if name)

    def extract_turn(self, data: Any, user_turn: int) -> Any:
        return [item for item in data if item.get("user_turn", 0) == user_turn]

    def report_run(self, transcript: Transcript) -> RunReport:
        lines: dict[int | None, list[str]] = {}
        for handoff in get_handoffs(transcript):
            verb = "asks" if handoff.kind == DELEGATION else "hands over to"
            words = f"→ {handoff.source or 'the agent'} {verb} {handoff.target}"
            lines.setdefault(handoff.call, []).append(words)
        return RunReport(lines=lines)
