"""One run of a case: its own mocks, its own task, and the transcript of what the agent did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from evalkit.agents import offline
from evalkit.agents.clock import now
from evalkit.agents.model_choice import select_provider
from evalkit.agents.reply import Reply
from evalkit.agents.resolve import AgentUnderTest, resolve_agent
from evalkit.agents.settings import TaskSettings, merge_settings
from evalkit.agents.task import Task, copy_visible_input
from evalkit.cassettes.http import binding as http_recording
from evalkit.errors import Location, MockError, PathProblem, Problem, SpecError, format_path
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.functions.patching.context_propagation import PatchedCase
from evalkit.functions.patching.install import patch_functions
from evalkit.model.case import Case
from evalkit.model.settings import Settings
from evalkit.model.transcript import ModelTurn, RunFault, Timing, Transcript, Usage
from evalkit.runner.agent_call import CallOutcome, call_agent

if TYPE_CHECKING:
    from traceback import FrameSummary


# Everything that the runs of one case share, worked out once.


class CasePlan(Struct, frozen=True):
    """One case, ready to run: compiled mocks and expectation, the agent, the settings in force."""

    case: Case
    agent: AgentUnderTest
    settings: Settings
    task_settings: TaskSettings
    mocks: Any
    expectation: Any
    root: Path

    @property
    def is_graded(self) -> bool:
        """Whether a model is to grade anything of it."""
        if self.expectation is not None and self.expectation.graded is not None:
            return True
        turns = self.case.turns
        return bool(turns) and any(
            turn.expectation is not None and turn.expectation.graded is not None for turn in turns
        )


def plan_case(case: Case, agent: Any, settings: Settings) -> CasePlan:
    """Raises UnknownAgentError, and SpecError for a case built in code whose parts don't compile."""
    root = settings.root or _find_root(case)
    return CasePlan(
        case=case,
        agent=resolve_agent(case.agent if agent is None else agent, case=case, root=root),
        settings=settings if settings.root else replace(settings, root=root),
        task_settings=merge_settings(case.settings, settings),
        mocks=_compile_mocks(case) if case.mocks is None else case.mocks,
        expectation=_compile_expectation(case) if case.expectation is None else case.expectation,
        root=root,
    )


def _find_root(case: Case) -> Path:
    """The root below which a loaded case has its identity, whatever the current directory is now."""
    if case.path is not None and case.path.is_absolute() and case.path.as_posix().endswith(f"/{case.id}"):
        return case.path.parents[case.id.count("/")]
    return Path.cwd()


def _compile_mocks(case: Case) -> Any:
    from evalkit.functions.mocks.reader import parse_mocks

    mocks, problems = parse_mocks(
        case.input.get("mock_function_responses") or {},
        path=("input", "mock_function_responses"),
        declarations={function.name: function for function in case.functions},
        include=_refuse_include,
    )
    _raise_problems(case, problems)
    return mocks


def _refuse_include(name: str) -> Any:
    raise KeyError(f"a case built in code includes no files ('{name}')")


def _compile_expectation(case: Case) -> Any:
    if not case.expected_output and any(turn.expectation is not None for turn in case.turns):
        return None
    from evalkit.checks.compile import compile_expectation

    declarations = {function.name: function for function in case.functions}
    expectation, problems = compile_expectation(case.expected_output, declarations=declarations)
    _raise_problems(case, problems)
    return expectation


def _raise_problems(case: Case, problems: list[PathProblem]) -> None:
    if problems:
        raise SpecError(
            [
                Problem(Location(case.id or "case"), f"{format_path(problem.path)}: {problem.message}", problem.code)
                for problem in problems
            ]
        )


class RunState(Struct):
    """A run in the making."""

    plan: CasePlan
    task: Task
    dispatcher: FakeDispatcher
    replies: list[Reply] = field(default_factory=list)
    fault: RunFault | None = None
    warnings: list[str] = field(default_factory=list)
    start_time: float = 0.0
    wall_s: float = 0.0
    timeout_s: float | None = None  # the agent's own time limit, where it ends before the deadline
    patches: PatchedCase | None = None
    is_abandoned: bool = False
    phase: str = ""  # "set-up" or "tear-down" of an agent that has them, while it is in one

    def release_resources(self) -> None:
        """An agent that was left behind has ended: nobody needs the patches and the cassette any more."""
        if self.patches is not None:
            self.patches.release()
        if self.is_abandoned:
            http_recording.release(self.task.http_player)
            offline.restore(self.task)

    def record_timeout(self, *, abandoned: bool, stuck_in: Sequence[FrameSummary] = ()) -> None:
        """The agent ran past its deadline, in the calls `stuck_in`; `abandoned` if it could not be stopped."""
        name, deadline_s = self.plan.agent.name, self.plan.task_settings.deadline_s
        limit = (
            f"{deadline_s:g} s, its deadline (settings.deadline_s)"
            if self.timeout_s is None
            else (f"{self.timeout_s:g} s, its time limit (agent.timeout)")
        )
        if self.phase:
            from evalkit.runner.faults import build_phase_fault

            self.fault = build_phase_fault(self.phase, name, f"was still running after {limit}")
        else:
            place = _locate_stack(stuck_in, self.plan.root)
            self.fault = RunFault(code="deadline", message=f"agent '{name}' was still running after {limit}{place}")
        if abandoned:
            self.abandon("it")

    def abandon(self, component: str) -> None:
        """Code of the agent goes on running: it must never reach a real function."""
        self.is_abandoned = True
        if self.task.http_player is not None:
            self.task.http_player.close()  # or a stray request from elsewhere would be taken for one of a case that runs  # noqa: E501
        if self.patches is not None:
            self.patches.keep_installed()
            self.patches.leave()
        name = self.plan.agent.name
        self.warnings.append(f"agent '{name}' could not be stopped: {component} is left behind, still running")


def prepare_run(plan: CasePlan, number: int) -> RunState:
    """Mocks and task of run number `run` (from 0), before the agent is called."""
    dispatcher = FakeDispatcher(
        plan.mocks, plan.case.functions, input=plan.case.input, settings=plan.settings, case_id=plan.case.id
    )
    task = Task(
        dispatcher,
        input=copy_visible_input(plan.case.input),
        settings=plan.task_settings,
        open_model=lambda: select_provider(plan.case.id, number, plan.settings, plan.task_settings),
        case_id=plan.case.id,
        run=number,
    )
    task.http_player = http_recording.create_player(task, plan.settings)
    if plan.settings.max_cost_usd is not None:
        from evalkit.providers.budget import create_client_budget

        task.client_budget = create_client_budget(plan.settings)
    return RunState(plan, task, dispatcher)


async def run_conversation(run: RunState) -> None:
    """Call the agent once per user turn, until one of its replies says that it did not complete.

    The functions that the case patches answer from its mocks meanwhile, and its HTTP cassette answers the requests of
    the agent's own client, both for this context alone.
    """
    offline.cut_off(run.task, run.plan.settings)
    try:
        with (
            patch_functions(run.plan.case.functions, run.dispatcher) as run.patches,
            http_recording.intercept_requests(run.task.http_player),
        ):
            await _open_and_run(run)
    except MockError as error:
        from evalkit.runner.faults import build_unmeasured_fault

        run.fault = build_unmeasured_fault(error)
    finally:
        if not run.is_abandoned:
            http_recording.release(run.task.http_player)
            offline.restore(run.task)


async def _open_and_run(run: RunState) -> None:
    if run.plan.agent.opening is None:
        await _run_timed(run, run.plan.agent)
        return
    from evalkit.runner.agent_context import AgentContext

    async with AgentContext(run) as agent:
        if agent is not None:
            await _run_timed(run, agent)


async def _run_timed(run: RunState, agent: AgentUnderTest) -> None:
    run.start_time = now()
    try:
        await _run_turns(run, agent)
    finally:
        run.wall_s = now() - run.start_time


async def _run_turns(run: RunState, agent: AgentUnderTest) -> None:
    users: Sequence[Any] = [turn.user for turn in run.plan.case.turns] or [run.task.input]
    deadline_s = run.plan.task_settings.deadline_s
    for index, user in enumerate(users):
        run.task.begin_turn(user, index=index)
        remaining = deadline_s - (now() - run.start_time) + run.task.queueing_time.seconds
        run.timeout_s = agent.timeout_s if agent.timeout_s is not None and agent.timeout_s < remaining else None
        limit = max(remaining if run.timeout_s is None else run.timeout_s, 0.0)
        outcome = await call_agent(agent, run.task, limit, on_late_end=run.release_resources)
        if not outcome.abandoned:
            run.release_resources()  # if somebody outside gave it up while it blocked the loop
        reply = _read_reply(outcome, run)
        if reply is None:
            return
        run.replies.append(reply)
        if run.task.clock_ms > deadline_s * 1000 or reply.stop_reason == "deadline":
            clock = f"{run.task.clock_ms / 1000:g} s on the run's clock"
            run.fault = RunFault(code="deadline", message=f"the deadline of {deadline_s:g} s has passed: {clock}")
        if run.fault is not None or reply.stop_reason != "completed":
            return
        if not run.task.messages or run.task.messages[-1].get("role") != "model":
            run.task.messages.append({"role": "model", "turn": ModelTurn(text=reply.text)})


def _locate_stack(stuck_in: Sequence[FrameSummary], root: Path) -> str:
    if not stuck_in:
        return ""
    from evalkit.runner.faults import locate_frame

    return locate_frame(stuck_in, root, outside=False)


def _read_reply(outcome: CallOutcome, run: RunState) -> Reply | None:
    """The agent's answer, or None: `going.fault` then says why there is none."""
    name = run.plan.agent.name
    if outcome.timed_out:
        run.record_timeout(abandoned=outcome.abandoned, stuck_in=outcome.stuck_in)
        return None
    if outcome.error is not None:
        from evalkit.runner.faults import build_fault, find_interrupt

        interrupt = find_interrupt(outcome.error)
        if interrupt is not None:
            raise interrupt
        run.fault = build_fault(outcome.error, run.plan.root)
        return None
    if isinstance(outcome.value, Reply):
        return outcome.value
    if isinstance(outcome.value, str) or outcome.value is None:
        return Reply(outcome.value or "")
    kind = type(outcome.value).__name__
    message = f"agent '{name}' returned a value of type {kind}; it must return a string or an evalkit.Reply"
    run.fault = RunFault(code="invalid_reply", message=message)
    return None


def build_transcript(run: RunState) -> Transcript:
    """The frozen record of a run that is over."""
    task, dispatcher = run.task, run.dispatcher
    last = run.replies[-1] if run.replies else Reply()
    fault = _select_fault(run)
    cassette = getattr(task.provider, "cassette", None)
    data = _read_reply_data(last, run)
    turns = task.turns
    _add_warnings(run, turns)
    usage = _sum_usage(run, turns)
    reported = next((turn.model for turn in reversed(turns) if turn.model), None)
    model = reported or (cassette.model if cassette else task.model)
    return Transcript(
        input=task.input,
        calls=dispatcher.calls,
        turns=turns,
        response=last.text,
        responses=tuple(reply.text for reply in run.replies) if run.plan.case.turns else (),
        stop_reason=last.stop_reason if fault is None else fault.code,
        fault=fault,
        usage=usage,
        timing=_compute_timing(run, turns),
        instruction_used=last.instruction_used or task.instruction_used,
        model=model,
        cassette=cassette.kind if cassette else task.http_player.kind if task.http_player else None,
        cost_usd=_compute_cost(run, turns, usage, model),
        functions=dispatcher.names,
        unused_mocks=dispatcher.find_unused(),
        warnings=tuple(run.warnings),
        metadata=data,
    )


def _read_reply_data(reply: Reply, run: RunState) -> Any:
    if not reply.data:
        return {}
    from evalkit.jsonvalue import to_json_safe

    data, problem = to_json_safe(dict(reply.data))
    if problem:
        run.warnings.append(f"Reply.data is not JSON: {problem}")
    return data


def _select_fault(run: RunState) -> RunFault | None:
    """What could not be measured comes before what the agent did about it."""
    for error in (run.dispatcher.fault, run.task.fault):
        if error is not None:
            from evalkit.runner.faults import build_unmeasured_fault

            return build_unmeasured_fault(error)
    return run.fault


def _add_warnings(run: RunState, turns: Sequence[ModelTurn]) -> None:
    """Of calls that nobody made, and of recorded answers that nobody asked for."""
    if turns:
        run.warnings += find_turn_warnings(turns)
    run.warnings += run.task.warnings
    unused: tuple[int, ...] = getattr(run.task.provider, "unused", tuple)()
    if unused and run.fault is None:
        subject = f"turn {unused[0]} was" if len(unused) == 1 else f"turns {unused[0]} to {unused[-1]} were"
        file = getattr(run.task.provider, "file", "the cassette")
        run.warnings.append(f"{file}: {subject} never asked for; the agent stopped before")
    file, count = run.task.http_player.find_unused() if run.task.http_player else ("", 0)
    if count and run.fault is None:
        subject = "1 recorded request was" if count == 1 else f"{count} recorded requests were"
        run.warnings.append(f"{file}: {subject} never made")


def _sum_usage(run: RunState, turns: Sequence[ModelTurn]) -> Usage | None:
    """Tokens of all turns; of the replies where nobody saw the turns of the agent's own client. None: not known, as
    soon as one turn did not say."""
    turn_usages = [turn.usage for turn in turns]
    usages = [usage for usage in turn_usages if usage is not None]
    if not usages or len(usages) < len(turn_usages):
        usages = [reply.usage for reply in run.replies if isinstance(reply.usage, Usage)]
    return sum(usages[1:], usages[0]) if usages else None


def _compute_cost(run: RunState, turns: Sequence[ModelTurn], usage: Usage | None, model: str | None) -> float | None:
    """Of the turns, each by its model; of what the replies report, by the case's. None: unknown, which is not zero."""
    prices = run.plan.settings.prices
    if not prices:
        return None
    from evalkit.model.prices import compute_cost, compute_turns_cost

    if turns:
        return compute_turns_cost(turns, model, prices)
    return compute_cost(usage, (model, run.task.model), prices)


def _compute_timing(run: RunState, turns: Sequence[ModelTurn]) -> Timing:
    overhead_s = max(run.wall_s - run.task.waiting_time.seconds, 0.0)
    return Timing(
        model_ms=sum(turn.duration_ms for turn in turns),
        function_ms=run.dispatcher.virtual_ms,
        overhead_ms=round(overhead_s * 1000, 3),
    )


# What a run's model turns leave to be said, beside the verdict: calls that were cut off, or written and not made.


def find_turn_warnings(turns: Iterable[ModelTurn]) -> Iterator[str]:
    """One line for each turn whose calls were carried out although it did not end as it should: the rest of it is
    lost, and nothing else would say so. How a reply without calls ended is the run's stop reason."""
    for number, turn in enumerate(turns, 1):
        is_cut = turn.finish_message is not None or turn.finish_reason == "length"
        if turn.calls and is_cut:
            detail = f": {turn.finish_message}" if turn.finish_message else ""
            yield f"model turn {number} ended with '{turn.finish_reason}', and its whole calls were carried out{detail}"
