"""The key `stop_reason`: how a run must end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalkit.checks.absence import Demand
from evalkit.checks.evidence import COMPLETED, Evidence
from evalkit.checks.expected_key import ExpectationDraft, ExpectedKey, FailedCheck, RunExample
from evalkit.checks.key_schemas import NAME
from evalkit.checks.reasons import build_failure, build_pass, build_unmeasured
from evalkit.errors import KeyPath, format_path
from evalkit.records.transcript import ModelTurn
from evalkit.records.verdict import CheckResult

if TYPE_CHECKING:
    from evalkit.checks.updates import Editor

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
        if last is not None and last.finish_reason == actual == "length":
            message += f"; {_describe_limit(last)}"
        place = format_path(self.path)
        if actual in _WORLD_STOP_REASONS:
            return build_unmeasured(self.key, message, place, evidence.mode, code=actual)
        code = actual if actual in _STOP_REASON_CODES else "stop_reason"
        return build_failure(self.key, code, message, place, expected=self.stop_reason, actual=actual)


def _describe_limit(turn: ModelTurn) -> str:
    """Describe the limit at which a reply was cut off, and the setting."""
    tokens = 0 if turn.usage is None else turn.usage.output_tokens + turn.usage.reasoning_tokens
    count = f"after {tokens:,} tokens" if tokens else "at its limit"
    return f"the model's reply was cut off {count}; settings.max_output_tokens says how many it may have"


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


KEYS = (StopReasonKey(),)
