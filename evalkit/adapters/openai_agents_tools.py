"""Copies of the SDK's tools whose calls the dispatcher answers. Imports the framework.

All else of a tool is as it was: its schema, approval, guardrails, time limit, and what it tells the model of failures.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from agents import FunctionTool, ModelBehaviorError
from agents.function_schema import function_schema
from agents.tool import (
    maybe_invoke_function_tool_failure_error_function,
    with_function_tool_failure_error_handler,
)
from pydantic import ValidationError

from evalkit.adapters.recording import AgentRunRecorder
from evalkit.errors import MeasurementError
from evalkit.providers.turns import parse_arguments

# What a tool of the SDK's runs on this machine when it is called, besides functions.
_RUN_HERE = ("executor", "editor", "computer")


class UnmockableToolError(MeasurementError):
    """A tool does things on this machine, and no mock could answer for it."""

    code = "unmockable_tool"


def replace_function_tool(tool: Any, dialogue: AgentRunRecorder, *, as_is: bool) -> Any:
    """`tool`, a FunctionTool. An agent used as a tool runs unless the case mocks it."""
    copied = copy(tool)
    runs_itself = as_is or getattr(tool, "_is_agent_tool", False)

    async def on_invoke_tool(ctx: Any, input: str) -> Any:
        async def call_real() -> Any:
            return await tool.on_invoke_tool(ctx, input)

        arguments, _ = parse_arguments(input or "{}")
        try:
            _check_arguments(tool, input)
        except ModelBehaviorError as error:
            await dialogue.refuse_call(
                ctx.tool_name, arguments, ctx.tool_call_id, _explain_misfit(error), as_is=runs_itself
            )
            return await _format_failure(copied, ctx, error)
        try:
            return await dialogue.call(ctx.tool_name, arguments, ctx.tool_call_id, real=call_real, as_is=runs_itself)
        except MeasurementError:
            raise
        except Exception as error:
            return await _format_failure(copied, ctx, error)

    copied.on_invoke_tool = _make_inspectable(on_invoke_tool, tool, copied)
    return copied


def _make_inspectable(invoker: Any, tool: Any, copied: Any) -> Any:
    """`invoker`, with what newer versions of the SDK inspect arguments with before they ask a policy of approval."""
    prepare = getattr(getattr(tool.on_invoke_tool, "_invoke_tool_impl", None), "__agents_prepare_arguments__", None)
    if prepare is None:
        return invoker
    invoker.__agents_prepare_arguments__ = prepare
    return with_function_tool_failure_error_handler(invoker, lambda *_: None).__agents_bind_function_tool__(copied)


def replace_custom_tool(tool: Any, dialogue: AgentRunRecorder, *, as_is: bool) -> Any:
    """`tool`, a CustomTool, whose text is the argument ``input``."""
    copied = copy(tool)

    async def on_invoke_tool(ctx: Any, input: str) -> Any:
        async def call_real() -> Any:
            answer = tool.on_invoke_tool(ctx, input)
            return await answer if hasattr(answer, "__await__") else answer

        return await dialogue.call(ctx.tool_name, {"input": input}, ctx.tool_call_id, real=call_real, as_is=as_is)

    copied.on_invoke_tool = on_invoke_tool
    return copied


def refuse_local_tool(tool: Any) -> None:
    """Raise UnmockableToolError for a tool that acts on this machine. What the model's service runs may stay."""
    if any(getattr(tool, name, None) is not None for name in _RUN_HERE):
        raise UnmockableToolError(
            f"the agent's tool '{tool.name}' ({type(tool).__name__}) acts on this machine, and is no function that a "
            "mock could answer: test the agent without it, or let it run, with "
            f"run_agent(..., as_is=['{tool.name}'])"
        )


def _check_arguments(tool: Any, input: str) -> None:
    """Raise the SDK's ModelBehaviorError where its own reading of the arguments would."""
    arguments, why = parse_arguments(input or "{}")
    if why is not None:
        raise ModelBehaviorError(f"Invalid JSON input for tool {tool.name}: {why}")
    model = _get_arguments_model(tool)
    if model is None:
        return
    try:
        model(**arguments)
    except ValidationError as error:
        raise ModelBehaviorError(f"Invalid JSON input for tool {tool.name}: {error}") from error


def _get_arguments_model(tool: Any) -> Callable[..., Any] | None:
    """What checks the arguments of a tool made of a Python function; None for others, which check theirs themselves."""
    function = getattr(tool, "__wrapped__", None)
    if function is None:
        return None
    schema = function_schema(
        function, name_override=tool.name, use_docstring_info=False, strict_json_schema=tool.strict_json_schema
    )
    model: Callable[..., Any] = schema.params_pydantic_model
    return model


async def _format_failure(tool: FunctionTool, ctx: Any, error: Exception) -> Any:
    """What the tool tells the model of a failure; raises `error` where it tells nothing."""
    text = await maybe_invoke_function_tool_failure_error_function(function_tool=tool, context=ctx, error=error)
    if text is None:
        raise error
    return text


def _explain_misfit(error: ModelBehaviorError) -> str:
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in cause.errors())
