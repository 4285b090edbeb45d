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

from evalkit.adapters.openai_agents_tools import refuse_local_tool, replace_custom_tool, replace_function_tool
from evalkit.adapters.openai_agents_turns import to_model_turn
from evalkit.adapters.recording import AgentRunRecorder, TaskRecorder
from evalkit.adapters.whose import ActiveRuns

_HOOKS = tuple(name for name in dir(RunHooks) if name.startswith("on_"))
_lock = threading.Lock()


class SdkScope(Struct, eq=False):
    """Whose dispatcher answers, which tools it leaves alone, and the model that evalkit's run asks for, if it does."""

    recorder: TaskRecorder
    as_is: frozenset[str] = frozenset()
    model: Any = None


class SdkRun(Struct, eq=False):
    """One run of the SDK's, from its starting agent through all hand-offs."""

    dialogue: AgentRunRecorder
    tool_names: frozenset[str] = frozenset()
    transfers: list[tuple[str, Any, str]] = field(default_factory=list)  # hand-offs that the last reply asks for
    tools: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # by id: the agent's own, and its copy

    async def record_response(self, agent: Any, response: Any) -> None:
        turn = to_model_turn(response, agent)
        self.dialogue.record_reply(turn)
        handoffs = {tool.tool_name for tool in _list_handoffs(agent)}
        self.transfers.clear()
        for call in turn.calls:
            if call.name in handoffs:
                self.transfers.append((call.name, call.arguments, call.call_id or ""))
            elif call.name not in self.tool_names and call.call_id is not None:
                await self.dialogue.record_unknown_call(call.call_id, self.tool_names | handoffs)

    async def record_handoff(self, agent: Any) -> None:
        """The first hand-off of the last reply has happened; the SDK ignores the others."""

        async def get_assistant() -> dict[str, str]:
            return {"assistant": agent.name}

        for position, (name, arguments, call_id) in enumerate(self.transfers):
            if position == 0:
                await self.dialogue.call(name, arguments, call_id, real=get_assistant, as_is=True)
            else:
                why = "the reply hands over to several agents: the first one goes on"
                await self.dialogue.refuse_call(name, arguments, call_id, why, type="ignored_handoff", as_is=True)
        self.transfers.clear()


SCOPES: ActiveRuns[SdkScope] = ActiveRuns("openai_agents")
_RUN: ContextVar[SdkRun | None] = ContextVar("evalkit_openai_agents_run", default=None)


class RecordingHooks(RunHooks):
    """The hooks of one run: they hear for evalkit, and hand on to those that the run was given."""

    def __init__(self, run: SdkRun, run_hooks: Any) -> None:
        self._run = run
        self._run_hooks = run_hooks if run_hooks is not None else RunHooks()
        for name in _HOOKS:
            if name not in vars(RecordingHooks):
                setattr(self, name, getattr(self._run_hooks, name))

    async def on_llm_start(self, *args: Any, **kwargs: Any) -> None:
        await self._run_hooks.on_llm_start(*args, **kwargs)
        self._run.dialogue.begin_request()

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        await self._run.record_response(agent, response)
        await self._run_hooks.on_llm_end(context, agent, response)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        await self._run.record_handoff(to_agent)
        await self._run_hooks.on_handoff(context, from_agent, to_agent)


def install_hooks() -> None:
    """Have agents and runs look whether their context belongs to a case. Once per process, for good: outside of cases
    nothing is different.
    """
    with _lock:
        if getattr(AgentBase.get_all_tools, "is_evalkits", False):
            return
        AgentBase.get_all_tools = _wrap_get_all_tools(AgentBase.get_all_tools)
        AgentRunner.run = _wrap_run(AgentRunner.run)
        AgentRunner.run_streamed = _wrap_run_streamed(AgentRunner.run_streamed)


def _wrap_get_all_tools(original: Any) -> Any:
    @functools.wraps(original)
    async def get_all_tools(self: Any, run_context: Any) -> list[Any]:
        tools: list[Any] = await original(self, run_context)
        way = SCOPES.find("an agent of the OpenAI Agents SDK")
        if way is None:
            return tools
        run = _RUN.get() or SdkRun(AgentRunRecorder(way.recorder))
        handoffs = list(_list_handoffs(self))
        way.recorder.declare((tool.tool_name, tool.tool_description, tool.input_json_schema) for tool in handoffs)
        run.tool_names = frozenset(str(tool.name) for tool in tools)
        return [_replace_tool(tool, way, run) for tool in tools]

    get_all_tools.is_evalkits = True  # type: ignore[attr-defined]
    return get_all_tools


def _replace_tool(tool: Any, scope: SdkScope, run: SdkRun) -> Any:
    """A copy of `tool` that the dispatcher answers; the same one all through the run."""
    replaced = run.tools.get(id(tool))
    if replaced is not None:
        return replaced[1]
    as_is = tool.name in scope.as_is
    copied = tool
    if isinstance(tool, FunctionTool):
        scope.recorder.declare([(tool.name, tool.description, tool.params_json_schema)])
        copied = replace_function_tool(tool, run.dialogue, as_is=as_is)
    elif isinstance(tool, CustomTool):
        schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        scope.recorder.declare([(tool.name, tool.description, schema)])
        copied = replace_custom_tool(tool, run.dialogue, as_is=as_is)
    elif not as_is:
        refuse_local_tool(tool)
    run.tools[id(tool)] = (tool, copied)
    return copied


def _list_handoffs(agent: Any) -> Iterator[Any]:
    """The hand-offs of `agent` as the model is told of them."""
    from agents import handoff

    for target in getattr(agent, "handoffs", ()):
        yield target if isinstance(target, Handoff) else handoff(target)


def _wrap_run(original: Any) -> Any:
    @functools.wraps(original)
    async def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _record_run(kwargs):
            return await original(self, *args, **kwargs)

    return run


def _wrap_run_streamed(original: Any) -> Any:
    @functools.wraps(original)
    def run_streamed(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _record_run(kwargs):  # the task that streams takes the context with it
            return original(self, *args, **kwargs)

    return run_streamed


@contextmanager
def _record_run(kwargs: dict[str, Any]) -> Iterator[None]:
    """A run of its own in this context, if it belongs to a case; `kwargs` are those of the SDK's run."""
    scope = SCOPES.find("an agent of the OpenAI Agents SDK")
    if scope is None:
        yield
        return
    run = SdkRun(AgentRunRecorder(scope.recorder))
    kwargs["hooks"] = RecordingHooks(run, kwargs.get("hooks"))
    kwargs["run_config"] = _build_run_config(kwargs.get("run_config"), scope.model)
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


def _build_run_config(run_config: Any, model: Any) -> Any:
    """The run's configuration without traces, which would be sent to OpenAI, and with the model that evalkit's run asks
    for, unless it has one of its own.
    """
    config = (
        RunConfig(**run_config)
        if isinstance(run_config, dict)
        else RunConfig()
        if run_config is None
        else copy(run_config)
    )
    config.tracing_disabled = True
    if config.model is None:
        config.model = model
    return config
