"""The one road through the core: a case in, a verdict out."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from evalkit.agents.clock import keep_time
from evalkit.agents.models import RECORD_MODES, aclose_shared, check_model
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
from evalkit.pipeline.attempt import Attempt, begin, conclude, converse
from evalkit.pipeline.calling import GRACE_S, slot
from evalkit.pipeline.hosting import closing_s, torn_down
from evalkit.pipeline.judging import error_verdict, judge_run, marked, not_run_verdict, quarantine
from evalkit.pipeline.plan import Plan, plan_case
from evalkit.pipeline.pool import LoopPool
from evalkit.pipeline.threads import in_daemon_thread
from evalkit.pipeline.watch import Watch

OUTDATED = (MissingCassetteError, StaleCassetteError)


async def arun_case(
    case: Case, agent: Any = None, settings: Settings | None = None, *, watch: Watch | None = None
) -> Verdict:
    """Run `case` and judge what the agent did.

    `agent` overrides the case's own: a callable ``(task) -> str | Reply``, sync or async, a registered name,
    ``module:attribute`` or an instruction file. Whatever the agent does ends in a verdict; only KeyboardInterrupt and
    the caller's own cancellation pass through. Raises UsageError for arguments that make no sense. `watch` is told how
    far the case is, for a caller in another thread.
    """
    return await _arun(case, agent, _checked(case, settings), watch or Watch())


def run_case(case: Case, agent: Any = None, settings: Settings | None = None) -> Verdict:
    """`arun_case` for code that is not async. Works inside a running event loop too.

    The case runs on an event loop in a thread of its own, so that even an agent that blocks its loop ends with its
    deadline (it is left behind, still running).
    """
    settings = _checked(case, settings)
    return _Background(case, agent, settings).verdict()


def _checked(case: Case, settings: Settings | None) -> Settings:
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


async def _arun(case: Case, agent: Any, settings: Settings, watch: Watch) -> Verdict:
    if case.skip is not None and quarantine(case)[0]:
        return _skipped(case)
    try:
        plan = plan_case(case, agent, settings)
    except (MeasurementError, SpecError) as error:
        return marked(case, error_verdict(case, error))
    return marked(case, await _arun_repeats(plan, watch))


async def _arun_repeats(plan: Plan, watch: Watch) -> Verdict:
    """Run until the outcome is decided."""
    repeat = plan.case.repeat
    if repeat.runs > 1:
        from evalkit.pipeline.repeats import combined, is_decided

    for run in range(repeat.runs):
        try:
            _check_budget(plan.settings)
        except BudgetSpentError as error:
            watch.finished(not_run_verdict(plan.case, error))
            break
        going = await _attempted(plan, run, watch)
        if plan.settings.record == "stale" and isinstance(going.task.fault, OUTDATED):
            going = await _attempted(_recording_all(plan), run, watch)
        watch.finished(await _judged(plan, run, going, watch))
        if repeat.runs > 1 and is_decided(watch.runs, repeat):
            break
    return combined(watch.runs, repeat) if repeat.runs > 1 else watch.runs[0]


async def _judged(plan: Plan, run: int, going: Attempt, watch: Watch) -> Verdict:
    transcript, declared = conclude(going), going.dispatcher.declarations
    if not plan.is_graded:
        return judge_run(plan, transcript, declared)
    from evalkit.pipeline.grading import judge_graded

    watch.left()  # the agent has ended: it does not hang if its grader takes long
    return await judge_graded(plan, run, transcript, declared)


def _check_budget(settings: Settings) -> None:
    """Nothing of prices and accounts is imported for a run without a budget."""
    if settings.max_cost_usd is not None:
        from evalkit.agents.live import check_budget

        check_budget(settings)


async def _attempted(plan: Plan, run: int, watch: Watch) -> Attempt:
    async with slot(plan.agent):
        going = begin(plan, run)
        watch.started(going)
        await converse(going)
    if going.fault is None and going.task.fault is None:
        _save_recordings(going)
    return going


def _save_recordings(going: Attempt) -> None:
    for recorder in (going.task.provider, going.task.tape):
        save = getattr(recorder, "save", None)  # a recording provider's, and a tape's
        try:
            if save is not None:
                save()
        except OSError as error:
            going.task.note_fault(MissingCassetteError(f"the recording can't be written: {error}"))


def _recording_all(plan: Plan) -> Plan:
    return replace(plan, settings=replace(plan.settings, record="all"))


def _skipped(case: Case) -> Verdict:
    reason = Reason(code="skipped", message=case.skip or "skipped", place="skip", location=str(case.locate(("skip",))))
    return marked(
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
        self._watch = Watch()
        self._done = threading.Event()
        self._verdict: Verdict | None = None
        self._error: BaseException | None = None
        self._context = contextvars.copy_context()
        self._closed = threading.Event()
        self._task: asyncio.Task[None] | None = None

    def verdict(self) -> Verdict:
        in_daemon_thread(self._work)
        try:
            while not self._done.wait(timeout=self._watch.seconds_left()):
                hung = self._watch.hung_verdict()
                if hung is not None:
                    return hung
        except BaseException:  # Ctrl-C
            self._cancel()
            raise
        self._closed.wait(timeout=GRACE_S)
        if self._error is not None:
            torn = self._watch.torn_verdict(self._error)
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
            self._closed.wait(timeout=GRACE_S + closing_s())

    def _work(self) -> None:
        try:
            self._context.run(asyncio.run, self._run())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()
            self._closed.set()

    async def _run(self) -> None:
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(LoopPool(1))
        keep_time(loop)
        try:
            self._verdict = await _arun(*self._arguments, self._watch)
        except BaseException as error:
            self._error = error
        await torn_down()
        await aclose_shared()
        # The verdict does not wait for the loop's clean-up, which joins threads that the agent may have left hanging.
        self._done.set()
