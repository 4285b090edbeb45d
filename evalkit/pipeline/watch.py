"""Telling from another thread that a case hangs: for agents that block the event loop that should stop them."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident

from evalkit.agents.clock import now
from evalkit.model.verdict import Verdict
from evalkit.pipeline.attempt import RunState, build_transcript
from evalkit.pipeline.calling import register_abandoned_agent
from evalkit.pipeline.judging import apply_quarantine, judge_run

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
        from evalkit.pipeline.stuck import list_thread_calls

        register_abandoned_agent(run.plan.agent.name)
        run.record_timeout(abandoned=True, stuck_in=list_thread_calls(self._thread))
        return self._judge_cut_run(run)

    def judge_torn_run(self, error: BaseException) -> Verdict | None:
        """The verdict if `error` tore the event loop down during a run: a SystemExit in a task that the agent made."""
        run = self._run
        if run is None or not isinstance(error, SystemExit):
            return None
        from evalkit.pipeline.faults import build_fault

        run.fault = build_fault(error, run.plan.root)
        return self._judge_cut_run(run)

    def _judge_cut_run(self, run: RunState) -> Verdict:
        verdict = judge_run(run.plan, build_transcript(run), run.dispatcher.declarations)
        if self.complete_verdict is not None:
            return self.complete_verdict(verdict)
        repeat = run.plan.case.repeat
        if repeat.runs == 1:
            return apply_quarantine(run.plan.case, verdict)
        from evalkit.pipeline.repeats import combine_verdicts

        return apply_quarantine(run.plan.case, combine_verdicts([*self.runs, verdict], repeat))
