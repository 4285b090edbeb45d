"""Running cases for a caller that takes their verdicts in order, one by one, while others run ahead.

All cases run on one event loop in the background. With a concurrency of 1 a case starts when it is asked for; with
more, so many run at a time, of those that were announced. Sync agents wait for each other either way, unless they are
registered with ``threads=N``; their deadline counts from when they run.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain, islice

from evalkit.agents.clock import now
from evalkit.errors import EvalkitError
from evalkit.execution.flight import RunRequest, ScheduledRun
from evalkit.execution.loop import BackgroundLoop
from evalkit.model.case import Case
from evalkit.model.settings import Settings
from evalkit.model.verdict import ERROR, Reason, Verdict
from evalkit.pipeline.judging import apply_quarantine
from evalkit.pipeline.running import arun_case

_LONGEST_NAP_S = 0.1  # between looks at whether an agent blocks the loop
_SHORTEST_NAP_S = 0.02  # while one does
_CANCELLED_MESSAGE = (
    "the case was cancelled by an agent on the same event loop, this one's or one that overlaps with it; "
    "asyncio.all_tasks() has the tasks of other cases too. --evalkit-concurrency 1 shows whose it is"
)
RunCase = Callable[..., Awaitable[Verdict]]
_START_GROUP = 8  # flights that are started at once: waking the loop's thread for each would cost more than it gains
_AHEAD_FACTOR = 4  # times the concurrency: so far ahead, so that a slow case does not hold up the others


class Executor:
    """Gives each case a verdict, whatever happens. Used from one thread."""

    def __init__(self, settings: Settings, concurrency: int = 1, run_case: RunCase | None = None) -> None:
        """`run` is what a case goes through, `arun_case` by default: it has its parameters, and may do more."""
        self._settings = settings
        self._run_case = run_case or arun_case
        self._concurrency = concurrency
        self._loop: BackgroundLoop | None = None
        self._runs: dict[str, ScheduledRun] = {}  # by case id: started and not taken yet
        self._last_look = 0.0  # `now` at the last look at the loop
        self.seconds = 0.0  # how long the case took whose verdict was given last, without its wait for its turn

    @property
    def window(self) -> int:
        """How many jobs ahead of the one that is asked for are worth announcing."""
        return self._concurrency * _AHEAD_FACTOR if self._concurrency > 1 else 0

    def run(self, request: RunRequest, ahead: Iterable[RunRequest] = ()) -> Verdict:
        """The verdict of `job`. Jobs `ahead`, in the order in which they will be asked for, may start meanwhile.

        KeyboardInterrupt passes through, and so does what a caller's own signal handler raises; the case is then
        cancelled.
        """
        self._launch(chain((request,), ahead))
        try:
            self._wait(request.case.id)
        except BaseException:
            self._cancel(self._runs[request.case.id])
            raise
        scheduled_run = self._runs.pop(request.case.id)
        self.seconds = scheduled_run.seconds
        if scheduled_run.error is not None:
            if isinstance(scheduled_run.error, CancelledError):
                return build_error_verdict(request.case, "not_measured", _CANCELLED_MESSAGE)
            if not isinstance(scheduled_run.error, Exception):
                raise scheduled_run.error
            return build_defect_verdict(request.case, scheduled_run.error)
        assert scheduled_run.verdict is not None
        return scheduled_run.verdict

    def interrupt(self) -> None:
        """From another thread: let `run` end with a KeyboardInterrupt, soon."""
        if self._loop is not None:
            self._loop.interrupt = KeyboardInterrupt()

    def cancel_pending(self) -> None:
        """Stop what was started ahead and will not be asked for."""
        for scheduled_run in list(self._runs.values()):
            self._cancel(scheduled_run)

    def close(self) -> None:
        """End the loop. The executor starts a new one if it is used again."""
        self.cancel_pending()
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _launch(self, requests: Iterable[RunRequest]) -> None:
        """A handful at a time: the first wait for their models while the caller still loads the others."""
        new = (
            ScheduledRun(job) if job.context is None else ScheduledRun(job, job.context)
            for job in requests
            if self._is_new(job)
        )
        while group := list(islice(new, _START_GROUP)):
            self._start(group)

    def _is_new(self, request: RunRequest) -> bool:
        return request.case.id not in self._runs

    def _start(self, runs: list[ScheduledRun]) -> None:
        self._runs.update((flight.request.case.id, flight) for flight in runs)
        if self._loop is None:
            self._loop = BackgroundLoop(self._concurrency)
        self._loop.start(runs, self._run_scheduled)

    async def _run_scheduled(self, scheduled_run: ScheduledRun) -> None:
        verdict, error = None, None
        try:
            verdict = await self._run_case(
                scheduled_run.request.case, scheduled_run.request.agent, self._settings, watch=scheduled_run.watch
            )
        except BaseException as raised:
            error = raised
        began = scheduled_run.watch.start_time
        scheduled_run.seconds = 0.0 if began is None else now() - began
        scheduled_run.finish(verdict, error)

    def _wait(self, case_id: str) -> None:
        nap = _SHORTEST_NAP_S
        self._last_look = now()
        # The flight is looked up anew each time: it may have been started again on another loop.
        while not (scheduled_run := self._runs[case_id]).done.wait(min(scheduled_run.watch.get_seconds_left(), nap)):
            loop = self._loop
            assert loop is not None
            if loop.interrupt is not None:
                raise loop.interrupt
            nap = _SHORTEST_NAP_S if self._is_blocked(loop) else _LONGEST_NAP_S
            self._replace_blocked_loop(loop)

    def _is_blocked(self, loop: BackgroundLoop) -> bool:
        """Whether an agent holds the loop just now. The others' time stands still, as if they ran alone: looked at
        often enough, the loop is found with each agent for the share of the time that it takes."""
        at = now()
        since, self._last_look = at - self._last_look, at
        holder = loop.find_blocking_run()
        if holder is not None:
            for flight in list(self._runs.values()):
                if flight is not holder:
                    flight.watch.add_delay(since)
        return holder is not None

    def _replace_blocked_loop(self, loop: BackgroundLoop) -> None:
        """If an agent has blocked the loop for longer than its deadline, go on without both: the others start again."""
        culprit = loop.find_blocking_run()
        verdict = None if culprit is None else culprit.watch.judge_hung_run()
        if culprit is not None and verdict is not None:
            culprit.finish(verdict)
            self._loop = None
            self._start([flight.copy() for flight in self._runs.values() if not flight.done.is_set()])

    def move_error_to_blocker(self, request: RunRequest, error: BaseException) -> bool:
        """`error` has ended the wait for the verdict of `job`, because it took too long. If another agent blocks the
        loop, it is that one's error, which `run` raises when it is asked for its case; the others are to be announced
        once more. Gives whether it is so."""
        culprit = None if self._loop is None else self._loop.find_blocking_run()
        if self._loop is None or culprit is None or not self._loop.is_stuck():
            return False
        culprit.finish(None, error)
        self._loop = None
        self._runs = {case_id: flight for case_id, flight in self._runs.items() if flight.done.is_set()}
        return culprit.request.case.id != request.case.id

    def _cancel(self, scheduled_run: ScheduledRun) -> None:
        self._runs.pop(scheduled_run.request.case.id, None)
        if self._loop is not None and not scheduled_run.done.is_set():
            self._loop.cancel(scheduled_run)


def build_defect_verdict(case: Case, error: BaseException) -> Verdict:
    """The verdict of a case on which evalkit itself failed: not measured, and told with the place of the defect.

    What was used wrongly is no defect: an EvalkitError says itself what to do.
    """
    if isinstance(error, EvalkitError):
        return build_error_verdict(case, error.code, str(error))
    import traceback

    place = "".join(traceback.format_exception(error)[-3:]).strip()
    return build_error_verdict(case, "not_measured", f"evalkit itself failed on this case; please report it:\n{place}")


def build_error_verdict(case: Case, code: str, message: str) -> Verdict:
    """The verdict of a case that could not be measured, through no fault of its own."""
    verdict = Verdict(
        case_id=case.id,
        status=ERROR,
        reasons=(Reason(code=code, message=message),),
        summary=message.partition("\n")[0],
        description=case.description,
        category=case.category,
        tags=case.tags,
        must_pass=case.must_pass,
        path=case.path.as_posix() if case.path else "",
        case=case.merged,
    )
    return apply_quarantine(case, verdict)
