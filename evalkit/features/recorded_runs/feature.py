"""The hooks of recorded runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evalkit.features.recorded_runs import records
from evalkit.features.recorded_runs.agent import TraceFile
from evalkit.hooks import INPUT, CaseDraft, CasePart, Feature, Options, Place, RunReport, SessionPart, Summary
from evalkit.lazy import LazyModule
from evalkit.records.transcript import Transcript
from evalkit.spec.case_reader import CaseKey, CaseReader

if TYPE_CHECKING:
    from evalkit.features.recorded_runs import selection
else:
    selection = LazyModule("evalkit.features.recorded_runs.selection")

TRACE_KEY = CaseKey(
    CaseReader.read_anything,  # read before the case, as `names_file` says
    {"type": "string", "minLength": 1},
    "A file with a recorded run, which is judged instead of a run of the agent: spans, an export, a logged chat.",
    in_suite=False,
    names_file=True,
)


class RecordedRuns(Feature):
    """Runs that happened elsewhere, judged in place of those of an agent."""

    name = records.NAME
    verdict_data = transcript_data = records.RunData

    def list_keys(self) -> Mapping[Place, Mapping[str, CaseKey]]:
        return {INPUT: {records.TRACE: TRACE_KEY}}

    def compile(self, draft: CaseDraft) -> CasePart | None:
        return TraceFile() if records.TRACE in draft.data["input"] else None

    def configure(self, options: Options) -> SessionPart:
        return selection.SelectedRuns(selection.read_selection(options))

    def add_up(self, runs: Sequence[Any]) -> Any:
        return records.add_up(runs)

    def summarize(self, outcomes: Sequence[tuple[str, Any]], is_whole: bool) -> Summary | None:
        return records.summarize(outcomes)

    def report_run(self, transcript: Transcript) -> RunReport | None:
        return records.report_run(transcript)
