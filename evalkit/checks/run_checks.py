"""What the run as a whole must be: what it called last, which instruction it used, what it cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from evalkit.checks.evidence import Evidence
from evalkit.checks.reading import Path, Reader
from evalkit.checks.reasons import failed, passed, passing, place_of, unmeasured
from evalkit.errors import nearest
from evalkit.model.transcript import Transcript
from evalkit.model.verdict import CheckResult


class InstructionUsed(Struct, frozen=True):
    """`scenario_instruction_used`: the instruction file that the agent chose. `-` and `_` are one, case aside."""

    scenario_instruction_used: str
    path: Path

    key = "scenario_instruction_used"

    def judge(self, evidence: Evidence) -> CheckResult:
        used = evidence.transcript.instruction_used
        if used is None:
            message = "can't be judged: the agent did not report which instruction it used"
            return unmeasured(self.key, message, place_of(self.path), evidence.mode)
        expected = self.scenario_instruction_used
        if _folded(used) == _folded(expected):
            return passed(self.key, f"used '{used}'")
        message = f"the agent used instruction '{used}', expected '{expected}'"
        return failed(self.key, "wrong_instruction", message, place_of(self.path), expected=expected, actual=used)


def _folded(name: str) -> str:
    return name.casefold().replace("_", "-").strip()


class FinalCall(Struct, frozen=True):
    """`final_function_call`: the function that is called last; whether that call succeeded is another question."""

    final_function_call: str
    path: Path

    key = "final_function_call"

    def judge(self, evidence: Evidence) -> CheckResult:
        calls, expected = evidence.calls, self.final_function_call
        if calls and calls[-1].name == expected:
            return passing(self.key, f"{expected} was called last")
        place = place_of(self.path)
        names = [call.name for call in calls]
        if not calls:
            return failed(self.key, "missing_call", f"no call was made, expected {expected} as the last", place)
        last = f"the last call is {calls[-1].name}, expected {expected}"
        if expected in names:
            at = len(names) - names[::-1].index(expected)
            message = f"{last}, which was call {at} of {len(calls)}"
            return failed(self.key, "wrong_order", message, place, expected=expected, actual=calls[-1].name)
        near = nearest(expected, names)
        message = f"{last}, which was not called{f' ({near!r} was)' if near else ''}"
        return failed(self.key, "missing_call", message, place, expected=expected, actual=calls[-1].name)


class Budget(Struct, frozen=True):
    """A limit that a measured quantity must not exceed: `max_tokens`, `processing_time_ms`, ..."""

    key: str
    limit: float
    path: Path

    def judge(self, evidence: Evidence) -> CheckResult:
        measure, what, missing = _BUDGETS[self.key]
        actual = measure(evidence.transcript)
        if isinstance(actual, bool) or not isinstance(actual, (int, float)) or actual != actual:
            message = f"can't be judged: {missing}"
            return unmeasured(self.key, message, place_of(self.path), evidence.mode)
        measured = what.format(number(actual), "" if actual == 1 else "s")
        if actual <= self.limit:
            return passed(self.key, f"{measured}, at most {number(self.limit)}")
        message = f"{measured}, expected at most {number(self.limit)}"
        return failed(self.key, "budget_exceeded", message, place_of(self.path), expected=self.limit, actual=actual)


def number(value: float) -> str:
    """A quantity as messages write it: ``12.5``, ``0.003``, ``60000``."""
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def _turns(transcript: Transcript) -> float | None:
    return len(transcript.turns) or None


def _tokens(transcript: Transcript) -> float | None:
    usage = transcript.usage
    if usage is None:
        return None
    return usage.total_tokens or usage.input_tokens + usage.output_tokens + usage.reasoning_tokens


def _total_ms(transcript: Transcript) -> float | None:
    return None if transcript.timing is None else transcript.timing.total_ms


def _overhead_ms(transcript: Transcript) -> float | None:
    return None if transcript.timing is None else transcript.timing.overhead_ms


_NO_TIME = "the run's time was not measured"
_BUDGETS: dict[str, tuple[Callable[[Transcript], float | None], str, str]] = {
    "max_model_turns": (_turns, "{} model turn{}", "no model turn was recorded"),
    "max_function_calls": (lambda transcript: len(transcript.calls), "{} function call{}", ""),
    "max_tokens": (_tokens, "{} token{}", "the model's usage of tokens was not reported"),
    "max_cost_usd": (
        lambda transcript: transcript.cost_usd,
        "{} USD",
        "the model has no known price; [tool.evalkit.prices] has none",
    ),
    "processing_time_ms": (_total_ms, "{} ms", _NO_TIME),
    "max_overhead_ms": (_overhead_ms, "{} ms in the agent's own code", _NO_TIME),
}
_COUNTS = ("max_model_turns", "max_function_calls", "max_tokens")


def read_budget(reader: Reader, path: Path, value: Any) -> Budget | None:
    key = str(path[-1])
    limit = reader.number(path, value, whole=key in _COUNTS)
    return None if limit is None else Budget(key, limit, path)


def read_instruction(reader: Reader, path: Path, value: Any) -> InstructionUsed | None:
    name = reader.name(path, value, "the name of an instruction")
    return InstructionUsed(name, path) if name else None


def read_final_call(reader: Reader, path: Path, value: Any) -> FinalCall | None:
    name = reader.function(path, value)
    return FinalCall(name, path) if name else None
