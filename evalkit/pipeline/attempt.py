"""One run of a case: its own mocks, its own task, and the transcript of what the agent did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from evalkit.agents import http_recording, offline
from evalkit.agents.clock import now
from evalkit.agents.message import visible_input
from evalkit.agents.models import provider_for
from evalkit.agents.reply import Reply
from evalkit.agents.resolution import AgentUnderTest
from evalkit.agents.task import Task
from evalkit.errors import MockError
from evalkit.functions.active import PatchedCase
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.functions.patching import patched
from evalkit.model.transcript import ModelTurn, RunFault, Timing, Transcript, Usage
from evalkit.pipeline.calling import Outcome, call_agent
from evalkit.pipeline.plan import Plan

if TYPE_CHECKING:
    from traceback import FrameSummary


class Attempt(Struct):
    """A run in the making."""

    plan: Plan
    task: Task
    dispatcher: FakeDispatcher
    replies: list[Reply] = field(default_factory=list)
    fault: RunFault | None = None
    warnings: list[str] = field(default_factory=list)
    started: float = 0.0
    wall_s: float = 0.0
    timeout_s: float | None = None  # the agent's own time limit, where it ends before the deadline
    patches: PatchedCase | None = None
    is_left_behind: bool = False
    phase: str = ""  # "set-up" or "tear-down" of an agent that has them, while it is in one

    def ended_late(self) -> None:
        """An agent that was left behind has ended: nobody needs the patches and the cassette any more."""
        if self.patches is not None:
            self.patches.release()
        if self.is_left_behind:
            http_recording.release(self.task.tape)
            offline.restore(self.task)

    def time_out(self, *, abandoned: bool, stuck_in: Sequence[FrameSummary] = ()) -> None:
        """The agent ran past its deadline, in the calls `stuck_in`; `abandoned` if it could not be stopped."""
        name, deadline_s = self.plan.agent.name, self.plan.in_force.deadline_s
        limit = (
            f"{deadline_s:g} s, its deadline (settings.deadline_s)"
            if self.timeout_s is None
            else (f"{self.timeout_s:g} s, its time limit (agent.timeout)")
        )
        if self.phase:
            from evalkit.pipeline.faults import phase_fault

            self.fault = phase_fault(self.phase, name, f"was still running after {limit}")
        else:
            where = _place_of(stuck_in, self.plan.root)
            self.fault = RunFault(code="deadline", message=f"agent '{name}' was still running after {limit}{where}")
        if abandoned:
            self.leave_behind("it")

    def leave_behind(self, what: str) -> None:
        """Code of the agent goes on running: it must never reach a real function."""
        self.is_left_behind = True
        if self.task.tape is not None:
            self.task.tape.close()  # or a stray request from elsewhere would be taken for one of a case that runs
        if self.patches is not None:
            self.patches.keep()
            self.patches.leave()
        name = self.plan.agent.name
        self.warnings.append(f"agent '{name}' could not be stopped: {what} is left behind, still running")


def begin(plan: Plan, run: int) -> Attempt:
    """Mocks and task of run number `run` (from 0), before the agent is called."""
    dispatcher = FakeDispatcher(
        plan.mocks, plan.case.functions, input=plan.case.input, settings=plan.settings, case_id=plan.case.id
    )
    task = Task(
        dispatcher,
        input=visible_input(plan.case.input),
        settings=plan.in_force,
        open_model=lambda: provider_for(plan.case.id, run, plan.settings, plan.in_force),
        case_id=plan.case.id,
        run=run,
    )
    task.tape = http_recording.tape_of_run(task, plan.settings)
    if plan.settings.max_cost_usd is not None:
        from evalkit.agents.live import booking_of

        task.booking = booking_of(plan.settings)
    return Attempt(plan, task, dispatcher)


async def converse(going: Attempt) -> None:
    """Call the agent once per user turn, until one of its replies says that it did not complete.

    The functions that the case patches answer from its mocks meanwhile, and its HTTP cassette answers the requests of
    the agent's own client, both for this context alone.
    """
    offline.cut_off(going.task, going.plan.settings)
    try:
        with (
            patched(going.plan.case.functions, going.dispatcher) as going.patches,
            http_recording.caught(going.task.tape),
        ):
            await _opened(going)
    except MockError as error:
        from evalkit.pipeline.faults import unmeasured

        going.fault = unmeasured(error)
    finally:
        if not going.is_left_behind:
            http_recording.release(going.task.tape)
            offline.restore(going.task)


async def _opened(going: Attempt) -> None:
    if going.plan.agent.opening is None:
        await _timed(going, going.plan.agent)
        return
    from evalkit.pipeline.lifetime import Lifetime

    async with Lifetime(going) as agent:
        if agent is not None:
            await _timed(going, agent)


async def _timed(going: Attempt, agent: AgentUnderTest) -> None:
    going.started = now()
    try:
        await _converse(going, agent)
    finally:
        going.wall_s = now() - going.started


async def _converse(going: Attempt, agent: AgentUnderTest) -> None:
    users: Sequence[Any] = [turn.user for turn in going.plan.case.turns] or [going.task.input]
    deadline_s = going.plan.in_force.deadline_s
    for index, user in enumerate(users):
        going.task.begin(user, index=index)
        left = deadline_s - (now() - going.started) + going.task.queued.seconds
        going.timeout_s = agent.timeout_s if agent.timeout_s is not None and agent.timeout_s < left else None
        limit = max(left if going.timeout_s is None else going.timeout_s, 0.0)
        outcome = await call_agent(agent, going.task, limit, ended_late=going.ended_late)
        if not outcome.abandoned:
            going.ended_late()  # if somebody outside gave it up while it blocked the loop
        reply = _reply(outcome, going)
        if reply is None:
            return
        going.replies.append(reply)
        if going.task.clock_ms > deadline_s * 1000 or reply.stop_reason == "deadline":
            clock = f"{going.task.clock_ms / 1000:g} s on the run's clock"
            going.fault = RunFault(code="deadline", message=f"the deadline of {deadline_s:g} s has passed: {clock}")
        if going.fault is not None or reply.stop_reason != "completed":
            return
        if not going.task.messages or going.task.messages[-1].get("role") != "model":
            going.task.messages.append({"role": "model", "turn": ModelTurn(text=reply.text)})


def _place_of(stuck_in: Sequence[FrameSummary], root: Path) -> str:
    if not stuck_in:
        return ""
    from evalkit.pipeline.faults import place_of

    return place_of(stuck_in, root, outside=False)


def _reply(outcome: Outcome, going: Attempt) -> Reply | None:
    """The agent's answer, or None: `going.fault` then says why there is none."""
    name = going.plan.agent.name
    if outcome.timed_out:
        going.time_out(abandoned=outcome.abandoned, stuck_in=outcome.stuck_in)
        return None
    if outcome.error is not None:
        from evalkit.pipeline.faults import fault_of, interrupt_in

        interrupt = interrupt_in(outcome.error)
        if interrupt is not None:
            raise interrupt
        going.fault = fault_of(outcome.error, going.plan.root)
        return None
    if isinstance(outcome.value, Reply):
        return outcome.value
    if isinstance(outcome.value, str) or outcome.value is None:
        return Reply(outcome.value or "")
    kind = type(outcome.value).__name__
    message = f"agent '{name}' returned a value of type {kind}; it must return a string or an evalkit.Reply"
    going.fault = RunFault(code="invalid_reply", message=message)
    return None


def conclude(going: Attempt) -> Transcript:
    """The frozen record of a run that is over."""
    task, dispatcher = going.task, going.dispatcher
    last = going.replies[-1] if going.replies else Reply()
    fault = _decisive_fault(going)
    cassette = getattr(task.provider, "cassette", None)
    data = _data_of(last, going)
    turns = task.turns
    _warn(going, turns)
    usage = _usage(going, turns)
    reported = next((turn.model for turn in reversed(turns) if turn.model), None)
    model = reported or (cassette.model if cassette else task.model)
    return Transcript(
        input=task.input,
        calls=dispatcher.calls,
        turns=turns,
        response=last.text,
        responses=tuple(reply.text for reply in going.replies) if going.plan.case.turns else (),
        stop_reason=last.stop_reason if fault is None else fault.code,
        fault=fault,
        usage=usage,
        timing=_timing(going, turns),
        instruction_used=last.instruction_used or task.instruction_used,
        model=model,
        cassette=cassette.kind if cassette else task.tape.kind if task.tape else None,
        cost_usd=_cost(going, turns, usage, model),
        functions=dispatcher.names,
        unused_mocks=dispatcher.unused(),
        warnings=tuple(going.warnings),
        metadata=data,
    )


def _data_of(reply: Reply, going: Attempt) -> Any:
    if not reply.data:
        return {}
    from evalkit.pipeline.evidence import json_safe

    data, problem = json_safe(dict(reply.data))
    if problem:
        going.warnings.append(f"Reply.data is not JSON: {problem}")
    return data


def _decisive_fault(going: Attempt) -> RunFault | None:
    """What could not be measured comes before what the agent did about it."""
    for error in (going.dispatcher.fault, going.task.fault):
        if error is not None:
            from evalkit.pipeline.faults import unmeasured

            return unmeasured(error)
    return going.fault


def _warn(going: Attempt, turns: Sequence[ModelTurn]) -> None:
    """Of calls that nobody made, and of recorded answers that nobody asked for."""
    if turns:
        from evalkit.pipeline.remarks import remarks_on

        going.warnings += remarks_on(turns)
    going.warnings += going.task.remarks
    unused: tuple[int, ...] = getattr(going.task.provider, "unused", tuple)()
    if unused and going.fault is None:
        which = f"turn {unused[0]} was" if len(unused) == 1 else f"turns {unused[0]} to {unused[-1]} were"
        file = getattr(going.task.provider, "file", "the cassette")
        going.warnings.append(f"{file}: {which} never asked for; the agent stopped before")
    file, count = going.task.tape.unused() if going.task.tape else ("", 0)
    if count and going.fault is None:
        which = "1 recorded request was" if count == 1 else f"{count} recorded requests were"
        going.warnings.append(f"{file}: {which} never made")


def _usage(going: Attempt, turns: Sequence[ModelTurn]) -> Usage | None:
    """Tokens of all turns; of the replies where nobody saw the turns of the agent's own client. None: not known, as
    soon as one turn did not say."""
    counted = [turn.usage for turn in turns]
    known = [usage for usage in counted if usage is not None]
    if not known or len(known) < len(counted):
        known = [reply.usage for reply in going.replies if isinstance(reply.usage, Usage)]
    return sum(known[1:], known[0]) if known else None


def _cost(going: Attempt, turns: Sequence[ModelTurn], usage: Usage | None, model: str | None) -> float | None:
    """Of the turns, each by its model; of what the replies report, by the case's. None: unknown, which is not zero."""
    prices = going.plan.settings.prices
    if not prices:
        return None
    from evalkit.model.prices import cost_of, cost_of_turns

    if turns:
        return cost_of_turns(turns, model, prices)
    return cost_of(usage, (model, going.task.model), prices)


def _timing(going: Attempt, turns: Sequence[ModelTurn]) -> Timing:
    overhead_s = max(going.wall_s - going.task.waited.seconds, 0.0)
    return Timing(
        model_ms=sum(turn.duration_ms for turn in turns),
        function_ms=going.dispatcher.virtual_ms,
        overhead_ms=round(overhead_s * 1000, 3),
    )
