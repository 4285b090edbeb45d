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
from evalkit.execution.flight import Flight, Job
from evalkit.execution.loop import BackgroundLoop
from evalkit.model.case import Case
from evalkit.model.settings import Settings
from evalkit.model.verdict import ERROR, Reason, Verdict
from evalkit.pipeline.judging import marked
from evalkit.pipeline.running import arun_case

_LONGEST_NAP_S = 0.1  # between looks at whether an agent blocks the loop
_SHORTEST_NAP_S = 0.02  # while one does
_CANCELLED = (
    "the case was cancelled by an agent on the same event loop, this one's or one that overlaps with it; "
    "asyncio.all_tasks() has the tasks of other cases too. --evalkit-concurrency 1 shows whose it is"
)
RunsCase = Callable[..., Awaitable[Verdict]]
_HANDFUL = 8  # flights that are started at once: waking the loop's thread for each would cost more than it gains
_AHEAD = 4  # times the concurrency: so far ahead, so that a slow case does not hold up the others


class Executor:
    """Gives each case a verdict, whatever happens. Used from one thread."""

    def __init__(self, settings: Settings, concurrency: int = 1, run: RunsCase | None = None) -> None:
        """`run` is what a case goes through, `arun_case` by default: it has its parameters, and may do more."""
        self._settings = settings
        self._run = run or arun_case
        self._concurrency = concurrency
        self._loop: BackgroundLoop | None = None
        self._flights: dict[str, Flight] = {}  # by case id: started and not taken yet
        self._looked = 0.0  # `now` at the last look at the loop
        self.seconds = 0.0  # how long the case took whose verdict was given last, without its wait for its turn

    @property
    def window(self) -> int:
        """How many jobs ahead of the one that is asked for are worth announcing."""
        return self._concurrency * _AHEAD if self._concurrency > 1 else 0

    def run(self, job: Job, ahead: Iterable[Job] = ()) -> Verdict:
        """The verdict of `job`. Jobs `ahead`, in the order in which they will be asked for, may start meanwhile.

        KeyboardInterrupt passes through, and so does what a caller's own signal handler raises; the case is then
        cancelled.
        """
        self._launch(chain((job,), ahead))
        try:
            self._wait(job.case.id)
        except BaseException:
            self._cancel(self._flights[job.case.id])
            raise
        flight = self._flights.pop(job.case.id)
        self.seconds = flight.seconds
        if flight.error is not None:
            if isinstance(flight.error, CancelledError):
                return broken(job.case, "not_measured", _CANCELLED)
            if not isinstance(flight.error, Exception):
                raise flight.error
            return defect(job.case, flight.error)
        assert flight.verdict is not None
        return flight.verdict

    def interrupt(self) -> None:
        """From another thread: let `run` end with a KeyboardInterrupt, soon."""
        if self._loop is not None:
            self._loop.interrupt = KeyboardInterrupt()

    def settle(self) -> None:
        """Stop what was started ahead and will not be asked for."""
        for flight in list(self._flights.values()):
            self._cancel(flight)

    def close(self) -> None:
        """End the loop. The executor starts a new one if it is used again."""
        self.settle()
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _launch(self, jobs: Iterable[Job]) -> None:
        """A handful at a time: the first wait for their models while the caller still loads the others."""
        new = (Flight(job) if job.context is None else Flight(job, job.context) for job in jobs if self._is_new(job))
        while handful := list(islice(new, _HANDFUL)):
            self._start(handful)

    def _is_new(self, job: Job) -> bool:
        return job.case.id not in self._flights

    def _start(self, flights: list[Flight]) -> None:
        self._flights.update((flight.job.case.id, flight) for flight in flights)
        if self._loop is None:
            self._loop = BackgroundLoop(self._concurrency)
        self._loop.start(flights, self._fly)

    async def _fly(self, flight: Flight) -> None:
        verdict, error = None, None
        try:
            verdict = await self._run(flight.job.case, flight.job.agent, self._settings, watch=flight.watch)
        except BaseException as raised:
            error = raised
        began = flight.watch.began
        flight.seconds = 0.0 if began is None else now() - began
        flight.finish(verdict, error)

    def _wait(self, case_id: str) -> None:
        nap = _SHORTEST_NAP_S
        self._looked = now()
        # The flight is looked up anew each time: it may have been started again on another loop.
        while not (flight := self._flights[case_id]).done.wait(min(flight.watch.seconds_left(), nap)):
            loop = self._loop
            assert loop is not None
            if loop.interrupt is not None:
                raise loop.interrupt
            nap = _SHORTEST_NAP_S if self._is_held(loop) else _LONGEST_NAP_S
            self._free(loop)

    def _is_held(self, loop: BackgroundLoop) -> bool:
        """Whether an agent holds the loop just now. The others' time stands still, as if they ran alone: looked at
        often enough, the loop is found with each agent for the share of the time that it takes."""
        at = now()
        since, self._looked = at - self._looked, at
        holder = loop.blocked_by()
        if holder is not None:
            for flight in list(self._flights.values()):
                if flight is not holder:
                    flight.watch.held_up(since)
        return holder is not None

    def _free(self, loop: BackgroundLoop) -> None:
        """If an agent has blocked the loop for longer than its deadline, go on without both: the others start again."""
        culprit = loop.blocked_by()
        verdict = None if culprit is None else culprit.watch.hung_verdict()
        if culprit is not None and verdict is not None:
            culprit.finish(verdict)
            self._loop = None
            self._start([flight.again() for flight in self._flights.values() if not flight.done.is_set()])

    def hand_over(self, job: Job, error: BaseException) -> bool:
        """`error` has ended the wait for the verdict of `job`, because it took too long. If another agent blocks the
        loop, it is that one's error, which `run` raises when it is asked for its case; the others are to be announced
        once more. Gives whether it is so."""
        culprit = None if self._loop is None else self._loop.blocked_by()
        if self._loop is None or culprit is None or not self._loop.is_stuck():
            return False
        culprit.finish(None, error)
        self._loop = None
        self._flights = {case_id: flight for case_id, flight in self._flights.items() if flight.done.is_set()}
        return culprit.job.case.id != job.case.id

    def _cancel(self, flight: Flight) -> None:
        self._flights.pop(flight.job.case.id, None)
        if self._loop is not None and not flight.done.is_set():
            self._loop.cancel(flight)


def defect(case: Case, error: BaseException) -> Verdict:
    """The verdict of a case on which evalkit itself failed: not measured, and told with the place of the defect.

    What was used wrongly is no defect: an EvalkitError says itself what to do.
    """
    if isinstance(error, EvalkitError):
        return broken(case, error.code, str(error))
    import traceback

    where = "".join(traceback.format_exception(error)[-3:]).strip()
    return broken(case, "not_measured", f"evalkit itself failed on this case; please report it:\n{where}")


def broken(case: Case, code: str, message: str) -> Verdict:
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
    return marked(case, verdict)
