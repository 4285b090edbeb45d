"""Google ADK's tools and models, seen where the framework asks its plugins. Imports the framework.

Every runner, whoever made it, asks its `PluginManager` before and after each request to a model, and before each tool:
nested runners of agents used as tools, too, which a plugin of the outer one need not reach. There, in the context of a
run, tools of the request are replaced by copies that ask the dispatcher, in the request alone; the agent, its runner
and their own plugins and callbacks stay what they are. Elsewhere nothing is different.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.plugins.plugin_manager import PluginManager
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.exit_loop_tool import exit_loop
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.transfer_to_agent_tool import TransferToAgentTool, transfer_to_agent

from evalkit.adapters.recording import TaskRecorder
from evalkit.adapters.whose import ActiveRuns, run_once

# Tools by which the framework itself takes an agent's output: no functions of anybody.
OUTPUTS = frozenset({"set_model_response", "finish_task"})

_MARK = "_evalkit_answers"
_VALIDATING = (FunctionTool.run_async, LongRunningFunctionTool.run_async)


class AdkRun(Protocol):
    """Who answers the tools of a run, and is told of its turns."""

    recorder: TaskRecorder
    model: Any  # asked instead of the agents' own, unless it is None

    def begin_request(self, context: Any, request: Any) -> None:
        """A model is about to be asked."""

    async def record_response(self, context: Any, response: Any) -> None:
        """It has answered, or a piece of the answer has come."""

    async def call(self, tool: Any, arguments: Any, call_id: str | None, real: Callable[[], Any]) -> Any:
        """What the function answers. Raises FunctionError where it fails."""

    async def refuse_call(self, tool: Any, arguments: Any, call_id: str | None, reason: str) -> None:
        """The arguments do not fit the tool."""


RUNS: ActiveRuns[AdkRun] = ActiveRuns("google-adk")


@run_once
def install_hooks() -> None:
    """Have every plugin manager look whose it is when it is asked. Once per process, for good."""
    for name, wrap in (
        ("run_before_model_callback", _wrap_before_model),
        ("run_after_model_callback", _wrap_after_model),
        ("run_before_tool_callback", _wrap_before_tool),
    ):
        setattr(PluginManager, name, wrap(getattr(PluginManager, name)))
    LlmAgent.canonical_model = _wrap_canonical_model(LlmAgent.canonical_model)


def _wrap_canonical_model(original: property) -> property:
    """The model of a run comes before the agent's own."""

    @functools.wraps(original.fget)  # type: ignore[arg-type]
    def canonical_model(self: Any) -> Any:
        run = RUNS.find("a model of Google ADK")
        return original.__get__(self) if run is None or run.model is None else run.model

    return property(canonical_model)


def _wrap_before_model(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def before_model(self: Any, *, callback_context: Any, llm_request: Any) -> Any:
        run = RUNS.find("a model of Google ADK")
        if run is not None:
            run.begin_request(callback_context, llm_request)
            for name, tool in llm_request.tools_dict.items():
                llm_request.tools_dict[name] = _replace_tool(tool, run)
        return await original(self, callback_context=callback_context, llm_request=llm_request)

    return before_model


def _wrap_after_model(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def after_model(self: Any, *, callback_context: Any, llm_response: Any) -> Any:
        run = RUNS.find("a model of Google ADK")
        if run is not None:
            await run.record_response(callback_context, llm_response)
        return await original(self, callback_context=callback_context, llm_response=llm_response)

    return after_model


def _wrap_before_tool(original: Callable[..., Any]) -> Callable[..., Any]:
    """Tools that were in no request are answered here: nodes of workflows, and whatever a plugin puts in."""

    @functools.wraps(original)
    async def before_tool(self: Any, *, tool: Any, tool_args: Any, tool_context: Any) -> Any:
        run = RUNS.find(f"the tool {tool.name}")
        answer = await original(self, tool=tool, tool_args=tool_args, tool_context=tool_context)
        if run is None or answer is not None or tool.name in OUTPUTS or _MARK in vars(tool):
            return answer
        if type(tool) is BaseTool or is_control_tool(tool):  # the former stands for a tool that does not exist
            return None
        value = await _build_run_async(tool, run)(args=tool_args, tool_context=tool_context)
        return {"result": None} if value is None else value

    return before_tool


def is_control_tool(tool: Any) -> bool:
    """Whether a tool is no function, but a way to another agent, or out of a loop."""
    if isinstance(tool, (AgentTool, TransferToAgentTool)) or getattr(tool, "func", None) in (
        exit_loop,
        transfer_to_agent,
    ):
        return True
    return isinstance(getattr(tool, "node", None), BaseAgent)


def is_delegation(tool: Any) -> bool:
    """Whether calls of a tool are taken before it is asked: for an agent whose mode is ``task``."""
    return isinstance(tool, AgentTool) and bool(getattr(tool, "_defers_response", False))


def _replace_tool(tool: Any, run: AdkRun) -> Any:
    """A copy of `tool` that asks `run`."""
    if tool.name in OUTPUTS or _MARK in vars(tool) or is_delegation(tool):
        return tool
    twin = copy.copy(tool)
    checks = type(tool).run_async in _VALIDATING and not _is_generator(tool.func)
    vars(twin).update({_MARK: True, "run_async": (_build_checked_run_async if checks else _build_run_async)(tool, run)})
    return twin


def _build_run_async(tool: Any, run: AdkRun) -> Callable[..., Any]:
    async def run_async(*, args: dict[str, Any], tool_context: Any) -> Any:
        def call_real() -> Any:
            return tool.run_async(args=args, tool_context=tool_context)

        return await run.call(tool, args, tool_context.function_call_id, call_real)

    return run_async


def _build_checked_run_async(tool: Any, run: AdkRun) -> Callable[..., Any]:
    """The same for functions, whose arguments the framework checks before it calls them."""

    async def run_async(*, args: dict[str, Any], tool_context: Any) -> Any:
        called = False

        @functools.wraps(tool.func)  # by whose signature the framework checks
        async def call_function(**_: Any) -> Any:
            nonlocal called
            called = True
            return await _build_run_async(tool, run)(args=args, tool_context=tool_context)

        probe = copy.copy(tool)
        probe.func = call_function
        result = await probe.run_async(args=args, tool_context=tool_context)
        confirmations = tool_context.actions.requested_tool_confirmations
        if not called and tool_context.function_call_id not in confirmations:
            why = result.get("error") if isinstance(result, dict) else None
            await run.refuse_call(tool, args, tool_context.function_call_id, str(why or result))
        return result

    return run_async


def _is_generator(function: Any) -> bool:
    return any(
        check(each)
        for check in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        for each in (function, getattr(function, "__call__", None))  # noqa: B004 - an object may be one by its __call__
    )
