"""How the run must end. Every case says so, if only by its silence: `completed`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from evalkit.checks.evidence import Evidence
from evalkit.checks.reading import ExpectationReader, KeyPath
from evalkit.checks.reasons import build_detailed_pass, build_run_failure, build_unmeasured, format_place
from evalkit.model.transcript import Transcript
from evalkit.model.verdict import CheckResult

COMPLETED = "completed"
_STOP_REASON_CODES = ("agent_raised", "deadline", "crashed")  # stop reasons that are codes of their own
_WORLD_STOP_REASONS = ("provider_error",)  # ends that are no fault of the agent


class StopReason(Struct, frozen=True):
    """`stop_reason`: why the run ended. `written`: the case says it; `completed` goes without saying."""

    stop_reason: str
    path: KeyPath
    is_explicit: bool = True

    key = "stop_reason"

    def judge(self, evidence: Evidence) -> CheckResult | None:
        """None where nothing is to be said: the run completed, as it should."""
        actual = evidence.transcript.stop_reason
        if evidence.mode == "judge" and actual == COMPLETED:
            return (
                build_unmeasured(self.key, "not judged: calls alone do not tell how the run ended", "", "judge")
                if self.is_explicit
                else None
            )
        if actual == self.stop_reason:
            return build_detailed_pass(self.key, f"ended with '{actual}'") if self.is_explicit else None
        message = (
            f"the run ended with '{actual}', expected '{self.stop_reason}'{_describe_last_turn(evidence.transcript)}"
        )
        if actual in _WORLD_STOP_REASONS:
            return build_unmeasured(self.key, message, format_place(self.path), evidence.mode, code=actual)
        code = actual if actual in _STOP_REASON_CODES else "stop_reason"
        return build_run_failure(
            self.key, code, message, format_place(self.path), expected=self.stop_reason, actual=actual
        )


def _describe_last_turn(transcript: Transcript) -> str:
    """What the model's service said of the reply that ended the run, as the end of a sentence."""
    last = transcript.turns[-1] if transcript.turns else None
    return f": {last.finish_message}" if last is not None and last.finish_message and not last.calls else ""


def read_stop_reason(reader: ExpectationReader, path: KeyPath, value: Any) -> StopReason | None:
    name = reader.read_name(path, value, "a stop reason such as 'completed' or 'max_iterations'")
    return StopReason(name, path) if name else None
