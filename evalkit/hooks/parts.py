"""The parts of a feature: in a case, and in a run. The case and the run carry them, and the kernel asks those alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

if TYPE_CHECKING:
    from evalkit.checks.expectation import Expectation
    from evalkit.errors import EvalkitError
    from evalkit.functions.call_log import CallLog, PendingCall
    from evalkit.hooks.records import Forecast, JudgedRun, PartJudgement
    from evalkit.records.transcript import Transcript


class CasePart(Struct, frozen=True):
    """What a feature has compiled for a case. Picklable; its methods are called for this case alone."""

    judges_unmeasured: ClassVar[bool] = False  # `judge` is asked of runs that could not be measured, too

    def start(self, log: CallLog) -> RunPart | None:
        """A run begins: return what takes part in it."""
        return None

    def judge(self, run: JudgedRun) -> PartJudgement | None:
        """A run is over, and the checks of `expected_output` have been made. An exception is an error of the case."""
        return None

    def is_current(self, data: Any) -> bool:
        """Return whether a verdict with this `data` would be the same now: `--evalkit-resume`."""
        return True

    def list_call_keys(self, function: str) -> set[str]:
        """Return the keys by which it tells calls of `function` apart, such as `result_contains`"""
        return set()

    def looks_at_arguments(self) -> bool:
        """Return whether it depends on more of calls than their names and outcomes."""
        return False

    def forecast(self, forecast: Forecast) -> None:
        """Report what the expected calls can't keep."""


class RunPart:
    """The part of a feature in one run. Called under the lock of the call log."""

    feature: ClassVar[str]

    def answer(self, call: PendingCall) -> EvalkitError | None:
        """A call is about to be answered by its mock. Change it if need be; return the error that it gets instead."""
        return None

    def finish(self, transcript: Transcript, expectations: Sequence[Expectation | None]) -> Transcript:
        """The run is over: return its record, as it is to be judged."""
        return transcript

    def find_unused(self) -> Iterable[str]:
        """Word a sentence for each entry of the case that no call used."""
        return ()
