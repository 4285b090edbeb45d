"""The fault sweep: a case that passed runs again with each function that it called failing, in each way.

What a fault run must keep to is `on_fault`. Where the model's turns were written beforehand, they go on as if nothing
had failed: such a run tells nothing of the model, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.expectation import Expectation
from evalkit.checks.on_fault import ending_as, expectation_on_fault
from evalkit.checks.turns import judge_conversation
from evalkit.functions.mocks import Answer, Failure, MockSet, Static
from evalkit.model.case import Case, Declaration, Repeat
from evalkit.model.settings import Settings
from evalkit.model.transcript import FunctionCall, Transcript
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, FaultRun, Reason, Verdict
from evalkit.pipeline.attempt import Attempt
from evalkit.pipeline.judging import path_of
from evalkit.pipeline.running import arun_case
from evalkit.pipeline.watch import Watch

FAULTS = ("timeout", "error", "empty", "malformed")
NOT_MEASURABLE = "not_measurable_offline"
_GARBAGE = "<html><body><h1>502 Bad Gateway</h1></body></html>"
_NO_TURN = ("missing_cassette", "stale_cassette")


async def arun_swept(
    case: Case, agent: Any = None, settings: Settings | None = None, *, watch: Watch | None = None
) -> Verdict:
    """`arun_case`, and if the case passed, its fault runs: `Verdict.faults`. A fault run that fails, fails the case."""
    watch = watch or Watch()
    going = _Seen(watch)
    verdict = await arun_case(case, agent, settings, watch=going)
    watch.left()
    if verdict.status != PASSED or going.attempt is None:
        return verdict
    transcript = next((run.transcript for run in verdict.runs if run.passed), verdict.transcript)
    sweep = _Sweep(going.attempt, transcript, settings or Settings())
    done: list[FaultRun] = []
    for function, fault, answer in sweep.planned():
        watch.told_as = partial(_told_as, verdict, tuple(done), partial(sweep.judged, function, fault))
        faulty = await arun_case(sweep.case(function, answer), agent, sweep.settings, watch=_Seen(watch))
        watch.left()
        done.append(sweep.judged(function, fault, faulty))
    return _with_faults(verdict, done)


class _Seen(Watch):
    """Watches one part of a sweep, and lets the caller's watch see the run that is going on."""

    def __init__(self, outer: Watch) -> None:
        super().__init__()
        self._outer = outer
        self.attempt: Attempt | None = None

    def started(self, going: Attempt) -> None:
        super().started(going)
        self._outer.started(going)
        self.attempt = going

    def left(self) -> None:
        super().left()
        self._outer.left()

    def finished(self, verdict: Verdict) -> None:
        super().finished(verdict)
        if self._outer.told_as is None:
            self._outer.finished(verdict)
        else:
            self._outer.left()


class _Sweep(Struct, frozen=True):
    """One case's fault runs: what they need of its last run, and the transcript of one that passed."""

    passing: Attempt
    transcript: Transcript
    given: Settings

    @property
    def settings(self) -> Settings:
        """Nothing is recorded, and mocks may go unused: an agent that gives up early does right."""
        return replace(self.given, record=None, strict_mocks=None)

    def planned(self) -> Iterator[tuple[str, str, Answer]]:
        """Every function that answered a call, in the order of their first calls, with every way to fail."""
        for name, first in self._answered().items():
            patched = any(one.name == name and one.patch for one in self.passing.dispatcher.declarations)
            for fault in FAULTS:
                answer = _answer(name, fault, first.result, patched=patched)
                if answer is not None:
                    yield name, fault, answer

    def _answered(self) -> dict[str, FunctionCall]:
        found: dict[str, FunctionCall] = {}
        for call in self.transcript.calls:
            if call.outcome == "ok":
                found.setdefault(call.name, call)
        return found

    def case(self, function: str, answer: Answer) -> Case:
        """The case with `function` failing, judged by nothing yet."""
        plan = self.passing.plan
        aliases = {alias: one.name for one in self.passing.dispatcher.declarations for alias in one.aliases}
        others = {name: mock for name, mock in plan.mocks.answers.items() if aliases.get(name, name) != function}
        return replace(
            plan.case,
            mocks=MockSet({**others, function: answer}),
            expectation=Expectation(valid_arguments=False),
            turns=tuple(replace(turn, expectation=None) for turn in plan.case.turns),
            repeat=Repeat(),
            settings=replace(plan.case.settings, strict_mocks=False),
        )

    def judged(self, function: str, fault: str, verdict: Verdict) -> FaultRun:
        """What the run under that fault shows."""
        transcript = verdict.transcript
        why = self._not_measurable(function, transcript)
        if why is not None:
            reason = Reason(code=NOT_MEASURABLE, message=f"not measurable offline: {why}")
            return FaultRun(function=function, fault=fault, status=NOT_RUN, reasons=(reason,))
        found = judge_conversation(
            transcript,
            self._demanded(function, transcript),
            [_kept(turn.expectation, transcript) for turn in self._case.turns],
            input=self._case.input,
        )
        reasons = tuple(self._located(reason) for reason in found.reasons)
        return FaultRun(function=function, fault=fault, status=found.status, reasons=reasons, transcript=transcript)

    @property
    def _case(self) -> Case:
        return self.passing.plan.case

    def _located(self, reason: Reason) -> Reason:
        return replace(reason, location=str(self._case.locate(path_of(reason.place)))) if reason.place else reason

    def _demanded(self, function: str, transcript: Transcript) -> Expectation:
        """`on_fault`; what the case forbids, where that does not forbid something else; and a defined end."""
        case = self._case
        declared: dict[str, Declaration] = {one.name: one for one in case.functions}
        own = expectation_on_fault(case.merged.get("on_fault"), function, declarations=declared, input=case.input)
        usual = self.passing.plan.expectation
        forbidden = own.forbidden or (usual.forbidden if usual is not None else None)
        return _ended(replace(own, forbidden=forbidden), transcript)

    def _not_measurable(self, function: str, transcript: Transcript) -> str | None:
        """Why the run tells nothing of the agent, or None: it does."""
        fault = transcript.fault
        if fault is not None and fault.code == "mock_error":
            return f"another mock needs what {function} returns ({fault.message})"
        if self.given.model is not None:
            return None
        if fault is not None and not fault.measured and fault.code in _NO_TURN:
            return "the cassette has no turn for what the model is asked now"
        # The same turns did not make the agent raise before: an exception is its own, whatever the model would say.
        raised = fault is not None and fault.code == "agent_raised"
        if transcript.cassette != "recorded" and not raised and _asked_after(function, transcript):
            return "the model's turns were written beforehand, and go on as if nothing had failed"
        return None


def _asked_after(function: str, transcript: Transcript) -> bool:
    """Whether the model may have been asked after the first failure. The turn of a call by code is not known."""
    known = 0  # model turns that were certainly over before the failure
    for call in transcript.calls:
        if call.turn is not None:
            known = max(known, call.turn + 1)
        if call.name == function:
            return len(transcript.turns) > known
    return False


def _kept(expectation: Expectation | None, transcript: Transcript) -> Expectation | None:
    """Of what one user turn demands, what it forbids."""
    if expectation is None or expectation.forbidden is None:
        return None
    return _ended(Expectation(forbidden=expectation.forbidden, valid_arguments=False), transcript)


def _ended(expectation: Expectation, transcript: Transcript) -> Expectation:
    """Any end that the agent chose is as good as another, unless `on_fault` says which; faults are no such end."""
    if transcript.fault is not None or transcript.stop_reason == "provider_error":
        return expectation
    return ending_as(expectation, transcript.stop_reason)


def _answer(name: str, fault: str, result: Any, *, patched: bool) -> Answer | None:
    """What `name`, which returned `result` when all went well, answers under `fault`; None if that is no fault."""
    if fault == "timeout":
        return Failure("timeout", f"{name} timed out", {}, "builtins:TimeoutError" if patched else None)
    if fault == "error":
        detail = {"status": 500}
        return Failure("http_error", "500 Internal Server Error", detail, "builtins:RuntimeError" if patched else None)
    if fault == "malformed":
        return Static([_GARBAGE] if isinstance(result, str) else _GARBAGE, is_fault=True)
    empty = type(result)() if isinstance(result, (dict, list, str)) else None
    return None if result == empty else Static(empty, is_fault=True)


def _told_as(
    verdict: Verdict, done: tuple[FaultRun, ...], judged: Callable[[Verdict], FaultRun], hung: Verdict
) -> Verdict:
    """The case's verdict where an agent hangs under a fault: the faults that would come later are left out."""
    return _with_faults(verdict, [*done, judged(hung)])


def _with_faults(verdict: Verdict, runs: list[FaultRun]) -> Verdict:
    """The case's verdict with its fault runs: failed if one of them is, else an error if one could not be measured."""
    status = next((known for known in (FAILED, ERROR) if any(run.status == known for run in runs)), PASSED)
    reasons = tuple(
        replace(reason, message=run.head + reason.message, call=None)
        for run in runs
        if run.status == status != PASSED
        for reason in run.reasons
    )
    summary = reasons[0].message.partition("\n")[0] if reasons else verdict.summary
    return replace(verdict, status=status, reasons=reasons, summary=summary, faults=tuple(runs))
