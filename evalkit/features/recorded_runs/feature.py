"""The hooks of recorded runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.features.recorded_runs import records
from evalkit.features.recorded_runs.agent import TraceFile
from evalkit.features.recorded_runs.keys import TRACE_KEY
from evalkit.hooks import INPUT, CaseDraft, CasePart, Feature, Place, RunReport, Summary
from evalkit.records.transcript import Transcript


class RecordedRuns(Feature):
    """Runs that happened elsewhere, judged in place of those of an agent."""

    name = records.NAME
    verdict_data = transcript_data = records.RunData

    def list_keys(self) -> Mapping[Place, Mapping[str, Any]]:
        return {INPUT: {records.TRACE: TRACE_KEY}}

    def compile(self, draft: CaseDraft) -> CasePart | None:
        return TraceFile() if records.TRACE in draft.data["input"] else None

    def add_up(self, runs: Sequence[Any]) -> Any:
        return records.add_up(runs)

    def summarize(self, outcomes: Sequence[tuple[str, Any]], is_whole: bool) -> Summary | None:
        return records.summarize(outcomes)

    def report_run(self, transcript: Transcript) -> RunReport | None:
        return records.report_run(transcript)
