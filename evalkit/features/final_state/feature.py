"""The hooks of the state that a run ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from evalkit.checks.expectation import Expectation
from evalkit.checks.expected_key import ExpectedKey
from evalkit.features.final_state.keys import PROBE_KEY, PartialStateKey, StateKey
from evalkit.features.final_state.probes import StateProbe, read_probe, read_state
from evalkit.functions.call_log import CallLog
from evalkit.hooks import EXPECTED, INPUT, CaseDraft, CasePart, Feature, Place, RunPart, RunView
from evalkit.jsonvalue import JsonValue
from evalkit.records.transcript import Transcript
from evalkit.spec.case_reader import CaseKey

NAME, PROBE = "final_state", "state_probe"


class ProbeReading(RunPart):
    """What a probe reads at the end of one run."""

    feature = NAME

    def __init__(self, probe: StateProbe) -> None:
        self._probe = probe
        self._state: JsonValue = None

    async def close(self, run: RunView) -> None:
        arguments = {"state": run.dispatcher.state, "input": run.case.input, "task": run.task}
        self._state = await read_state(self._probe, arguments, run.root, run.deadline_s)

    def finish(self, transcript: Transcript, expectations: Sequence[Expectation | None]) -> Transcript:
        return transcript if self._state is None else replace(transcript, state=self._state)


class CaseProbe(CasePart, frozen=True):
    """The probe of a case."""

    probe: StateProbe

    in_changed_runs = False

    def start(self, log: CallLog) -> RunPart:
        return ProbeReading(self.probe)


class FinalStates(Feature):
    """The state that a run ends with."""

    name = NAME

    def list_keys(self) -> Mapping[Place, Mapping[str, CaseKey | ExpectedKey]]:
        return {INPUT: {PROBE: PROBE_KEY}, EXPECTED: {key.name: key for key in (StateKey(), PartialStateKey())}}

    def compile(self, draft: CaseDraft) -> CasePart | None:
        said = draft.data.get("input", {}).get(PROBE)
        if said is None:
            return None
        path = ("input", PROBE)
        probe = read_probe(draft.reader, path, said, check_targets=draft.check_targets, permissions=draft.permissions)
        return None if probe is None else CaseProbe(probe)
