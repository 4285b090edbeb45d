"""The one road through the core: a case in, a verdict out."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Any

from msgspec.structs import replace

from evalkit.agents.clock import keep_time, now
from evalkit.agents.model_choice import RECORD_MODES, aclose_shared, check_model
from evalkit.errors import (
    BudgetSpentError,
    MeasurementError,
    MissingCassetteError,
    SpecError,
    StaleCassetteError,
    UsageError,
)
from evalkit.model.case import Case
from evalkit.model.settings import Settings
from evalkit.model.transcript import Transcript
from evalkit.model.verdict import NOT_RUN, Reason, Verdict
from evalkit.runner.agent_call import GRACE_S, get_slot, register_abandoned_agent
from evalkit.runner.agent_threads import LoopPool, get_closing_timeout, run_in_daemon_thread, wait_for_teardown
from evalkit.runner.judge import (
    apply_quarantine,
    build_error_verdict,
    build_not_run_verdict,
    check_quarantine,
    judge_run,
)
from evalkit.runner.run_state import CasePlan, RunState, build_transcript, plan_case, prepare_run, run_conversation

OUTDATED = (MissingCassetteError, StaleCassetteError)


async def arun_case(
    case: Case, agent: Any = None, settings: Settings | None = None, *, watch: Watchdog | None = None
) -> Verdict:
    """Run `case` and judge what the agent did.

    `agent` overrides the case's own: a callable ``(task) -> str | Reply``, sync or async, a registered name,
    ``module:attribute`` or an instruction file. Whatever the agent does ends in a verdict; only KeyboardInterrupt and
    the caller's own cancellation pass through. Raises UsageError for arguments that make no sense. `watch` is told how
    far the case is, for a caller in another thread.
    """
    return await _plan_and_run(case, agent, _check_arguments(case, settings), watch or Watchdog())


def run_case(case: Case, agent: Any = None, settings: Settings | None = None) -> Verdict:
    """`arun_case` for code that is not async. Works inside a running event loop too.

    The case runs on an event loop in a thread of its own, so that even an agent that blocks its loop ends with its
    deadline (it is left behind, still running).
    """
    settings = _check_arguments(case, settings)
    return _Background(case, agent, settings).wait_for_verdict()


def _check_arguments(case: Case, settings: Settings | None) -> Settings:
    if not isinstance(case, Case):
        raise UsageError(f"run_case needs a Case, as evalkit.load_case(path) gives, got {type(case).__name__}")
    if settings is not None and not isinstance(settings, Settings):
        raise UsageError(f"settings= is an evalkit.Settings, got {type(settings).__name__}")
    if settings is not None and settings.record not in (None, *RECORD_MODES):
        raise UsageError(f"record= is one of {', '.join(RECORD_MODES)}, got {settings.record!r}")
    if settings is not None:
        check_model(settings.model)
        check_model(settings.grader, "the grader: ")
    return settings or Settings()


async def _plan_and_run(case: Case, agent: Any, settings: Settings, watch: Watchdog) -> Verdict:
    if case.skip is not None and check_quarantine(case)[0]:
        return _build_skipped_verdict(case)
    try:
        plan = plan_case(case, agent, settings)
    except (MeasurementError, SpecError) as error:
        return apply_quarantine(case, build_error_verdict(case, error))
    return apply_quarantine(case, await _run_repeats(plan, watch))


async def _run_repeats(plan: CasePlan, watch: Watchdog) -> Verdict:
    """Run until the outcome is decided."""
    repeat = plan.case.repeat
    if repeat.runs > 1:
        from evalkit.runner.judge import combine_verdicts, is_decided

    for number in range(repeat.runs):
        try:
            _check_budget(plan.settings)
        except BudgetSpentError as error:
            watch.finish_run(build_not_run_verdict(plan.case, error))
            break
        run = await _run_attempt(plan, number, watch)
        if plan.settings.record == "stale" and isinstance(run.task.fault, OUTDATED):
            run = await _run_attempt(_with_record_all(plan), number, watch)
        watch.finish_run(await _judge_run(plan, number, run, watch))
        if repeat.runs > 1 and is_decided(watch.runs, repeat):
            break
    return combine_verdicts(watch.runs, repeat) if repeat.runs > 1 else watch.runs[0]


async def _judge_run(plan: CasePlan, number: int, run: RunState, watch: Watchdog) -> Verdict:
    transcript, declared = build_transcript(run), run.dispatcher.declarations
    if not plan.is_graded:
        return judge_run(plan, transcript, declared)
    from evalkit.runner.grading import judge_graded

    watch.clear_run()  # the agent has ended: it does not hang if its grader takes long
    return await judge_graded(plan, number, transcript, declared)


def _check_budget(settings: Settings) -> None:
    """Nothing of prices and accounts is imported for a run without a budget."""
    if settings.max_cost_usd is not None:
        from evalkit.providers.budget import check_budget

        check_budget(settings)


async def _run_attempt(plan: CasePlan, number: int, watch: Watchdog) -> RunState:
    async with get_slot(plan.agent):
        run = prepare_run(plan, number)
        watch.start_run(run)
        await run_conversation(run)
    if run.fault is None and run.task.fault is None:
        _save_recordings(run)
    return run


def _save_recordings(run: RunState) -> None:
    for recorder in (run.task.provider, run.task.http_player):
        save = getattr(recorder, "save", None)  # a recording provider's, and a tape's
        try:
            if save is not None:
                save()
        except OSError as error:
            run.task.record_fault(MissingCassetteError(f"the recording can't be written: {error}"))


def _with_record_all(plan: CasePlan) -> CasePlan:
    return replace(plan, settings=replace(plan.settings, record="all"))


def _build_skipped_verdict(case: Case) -> Verdict:
    reason = Reason(code="skipped", message=case.skip or "skipped", place="skip", location=str(case.locate(("skip",))))
    return apply_quarantine(
        case,
        Verdict(
            case_id=case.id,
            status=NOT_RUN,
            reasons=(reason,),
            summary=f"skipped: {case.skip}",
            transcript=Transcript(input=dict(case.input), stop_reason="skipped"),
            description=case.description,
            category=case.category,
            tags=case.tags,
            must_pass=case.must_pass,
            path=case.path.as_posix() if case.path else "",
            case=case.merged,
        ),
    )


class _Background:
    """One case on an event loop in a daemon thread, watched from the caller's thread."""

    def __init__(self, case: Case, agent: Any, settings: Settings) -> None:
        self._arguments = (case, agent, settings)
        self._watch = Watchdog()
        self._done = threading.Event()
        self._verdict: Verdict | None = None
        self._error: BaseException | None = None
        self._context = contextvars.copy_context()
        self._closed = threading.Event()
        self._task: asyncio.Task[None] | None = None

    def wait_for_verdict(self) -> Verdict:
        run_in_daemon_thread(self._run_loop)
        try:
            while not self._done.wait(timeout=self._watch.get_seconds_left()):
                hung = self._watch.judge_hung_run()
                if hung is not None:
                    return hung
        except BaseException:  # Ctrl-C
            self._cancel()
            raise
        self._closed.wait(timeout=GRACE_S)
        if self._error is not None:
            torn = self._watch.judge_torn_run(self._error)
            if torn is None:
                raise self._error
            return torn
        assert self._verdict is not None
        return self._verdict

    def _cancel(self) -> None:
        """Let the agent end, and what it has set up be torn down."""
        if self._task is not None:
            with suppress(RuntimeError):
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)
            self._closed.wait(timeout=GRACE_S + get_closing_timeout())

    def _run_loop(self) -> None:
        try:
            self._context.run(asyncio.run, self._run_on_loop())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()
            self._closed.set()

    async def _run_on_loop(self) -> None:
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(LoopPool(1))
        keep_time(loop)
        try:
            self._verdict = await _plan_and_run(*self._arguments, self._watch)
        except BaseException as error:
            self._error = error
        await wait_for_teardown()
        await aclose_shared()
        # The verdict does not wait for the loop's clean-up, which joins threads that the agent may have left hanging.
        self._done.set()


# Telling from another thread that a case hangs: for agents that block the event loop that should stop them.

# How long past its deadline an agent that blocks its event loop is waited for: the loop's own limits come first.
PATIENCE_S = 2.0


class Watchdog:
    """What a case is at: its finished runs, and the run that is going on."""

    def __init__(self) -> None:
        self.runs: list[Verdict] = []
        self._run: RunState | None = None
        self._deadline = 0.0
        self._thread = 0  # of the loop that the run is on
        self.complete_verdict: Callable[[Verdict], Verdict] | None = (
            None  # what the verdict of a run cut short comes to
        )
        self.start_time: float | None = None  # `now` at the start of the first run, after any wait for its turn

    def start_run(self, run: RunState) -> None:
        """A run begins; its deadline counts from now."""
        if self.start_time is None:
            self.start_time = now()
        self._deadline = now() + run.plan.task_settings.deadline_s + PATIENCE_S
        self._run = run
        self._thread = get_ident()

    def finish_run(self, verdict: Verdict) -> None:
        """The run that was going on has its verdict."""
        self._run = None
        self.runs.append(verdict)

    def clear_run(self) -> None:
        """Nothing is going on any more."""
        self._run = None

    def add_delay(self, seconds: float) -> None:
        """Another case held the loop for so long: neither the deadline nor the agent's own time counts it."""
        run = self._run
        if run is not None and run.plan.agent.is_async:
            run.task.queueing_time.add(seconds)
            if not run.task.waiting_time.is_running:
                run.task.waiting_time.add(seconds)

    def get_seconds_left(self) -> float:
        """How long to wait before looking again."""
        run = self._run
        return max(self._deadline + run.task.queueing_time.seconds - now(), 0.05) if run is not None else 0.5

    def judge_hung_run(self) -> Verdict | None:
        """The verdict of the case if its current run is long past its deadline, else None."""
        run = self._run
        if run is None or now() < self._deadline + run.task.queueing_time.seconds:
            return None
        from evalkit.runner.agent_call import list_thread_calls

        register_abandoned_agent(run.plan.agent.name)
        run.record_timeout(abandoned=True, stuck_in=list_thread_calls(self._thread))
        return self._judge_cut_run(run)

    def judge_torn_run(self, error: BaseException) -> Verdict | None:
        """The verdict if `error` tore the event loop down during a run: a SystemExit in a task that the agent made."""
        run = self._run
        if run is None or not isinstance(error, SystemExit):
            return None
        from evalkit.runner.faults import build_fault

        run.fault = build_fault(error, run.plan.root)
        return self._judge_cut_run(run)

    def _judge_cut_run(self, run: RunState) -> Verdict:
        verdict = judge_run(run.plan, build_transcript(run), run.dispatcher.declarations)
        if self.complete_verdict is not None:
            return self.complete_verdict(verdict)
        repeat = run.plan.case.repeat
        if repeat.runs == 1:
            return apply_quarantine(run.plan.case, verdict)
        from evalkit.runner.judge import combine_verdicts

        return apply_quarantine(run.plan.case, combine_verdicts([*self.runs, verdict], repeat))
