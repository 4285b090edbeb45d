"""The compiled `expected_output`, and how it judges a transcript."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from evalkit.checks.calls import ExpectedCallList
from evalkit.checks.evidence import Evidence
from evalkit.checks.judgement import CallResult, CallsResult, Judgement, build_judgement, list_unjudged
from evalkit.checks.reasons import build_unmeasured, format_place
from evalkit.checks.run_checks import COMPLETED, StopReason
from evalkit.errors import KeyPath, MeasurementError
from evalkit.model.transcript import Transcript
from evalkit.model.verdict import CheckResult

if TYPE_CHECKING:
    from evalkit.checks.calls import ForbiddenCalls, GroundedCalls
    from evalkit.checks.criteria import JudgeCriteria


_COMPLETES = StopReason(COMPLETED, (), is_explicit=False)


class KeyedCheck(Protocol):
    """Anything that stands in the case under a key."""

    @property
    def key(self) -> str: ...

    @property
    def path(self) -> KeyPath: ...


class RunCheck(KeyedCheck, Protocol):
    """A demand on the run: a frozen dataclass with one method, its fields the keys of the case."""

    def judge(self, evidence: Evidence) -> CheckResult | None: ...


class Expectation(Struct, frozen=True):
    """What a case (or one user turn of it) demands. Made by `compile_expectation`; picklable."""

    calls: ExpectedCallList | None = None
    forbidden: ForbiddenCalls | None = None
    grounded: GroundedCalls | None = None
    valid_arguments: bool = True
    stop_reason: StopReason = _COMPLETES
    checks: tuple[RunCheck, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)  # of the functions that the case declares
    graded: JudgeCriteria | None = None  # `judge`; the pipeline has it graded before the rest is concluded

    def judge(
        self,
        transcript: Transcript,
        *,
        input: Any = None,
        mode: str = "run",
        user_turn: int | None = None,
        turn_starts: Sequence[int] | None = None,
    ) -> Judgement:
        """Hold a transcript against the expectation. Never raises, whatever the transcript holds.

        `input` is the case's input, for references and `grounded`; None: the transcript's own. `mode` "judge" judges
        what is there: demands on the run whose evidence is missing are listed as not judged, and decide nothing.
        `user_turn`: only what belongs to that turn of the conversation (from 0) is judged; `turn_starts` are then the
        numbers of model turns before each user turn, where the caller counted them.
        """
        known_calls = None
        if user_turn is not None:
            from evalkit.checks.conversation import extract_turn

            known_calls = tuple(call for call in transcript.calls if call.user_turn <= user_turn)
            transcript = extract_turn(transcript, user_turn, turn_starts)
        evidence = Evidence(transcript, transcript.input if input is None else input, mode, known_calls, self.aliases)
        judged = self._judge_calls(evidence)
        results = judged.results
        results += self._judge_over_calls(judged.call_results, evidence)
        for check in (self.stop_reason, *self.checks):
            result = _judge_guarded(check, evidence)
            if result is not None:
                results.append(result)
        if self.graded is not None:
            results += self.graded.judge(evidence)
        return build_judgement(judged.call_results, results, judged.score, evidence, self.stop_reason)

    def _judge_calls(self, evidence: Evidence) -> CallsResult:
        """The calls held against the list, if there is one."""
        if self.calls is None:
            return CallsResult(list_unjudged(evidence.calls), [], None)
        try:
            return self.calls.judge(evidence)
        except Exception as error:
            return CallsResult(list_unjudged(evidence.calls), [_build_broken(self.calls, error)], None)

    def _judge_over_calls(self, drafts: Sequence[CallResult], evidence: Evidence) -> list[CheckResult]:
        results = []
        try:
            if any(draft.call is not None and (draft.call.problem or draft.call.violations) for draft in drafts):
                from evalkit.checks.calls import add_problems

                add_problems(drafts, valid_arguments=self.valid_arguments)
        except Exception as error:
            results.append(_build_broken(self.stop_reason, error))
        for check in (self.forbidden, self.grounded):
            if check is not None:
                try:
                    results.append(check.judge(drafts, evidence))
                except Exception as error:
                    results.append(_build_broken(check, error))
        return results


def _judge_guarded(check: RunCheck, evidence: Evidence) -> CheckResult | None:
    try:
        return check.judge(evidence)
    except Exception as error:
        return _build_broken(check, error)


def _build_broken(check: KeyedCheck, error: Exception) -> CheckResult:
    """A check that could not do its work is no failure of the agent, and no pass either."""
    message = (
        str(error) if isinstance(error, MeasurementError) else f"judging it raised {type(error).__name__}: {error}"
    )
    return build_unmeasured(check.key, f"can't be judged: {message}", format_place(check.path), "run")
