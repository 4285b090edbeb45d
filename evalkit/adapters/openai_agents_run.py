"""What stands between the OpenAI Agents SDK and an agent's tools during a run. Imports the framework."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from typing import Any

from agents import AgentBase, CustomTool, FunctionTool, Handoff, RunConfig, RunHooks
from agents.run import AgentRunner
from msgspec import Struct, field

from evalkit.adapters.openai_agents_tools import answered_custom_tool, answered_function_tool, refuse_local_tool
from evalkit.adapters.openai_agents_turns import turn_of
from evalkit.adapters.recording import Dialogue, Recorder
from evalkit.adapters.whose import Runs

_HOOKS = tuple(name for name in dir(RunHooks) if name.startswith("on_"))
_lock = threading.Lock()


class Way(Struct, eq=False):
    """Whose dispatcher answers, which tools it leaves alone, and the model that evalkit's run asks for, if it does."""

    recorder: Recorder
    as_is: frozenset[str] = frozenset()
    model: Any = None


class Run(Struct, eq=False):
    """One run of the SDK's, from its starting agent through all hand-offs."""

    dialogue: Dialogue
    offered: frozenset[str] = frozenset()
    transfers: list[tuple[str, Any, str]] = field(default_factory=list)  # hand-offs that the last reply asks for
    tools: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # by id: the agent's own, and its copy

    async def replied(self, agent: Any, response: Any) -> None:
        turn = turn_of(response, agent)
        self.dialogue.replied(turn)
        handoffs = {tool.tool_name for tool in _handoffs(agent)}
        self.transfers.clear()
        for call in turn.calls:
            if call.name in handoffs:
                self.transfers.append((call.name, call.arguments, call.call_id or ""))
            elif call.name not in self.offered and call.call_id is not None:
                await self.dialogue.unknown(call.call_id, self.offered | handoffs)

    async def handed_over(self, agent: Any) -> None:
        """The first hand-off of the last reply has happened; the SDK ignores the others."""

        async def real() -> dict[str, str]:
            return {"assistant": agent.name}

        for position, (name, arguments, call_id) in enumerate(self.transfers):
            if position == 0:
                await self.dialogue.call(name, arguments, call_id, real=real, as_is=True)
            else:
                why = "the reply hands over to several agents: the first one goes on"
                await self.dialogue.refused(name, arguments, call_id, why, type="ignored_handoff", as_is=True)
        self.transfers.clear()


WAYS: Runs[Way] = Runs("openai_agents")
_RUN: ContextVar[Run | None] = ContextVar("evalkit_openai_agents_run", default=None)


class Hearing(RunHooks):
    """The hooks of one run: they hear for evalkit, and hand on to those that the run was given."""

    def __init__(self, run: Run, given: Any) -> None:
        self._run = run
        self._given = given if given is not None else RunHooks()
        for name in _HOOKS:
            if name not in vars(Hearing):
                setattr(self, name, getattr(self._given, name))

    async def on_llm_start(self, *args: Any, **kwargs: Any) -> None:
        await self._given.on_llm_start(*args, **kwargs)
        self._run.dialogue.asks()

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        await self._run.replied(agent, response)
        await self._given.on_llm_end(context, agent, response)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        await self._run.handed_over(to_agent)
        await self._given.on_handoff(context, from_agent, to_agent)


def intercept() -> None:
    """Have agents and runs look whether their context belongs to a case. Once per process, for good: outside of cases
    nothing is different.
    """
    with _lock:
        if getattr(AgentBase.get_all_tools, "is_evalkits", False):
            return
        AgentBase.get_all_tools = _answered_tools(AgentBase.get_all_tools)
        AgentRunner.run = _heard_run(AgentRunner.run)
        AgentRunner.run_streamed = _heard_stream(AgentRunner.run_streamed)


def _answered_tools(original: Any) -> Any:
    @functools.wraps(original)
    async def get_all_tools(self: Any, run_context: Any) -> list[Any]:
        tools: list[Any] = await original(self, run_context)
        way = WAYS.of("an agent of the OpenAI Agents SDK")
        if way is None:
            return tools
        run = _RUN.get() or Run(Dialogue(way.recorder))
        handoffs = list(_handoffs(self))
        way.recorder.declare((tool.tool_name, tool.tool_description, tool.input_json_schema) for tool in handoffs)
        run.offered = frozenset(str(tool.name) for tool in tools)
        return [_answered(tool, way, run) for tool in tools]

    get_all_tools.is_evalkits = True  # type: ignore[attr-defined]
    return get_all_tools


def _answered(tool: Any, way: Way, run: Run) -> Any:
    """A copy of `tool` that the dispatcher answers; the same one all through the run."""
    known = run.tools.get(id(tool))
    if known is not None:
        return known[1]
    as_is = tool.name in way.as_is
    made = tool
    if isinstance(tool, FunctionTool):
        way.recorder.declare([(tool.name, tool.description, tool.params_json_schema)])
        made = answered_function_tool(tool, run.dialogue, as_is=as_is)
    elif isinstance(tool, CustomTool):
        schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        way.recorder.declare([(tool.name, tool.description, schema)])
        made = answered_custom_tool(tool, run.dialogue, as_is=as_is)
    elif not as_is:
        refuse_local_tool(tool)
    run.tools[id(tool)] = (tool, made)
    return made


def _handoffs(agent: Any) -> Iterator[Any]:
    """The hand-offs of `agent` as the model is told of them."""
    from agents import handoff

    for target in getattr(agent, "handoffs", ()):
        yield target if isinstance(target, Handoff) else handoff(target)


def _heard_run(original: Any) -> Any:
    @functools.wraps(original)
    async def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _hearing(kwargs):
            return await original(self, *args, **kwargs)

    return run


def _heard_stream(original: Any) -> Any:
    @functools.wraps(original)
    def run_streamed(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _hearing(kwargs):  # the task that streams takes the context with it
            return original(self, *args, **kwargs)

    return run_streamed


@contextmanager
def _hearing(kwargs: dict[str, Any]) -> Iterator[None]:
    """A run of its own in this context, if it belongs to a case; `kwargs` are those of the SDK's run."""
    way = WAYS.of("an agent of the OpenAI Agents SDK")
    if way is None:
        yield
        return
    run = Run(Dialogue(way.recorder))
    kwargs["hooks"] = Hearing(run, kwargs.get("hooks"))
    kwargs["run_config"] = _configured(kwargs.get("run_config"), way.model)
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


def _configured(given: Any, model: Any) -> Any:
    """The run's configuration without traces, which would be sent to OpenAI, and with the model that evalkit's run asks
    for, unless it has one of its own.
    """
    config = RunConfig(**given) if isinstance(given, dict) else RunConfig() if given is None else copy(given)
    config.tracing_disabled = True
    if config.model is None:
        config.model = model
    return config
