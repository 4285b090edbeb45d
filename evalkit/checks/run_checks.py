"""Keys on the run as a whole: how it ends, its instruction, its last call."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from evalkit.checks.absence import AbsenceDemand, Demand
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_key import ExpectationDraft, ExpectedKey, RunExample
from evalkit.checks.key_schemas import BOOLEAN, NAME
from evalkit.checks.reasons import build_failure, build_pass, build_unmeasured
from evalkit.errors import KeyPath, find_nearest, format_path
from evalkit.jsonvalue import JsonValue
from evalkit.records.transcript import TRACED, Transcript
from evalkit.records.verdict import CheckResult


class ModelFailure(Demand, Struct, frozen=True):
    """`model_failure`: a request to a model fails, and the case tests what the agent makes of it."""

    path: KeyPath

    key = "model_failure"

    def judge(self, evidence: Evidence) -> CheckResult:
        """Look for a failed request."""
        transcript = evidence.transcript
        if evidence.mode == "judge" or transcript.cassette == TRACED:
            message = "can't be judged: a recorded run does not say which requests to a model failed"
            return build_unmeasured(self.key, message, format_path(self.path), evidence.mode)
        if transcript.failed_requests:
            return build_pass(self.key, transcript.failed_requests[-1].message)
        message = "no request to a model failed, so how the agent copes with a failure was not tested"
        return build_failure(self.key, "no_model_failure", message, format_path(self.path))


class ModelFailureKey(ExpectedKey):
    """`model_failure`; false demands nothing."""

    name = "model_failure"
    schema = BOOLEAN
    doc = "A request to a model must fail: the case is about what the agent makes of it."

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> ModelFailure | None:
        return ModelFailure(path) if draft.reader.read_boolean(path, value) else None


class InstructionUsed(Demand, Struct, frozen=True):
    """`scenario_instruction_used`: the instruction file that the agent chose. `-` and `_` are one, case aside."""

    scenario_instruction_used: str
    path: KeyPath

    key = "scenario_instruction_used"

    def judge(self, evidence: Evidence) -> CheckResult:
        """Compare the names."""
        used, expected = evidence.transcript.instruction_used, self.scenario_instruction_used
        if used is None:
            message = "can't be judged: the agent did not report which instruction it used"
            return build_unmeasured(self.key, message, format_path(self.path), evidence.mode)
        if _fold_name(used) == _fold_name(expected):
            return build_pass(self.key, f"used '{used}'")
        message = f"the agent used instruction '{used}', expected '{expected}'"
        place = format_path(self.path)
        return build_failure(self.key, "wrong_instruction", message, place, expected=expected, actual=used)


def _fold_name(name: str) -> str:
    return name.casefold().replace("_", "-").strip()


class InstructionKey(ExpectedKey):
    """`scenario_instruction_used`."""

    name = "scenario_instruction_used"
    schema = NAME
    doc = "The instruction file that the agent must have used; `-` and `_` are one."

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> InstructionUsed | None:
        name = draft.reader.read_name(path, value, "the name of an instruction")
        return InstructionUsed(name, path) if name else None

    def shape_example(self, example: RunExample, value: Any) -> None:
        example.instruction_used = value

    def get_actual(self, transcript: Transcript) -> JsonValue:
        return transcript.instruction_used


class FinalCall(AbsenceDemand, Struct, frozen=True):
    """`final_function_call`: the function that is called last, whether or not that call succeeds."""

    final_function_call: str
    path: KeyPath

    key = "final_function_call"

    def judge(self, evidence: Evidence) -> CheckResult:
        """Compare the name of the last call."""
        names, expected = [call.name for call in evidence.calls], self.final_function_call
        place = format_path(self.path)
        if not names:
            return build_failure(self.key, "missing_call", f"no call was made, expected {expected} as the last", place)
        if names[-1] == expected:
            return build_pass(self.key, f"{expected} was called last")
        message = f"the last call is {names[-1]}, expected {expected}"
        if expected in names:
            number = len(names) - names[::-1].index(expected)
            code, message = "wrong_order", f"{message}, which was call {number} of {len(names)}"
        else:
            nearest = find_nearest(expected, names)
            hint = f" ({nearest!r} was)" if nearest else ""
            code, message = "missing_call", f"{message}, which was not called{hint}"
        return build_failure(self.key, code, message, place, expected=expected, actual=names[-1])


class FinalCallKey(ExpectedKey):
    """`final_function_call`."""

    name = "final_function_call"
    schema = NAME
    doc = "The function that must be called last."
    looks_at_arguments = False
    counts_calls = True

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> FinalCall | None:
        name = draft.reader.read_function(path, value)
        return FinalCall(name, path) if name else None

    def get_actual(self, transcript: Transcript) -> JsonValue:
        return transcript.calls[-1].name if transcript.calls else None


KEYS = (FinalCallKey(), ModelFailureKey(), InstructionKey())
