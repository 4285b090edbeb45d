"""Keys on the run as a whole: how it ends, its instruction, its last call."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from evalkit.checks.absence import AbsenceDemand, Demand
from evalkit.checks.evidence import COMPLETED, Evidence
from evalkit.checks.expected_key import ExpectationDraft, ExpectedKey, FailedCheck, RunExample
from evalkit.checks.key_schemas import BOOLEAN, NAME
from evalkit.checks.reasons import build_failure, build_pass, build_unmeasured
from evalkit.checks.updates import Editor
from evalkit.errors import KeyPath, find_nearest, format_path
from evalkit.jsonvalue import JsonValue
from evalkit.records.transcript import TRACED, Transcript
from evalkit.records.verdict import CheckResult

_STOP_REASON_CODES = ("agent_raised", "deadline", "crashed")  # stop reasons that are codes of their own
_WORLD_STOP_REASONS = ("provider_error",)  # ends that are no fault of the agent


class StopReason(Demand, Struct, frozen=True):
    """`stop_reason`: why the run ended. Not `is_explicit`: the case does not say it, and `completed` is expected."""

    stop_reason: str
    path: KeyPath
    is_explicit: bool = True

    key = "stop_reason"

    def judge(self, evidence: Evidence) -> CheckResult | None:
        """Compare the stop reason; None where there is nothing to say: the run completed, as it should."""
        transcript = evidence.transcript
        actual = transcript.stop_reason
        if evidence.mode == "judge" and actual == COMPLETED:
            message = "not judged: calls alone do not tell how the run ended"
            return build_unmeasured(self.key, message, "", "judge") if self.is_explicit else None
        if actual == self.stop_reason:
            return build_pass(self.key, f"ended with '{actual}'") if self.is_explicit else None
        message = f"the run ended with '{actual}', expected '{self.stop_reason}'"
        last = transcript.turns[-1] if transcript.turns else None
        if last is not None and last.finish_message and not last.calls:  # the reply that ended the run
            message += f": {last.finish_message}"
        place = format_path(self.path)
        if actual in _WORLD_STOP_REASONS:
            return build_unmeasured(self.key, message, place, evidence.mode, code=actual)
        code = actual if actual in _STOP_REASON_CODES else "stop_reason"
        return build_failure(self.key, code, message, place, expected=self.stop_reason, actual=actual)


class StopReasonKey(ExpectedKey):
    """`stop_reason`, which a case may say although its suite does not."""

    name = "stop_reason"
    schema = NAME
    doc = "Why the run ended; `completed` unless said otherwise."
    looks_at_arguments = False

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> StopReason | None:
        name = draft.reader.read_name(path, value, "a stop reason such as 'completed' or 'max_iterations'")
        return StopReason(name, path) if name else None

    def shape_example(self, example: RunExample, value: Any) -> None:
        example.stop_reason = value

    def update(self, editor: Editor, path: KeyPath, failed: FailedCheck) -> None:
        editor.set(path, failed.transcript.stop_reason)


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
