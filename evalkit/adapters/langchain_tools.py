"""LangChain's tools, answered by the dispatcher while an agent runs, for that run alone. Imports the framework.

A graph holds its tools where nothing can be put around them, so the one place that all of them pass is taken:
`BaseTool.run` and `arun`. There, in the context of a run, a copy of the tool goes on in place of the tool. It is like
the tool in everything (its schema, its callbacks, its handling of errors, what it makes of a result), but its
function asks the dispatcher. Elsewhere, and in every process that never runs an adapter, tools are what they were.

The hooks stay once they are in: an agent that was left behind may call on, and is refused.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from langchain_core.tools import BaseTool, StructuredTool, Tool, ToolException
from pydantic import ValidationError

from evalkit.adapters.recording import TaskRecorder
from evalkit.adapters.whose import ActiveRuns, run_once
from evalkit.errors import FunctionError
from evalkit.functions.callables import wait_for


class ToolRun(Protocol):
    """Who answers the tools of a run."""

    recorder: TaskRecorder

    def declare_tool(self, tool: Any) -> None:
        """A tool is about to be called."""

    async def call(self, name: str, arguments: Any, call_id: str | None, real: Callable[[], Awaitable[Any]]) -> Any:
        """What the function answers. Raises FunctionError where it fails."""

    async def refuse_call(self, name: str, arguments: Any, call_id: str | None, reason: str) -> None:
        """The arguments do not fit the tool."""


RUNS: ActiveRuns[ToolRun] = ActiveRuns("langchain")


@run_once
def install_hooks() -> None:
    """Have every tool look whose it is when it is called. Once per process, for good."""
    for kind, name, wrap in (
        (BaseTool, "run", _wrap_run),
        (BaseTool, "arun", _wrap_arun),
        (StructuredTool, "ainvoke", _wrap_ainvoke),
        (Tool, "ainvoke", _wrap_ainvoke),
    ):
        setattr(kind, name, wrap(getattr(kind, name)))


def _wrap_run(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        return original(_replace_tool(self, tool_input, kwargs.get("tool_call_id")), tool_input, *args, **kwargs)

    return run


def _wrap_arun(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def arun(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        return await original(_replace_tool(self, tool_input, kwargs.get("tool_call_id")), tool_input, *args, **kwargs)

    return arun


def _wrap_ainvoke(original: Callable[..., Any]) -> Callable[..., Any]:
    """A tool whose function is sync would go to a thread, and parallel calls be recorded in any order."""

    @functools.wraps(original)
    async def ainvoke(self: Any, *args: Any, **kwargs: Any) -> Any:
        if RUNS.find(f"the tool {self.name}") is None:
            return await original(self, *args, **kwargs)
        return await BaseTool.ainvoke(self, *args, **kwargs)

    return ainvoke


def _replace_tool(tool: Any, tool_input: Any, call_id: str | None) -> Any:
    """What runs in place of `tool`; the tool itself outside of every run."""
    run = RUNS.find(f"the tool {tool.name}")
    if run is None:
        return tool
    run.declare_tool(tool)
    return _ToolCall(run, tool, tool_input, call_id).substitute()


class _ToolCall:
    """One call of a tool, on its way to the dispatcher."""

    def __init__(self, run: ToolRun, tool: Any, tool_input: Any, call_id: str | None) -> None:
        self._run = run
        self._tool = tool
        self._call: tuple[str, Any, str | None] = (tool.name, _get_arguments(tool, tool_input), call_id)
        self._misfit: Exception | None = None

    def substitute(self) -> Any:
        """A copy of the tool that asks the dispatcher where it would run its function."""
        sync, coroutine = self._tool._run, self._tool._arun

        @functools.wraps(sync)
        def _run(*args: Any, **kwargs: Any) -> Any:
            return wait_for(self._call_function(lambda: asyncio.to_thread(sync, *args, **kwargs)))

        @functools.wraps(coroutine)
        async def _arun(*args: Any, **kwargs: Any) -> Any:
            return await self._call_function(lambda: coroutine(*args, **kwargs))

        copy = self._tool.model_copy()
        # Not by setattr, which a tool checks as if they were its fields.
        vars(copy).update(_run=_run, _arun=_arun, _to_args_and_kwargs=self._parse_input)
        return copy

    def _parse_input(self, tool_input: Any, tool_call_id: str | None) -> Any:
        """The tool's own reading of its input. What does not fit is raised where the function would run."""
        try:
            return self._tool._to_args_and_kwargs(tool_input, tool_call_id)
        except Exception as error:
            self._misfit = error
            return (), {}

    async def _call_function(self, real: Callable[[], Awaitable[Any]]) -> Any:
        if self._misfit is not None:
            await self._run.refuse_call(*self._call, _explain_misfit(self._misfit))
            raise self._misfit
        try:
            value = await self._run.call(*self._call, real)
        except FunctionError as error:
            raise ToolException(error.message) from error
        mocked_pair = self._tool.response_format == "content_and_artifact" and not isinstance(value, tuple)
        return (value, None) if mocked_pair else value


def _get_arguments(tool: Any, tool_input: Any) -> Any:
    """Without what the framework injects."""
    if isinstance(tool_input, dict):
        return tool._filter_injected_args(tool_input)
    return {next(iter(tool.args), "input"): tool_input}


def _explain_misfit(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    lines = (f"{'.'.join(map(str, item['loc'])) or 'the arguments'}: {item['msg']}" for item in error.errors())
    return "; ".join(lines)
