"""Telling from another thread that a case hangs: for agents that block the event loop that should stop them."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident

from evalkit.agents.clock import now
from evalkit.model.verdict import Verdict
from evalkit.pipeline.attempt import Attempt, conclude
from evalkit.pipeline.calling import abandon
from evalkit.pipeline.judging import judge_run, marked

# How long past its deadline an agent that blocks its event loop is waited for: the loop's own limits come first.
PATIENCE_S = 2.0


class Watch:
    """What a case is at: its finished runs, and the run that is going on."""

    def __init__(self) -> None:
        self.runs: list[Verdict] = []
        self._going: Attempt | None = None
        self._until = 0.0
        self._thread = 0  # of the loop that the run is on
        self.told_as: Callable[[Verdict], Verdict] | None = None  # what the verdict of a run cut short comes to
        self.began: float | None = None  # `now` at the start of the first run, after any wait for its turn

    def started(self, going: Attempt) -> None:
        """A run begins; its deadline counts from now."""
        if self.began is None:
            self.began = now()
        self._until = now() + going.plan.in_force.deadline_s + PATIENCE_S
        self._going = going
        self._thread = get_ident()

    def finished(self, verdict: Verdict) -> None:
        """The run that was going on has its verdict."""
        self._going = None
        self.runs.append(verdict)

    def left(self) -> None:
        """Nothing is going on any more."""
        self._going = None

    def held_up(self, seconds: float) -> None:
        """Another case held the loop for so long: neither the deadline nor the agent's own time counts it."""
        going = self._going
        if going is not None and going.plan.agent.is_async:
            going.task.queued.add(seconds)
            if not going.task.waited.is_going_on:
                going.task.waited.add(seconds)

    def seconds_left(self) -> float:
        """How long to wait before looking again."""
        going = self._going
        return max(self._until + going.task.queued.seconds - now(), 0.05) if going is not None else 0.5

    def hung_verdict(self) -> Verdict | None:
        """The verdict of the case if its current run is long past its deadline, else None."""
        going = self._going
        if going is None or now() < self._until + going.task.queued.seconds:
            return None
        from evalkit.pipeline.stuck import calls_of_thread

        abandon(going.plan.agent.name)
        going.time_out(abandoned=True, stuck_in=calls_of_thread(self._thread))
        return self._cut_short(going)

    def torn_verdict(self, error: BaseException) -> Verdict | None:
        """The verdict if `error` tore the event loop down during a run: a SystemExit in a task that the agent made."""
        going = self._going
        if going is None or not isinstance(error, SystemExit):
            return None
        from evalkit.pipeline.faults import fault_of

        going.fault = fault_of(error, going.plan.root)
        return self._cut_short(going)

    def _cut_short(self, going: Attempt) -> Verdict:
        verdict = judge_run(going.plan, conclude(going), going.dispatcher.declarations)
        if self.told_as is not None:
            return self.told_as(verdict)
        repeat = going.plan.case.repeat
        if repeat.runs == 1:
            return marked(going.plan.case, verdict)
        from evalkit.pipeline.repeats import combined

        return marked(going.plan.case, combined([*self.runs, verdict], repeat))
