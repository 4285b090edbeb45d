"""The fault sweep: a case that passed runs again with each function that it called failing, in each way.

What a fault run must keep to is `on_fault`. Where the model's turns were written beforehand, they go on as if nothing
had failed: such a run tells nothing of the model, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.compile import allow_stop_reason, compile_on_fault
from evalkit.checks.expectation import Expectation, get_expectation, judge_conversation
from evalkit.functions.mocks.answers import Answer, FailureAnswer, MockSet, StaticAnswer
from evalkit.model.case import Case, Repeat
from evalkit.model.settings import Settings
from evalkit.model.transcript import FunctionCall, Transcript
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, FaultRun, Reason, Verdict
from evalkit.runner.judge import parse_path
from evalkit.runner.run_case import Watchdog, arun_case
from evalkit.runner.run_state import RunState

FAULTS = ("timeout", "error", "empty", "malformed")
NOT_MEASURABLE = "not_measurable_offline"
_GARBAGE = "<html><body><h1>502 Bad Gateway</h1></body></html>"
_NO_TURN = ("missing_cassette", "stale_cassette")


async def arun_with_faults(
    case: Case, agent: object = None, settings: Settings | None = None, *, watch: Watchdog | None = None
) -> Verdict:
    """Run a case, and if it passes, its fault runs: `Verdict.faults`. A fault run that fails, fails the case."""
    watch = watch or Watchdog()
    inner_watch = _InnerWatchdog(watch)
    verdict = await arun_case(case, agent, settings, watch=inner_watch)
    watch.clear_run()
    if verdict.status != PASSED or inner_watch.attempt is None:
        return verdict
    transcript = next((run.transcript for run in verdict.runs if run.passed), verdict.transcript)
    sweep = _FaultInjection(inner_watch.attempt, transcript, settings or Settings())
    done: list[FaultRun] = []
    for function, fault, answer in sweep.plan_runs():

        def complete(
            hung: Verdict, function: str = function, fault: str = fault, done: tuple[FaultRun, ...] = tuple(done)
        ) -> Verdict:  # where the agent hangs, the faults planned after it are left out
            return _add_faults(verdict, [*done, sweep.judge_run(function, fault, hung)])

        watch.complete_verdict = complete
        faulty = await arun_case(sweep.build_case(function, answer), agent, sweep.settings, watch=_InnerWatchdog(watch))
        watch.clear_run()
        done.append(sweep.judge_run(function, fault, faulty))
    return _add_faults(verdict, done)


class _InnerWatchdog(Watchdog):
    """Watches one part of a sweep, and lets the caller's watch see the run that is going on."""

    def __init__(self, outer: Watchdog) -> None:
        super().__init__()
        self._outer = outer
        self.attempt: RunState | None = None

    def start_run(self, run: RunState) -> None:
        super().start_run(run)
        self._outer.start_run(run)
        self.attempt = run

    def clear_run(self) -> None:
        super().clear_run()
        self._outer.clear_run()

    def finish_run(self, verdict: Verdict) -> None:
        super().finish_run(verdict)
        if self._outer.complete_verdict is None:
            self._outer.finish_run(verdict)
        else:
            self._outer.clear_run()


class _FaultInjection(Struct, frozen=True):
    """The fault runs of a case, made from its last run and the transcript of one that passed."""

    passing: RunState
    transcript: Transcript
    base_settings: Settings

    @property
    def settings(self) -> Settings:
        """Nothing is recorded or repeated, and mocks may go unused: an agent that gives up early does right."""
        return replace(self.base_settings, record=None, strict_mocks=None, repeat=None)

    def plan_runs(self) -> Iterator[tuple[str, str, Answer]]:
        """Plan a run for every function that answered a call, in the order of first calls, and every way to fail."""
        first_calls: dict[str, FunctionCall] = {}
        for call in self.transcript.calls:
            if call.outcome == "ok":
                first_calls.setdefault(call.name, call)
        for name, first in first_calls.items():
            patched = any(
                declaration.name == name and declaration.patch for declaration in self.passing.dispatcher.declarations
            )
            for fault in FAULTS:
                answer = _make_answer(name, fault, first.result, patched=patched)
                if answer is not None:
                    yield name, fault, answer

    def build_case(self, function: str, answer: Answer) -> Case:
        """Build the case in which `function` fails, without expectations."""
        plan = self.passing.plan
        aliases = {
            alias: declaration.name
            for declaration in self.passing.dispatcher.declarations
            for alias in declaration.aliases
        }
        other_mocks = {name: mock for name, mock in plan.mocks.answers.items() if aliases.get(name, name) != function}
        return replace(
            plan.case,
            mocks=MockSet({**other_mocks, function: answer}),
            expectation=Expectation(valid_arguments=False),
            turns=tuple(replace(turn, expectation=None) for turn in plan.case.turns),
            repeat=Repeat(),
            settings=replace(plan.case.settings, strict_mocks=False),
        )

    def judge_run(self, function: str, fault: str, verdict: Verdict) -> FaultRun:
        """Judge the run under that fault."""
        transcript = verdict.transcript
        why = self._explain_unmeasurable(function, transcript)
        if why is not None:
            reason = Reason(code=NOT_MEASURABLE, message=f"not measurable offline: {why}")
            return FaultRun(function=function, fault=fault, status=NOT_RUN, reasons=(reason,))
        # Demanded are `on_fault`, the case's prohibitions where `on_fault` has none, and a defined end.
        case = self.passing.plan.case
        declared = {declaration.name: declaration for declaration in case.functions}
        on_fault = compile_on_fault(case.merged.get("on_fault"), function, declarations=declared, input=case.input)
        usual = self.passing.plan.expectation
        forbidden = on_fault.forbidden or (usual.forbidden if usual is not None else None)
        demands = _add_ending(replace(on_fault, forbidden=forbidden), transcript)
        turns: list[Expectation | None] = []  # of a user turn's demands, those that forbid
        for turn in case.turns:
            expectation = get_expectation(turn)
            kept = expectation.forbidden if expectation is not None else None
            prohibitions = Expectation(forbidden=kept, valid_arguments=False)
            turns.append(None if kept is None else _add_ending(prohibitions, transcript))
        judgement = judge_conversation(transcript, demands, turns, input=case.input)
        reasons = tuple(
            replace(reason, location=str(case.locate(parse_path(reason.place)))) if reason.place else reason
            for reason in judgement.reasons
        )
        return FaultRun(function=function, fault=fault, status=judgement.status, reasons=reasons, transcript=transcript)

    def _explain_unmeasurable(self, function: str, transcript: Transcript) -> str | None:
        """Explain why the run proves nothing about the agent; None if it does."""
        fault = transcript.fault
        if fault is not None and fault.code == "mock_error":
            return f"another mock needs what {function} returns ({fault.message})"
        if self.base_settings.model is not None:
            return None
        if fault is not None and not fault.measured and fault.code in _NO_TURN:
            return "the cassette has no turn for what the model is asked now"
        # The same turns did not make the agent raise before: an exception is its own, whatever the model would say.
        raised = fault is not None and fault.code == "agent_raised"
        if transcript.cassette == "recorded" or raised:
            return None
        finished_turns = 0  # model turns that were certainly over before the first failure; those of code are not known
        for call in transcript.calls:
            if call.turn is not None:
                finished_turns = max(finished_turns, call.turn + 1)
            if call.name == function:
                break
        else:
            return None
        if len(transcript.turns) > finished_turns:  # the model may have been asked afterwards
            return "the model's turns were written beforehand, and go on as if nothing had failed"
        return None


def _add_ending(expectation: Expectation, transcript: Transcript) -> Expectation:
    """Accept any end that the agent chose, unless `on_fault` demands one. A fault is not the agent's choice."""
    if transcript.fault is not None or transcript.stop_reason == "provider_error":
        return expectation
    return allow_stop_reason(expectation, transcript.stop_reason)


def _make_answer(name: str, fault: str, result: object, *, patched: bool) -> Answer | None:
    """Make the answer of `name` under `fault`, given its usual `result`; None if the fault makes no difference."""
    if fault == "timeout":
        return FailureAnswer("timeout", f"{name} timed out", {}, "builtins:TimeoutError" if patched else None)
    if fault == "error":
        detail = {"status": 500}
        return FailureAnswer(
            "http_error", "500 Internal Server Error", detail, "builtins:RuntimeError" if patched else None
        )
    if fault == "malformed":
        return StaticAnswer([_GARBAGE] if isinstance(result, str) else _GARBAGE, is_fault=True)
    empty = type(result)() if isinstance(result, (dict, list, str)) else None
    return None if result == empty else StaticAnswer(empty, is_fault=True)


def _add_faults(verdict: Verdict, runs: list[FaultRun]) -> Verdict:
    """Add its fault runs to a case's verdict: failed if one of them is, else an error if one was not measured."""
    status = next((severity for severity in (FAILED, ERROR) if any(run.status == severity for run in runs)), PASSED)
    reasons = tuple(
        replace(reason, message=run.head + reason.message, call=None)
        for run in runs
        if run.status == status != PASSED
        for reason in run.reasons
    )
    summary = reasons[0].message.partition("\n")[0] if reasons else verdict.summary
    return replace(verdict, status=status, reasons=reasons, summary=summary, faults=tuple(runs))
