"""What the run as a whole must be: what it called last, which instruction it used, what it cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from evalkit.checks.evidence import Evidence
from evalkit.checks.reader import ExpectationReader
from evalkit.checks.reasons import build_detailed_pass, build_pass, build_run_failure, build_unmeasured, format_place
from evalkit.errors import KeyPath, find_nearest
from evalkit.model.transcript import Transcript
from evalkit.model.verdict import CheckResult

# How the run must end. Every case says so, if only by its silence: `completed`.

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


class InstructionUsed(Struct, frozen=True):
    """`scenario_instruction_used`: the instruction file that the agent chose. `-` and `_` are one, case aside."""

    scenario_instruction_used: str
    path: KeyPath

    key = "scenario_instruction_used"

    def judge(self, evidence: Evidence) -> CheckResult:
        used = evidence.transcript.instruction_used
        if used is None:
            message = "can't be judged: the agent did not report which instruction it used"
            return build_unmeasured(self.key, message, format_place(self.path), evidence.mode)
        expected = self.scenario_instruction_used
        if _fold_name(used) == _fold_name(expected):
            return build_detailed_pass(self.key, f"used '{used}'")
        message = f"the agent used instruction '{used}', expected '{expected}'"
        return build_run_failure(
            self.key, "wrong_instruction", message, format_place(self.path), expected=expected, actual=used
        )


def _fold_name(name: str) -> str:
    return name.casefold().replace("_", "-").strip()


class FinalCall(Struct, frozen=True):
    """`final_function_call`: the function that is called last; whether that call succeeded is another question."""

    final_function_call: str
    path: KeyPath

    key = "final_function_call"

    def judge(self, evidence: Evidence) -> CheckResult:
        calls, expected = evidence.calls, self.final_function_call
        if calls and calls[-1].name == expected:
            return build_pass(self.key, f"{expected} was called last")
        place = format_place(self.path)
        names = [call.name for call in calls]
        if not calls:
            return build_run_failure(
                self.key, "missing_call", f"no call was made, expected {expected} as the last", place
            )
        last = f"the last call is {calls[-1].name}, expected {expected}"
        if expected in names:
            at = len(names) - names[::-1].index(expected)
            message = f"{last}, which was call {at} of {len(calls)}"
            return build_run_failure(self.key, "wrong_order", message, place, expected=expected, actual=calls[-1].name)
        nearest_name = find_nearest(expected, names)
        message = f"{last}, which was not called{f' ({nearest_name!r} was)' if nearest_name else ''}"
        return build_run_failure(self.key, "missing_call", message, place, expected=expected, actual=calls[-1].name)


class Budget(Struct, frozen=True):
    """A limit that a measured quantity must not exceed: `max_tokens`, `processing_time_ms`, ..."""

    key: str
    limit: float
    path: KeyPath

    def judge(self, evidence: Evidence) -> CheckResult:
        measure, template, missing = _BUDGETS[self.key]
        actual = measure(evidence.transcript)
        if isinstance(actual, bool) or not isinstance(actual, (int, float)) or actual != actual:
            message = f"can't be judged: {missing}"
            return build_unmeasured(self.key, message, format_place(self.path), evidence.mode)
        measured = template.format(format_number(actual), "" if actual == 1 else "s")
        if actual <= self.limit:
            return build_detailed_pass(self.key, f"{measured}, at most {format_number(self.limit)}")
        message = f"{measured}, expected at most {format_number(self.limit)}"
        return build_run_failure(
            self.key, "budget_exceeded", message, format_place(self.path), expected=self.limit, actual=actual
        )


def format_number(value: float) -> str:
    """A quantity as messages write it: ``12.5``, ``0.003``, ``60000``."""
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def _count_turns(transcript: Transcript) -> float | None:
    return len(transcript.turns) or None


def _count_tokens(transcript: Transcript) -> float | None:
    usage = transcript.usage
    if usage is None:
        return None
    return usage.total_tokens or usage.input_tokens + usage.output_tokens + usage.reasoning_tokens


def _get_total_ms(transcript: Transcript) -> float | None:
    return None if transcript.timing is None else transcript.timing.total_ms


def _get_overhead_ms(transcript: Transcript) -> float | None:
    return None if transcript.timing is None else transcript.timing.overhead_ms


_NO_TIME = "the run's time was not measured"
_BUDGETS: dict[str, tuple[Callable[[Transcript], float | None], str, str]] = {
    "max_model_turns": (_count_turns, "{} model turn{}", "no model turn was recorded"),
    "max_function_calls": (lambda transcript: len(transcript.calls), "{} function call{}", ""),
    "max_tokens": (_count_tokens, "{} token{}", "the model's usage of tokens was not reported"),
    "max_cost_usd": (
        lambda transcript: transcript.cost_usd,
        "{} USD",
        "the model has no known price; [tool.evalkit.prices] has none",
    ),
    "processing_time_ms": (_get_total_ms, "{} ms", _NO_TIME),
    "max_overhead_ms": (_get_overhead_ms, "{} ms in the agent's own code", _NO_TIME),
}
_COUNTS = ("max_model_turns", "max_function_calls", "max_tokens")


def read_budget(reader: ExpectationReader, path: KeyPath, value: Any) -> Budget | None:
    key = str(path[-1])
    limit = reader.read_number(path, value, is_whole=key in _COUNTS, minimum=0)
    return None if limit is None else Budget(key, limit, path)


def read_instruction(reader: ExpectationReader, path: KeyPath, value: Any) -> InstructionUsed | None:
    name = reader.read_name(path, value, "the name of an instruction")
    return InstructionUsed(name, path) if name else None


def read_final_call(reader: ExpectationReader, path: KeyPath, value: Any) -> FinalCall | None:
    name = reader.read_function(path, value)
    return FinalCall(name, path) if name else None
