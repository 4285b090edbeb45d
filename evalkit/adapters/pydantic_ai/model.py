"""The task's own model as pydantic-ai's. Imports the framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_jsonable_python

from evalkit.adapters.common.task_model import TaskModelConversation
from evalkit.agents.task import Task
from evalkit.model.transcript import ModelTurn, Usage

_FINISH = {"stop": "stop", "tool_calls": "tool_call", "length": "length", "content_filter": "content_filter"}


def build_task_model(task: Task) -> Any:
    """`pydantic_ai.task_model`."""
    conversation = TaskModelConversation(task)

    async def get_response(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tools = [*info.function_tools, *info.output_tools]
        told = [(tool.name, tool.description, tool.parameters_json_schema) for tool in tools]
        turn, ids = await conversation.ask(
            _join_system_prompts(messages, info), _to_messages(messages, conversation), told
        )
        return _to_response(turn, ids)

    return FunctionModel(get_response, model_name="evalkit")


def _join_system_prompts(messages: Sequence[Any], info: Any) -> str | None:
    prompts = [part.content for message in messages for part in message.parts if part.part_kind == "system-prompt"]
    return "\n\n".join([*prompts, *([info.instructions] if info.instructions else [])]) or None


def _to_messages(messages: Sequence[Any], conversation: TaskModelConversation) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for message in messages:
        if message.kind == "response":
            calls = [part for part in message.parts if part.part_kind == "tool-call"]
            text = "".join(part.content for part in message.parts if part.part_kind == "text")
            entries.append(
                conversation.build_model_message(
                    text, ((part.tool_call_id, part.tool_name, part.args_as_dict()) for part in calls)
                )
            )
            continue
        results = [part for part in message.parts if getattr(part, "tool_name", None) is not None]
        if results:
            entries.append(
                conversation.build_result_message(
                    (part.tool_call_id, part.tool_name, _to_result(part)) for part in results
                )
            )
        entries += [{"role": "user", "text": text} for part in message.parts if (text := _get_text(part))]
    return entries


def _to_result(part: Any) -> Any:
    """What a tool answered; a refusal as the model is told of it."""
    if part.part_kind == "retry-prompt":
        return {"error": {"type": "retry", "message": part.model_response()}}
    return to_jsonable_python(part.content, serialize_unknown=True)


def _get_text(part: Any) -> str:
    if part.part_kind == "retry-prompt" and part.tool_name is None:
        return str(part.model_response())
    if part.part_kind != "user-prompt":
        return ""
    pieces = [part.content] if isinstance(part.content, str) else part.content
    return "\n".join(piece if isinstance(piece, str) else str(piece) for piece in pieces)


def _to_response(turn: ModelTurn, ids: Sequence[str]) -> ModelResponse:
    parts: list[Any] = [TextPart(turn.text)] if turn.text else []
    for call, call_id in zip(turn.calls, ids, strict=True):
        parts.append(ToolCallPart(call.name, call.arguments, tool_call_id=call_id))
    return ModelResponse(
        parts=parts,
        usage=_to_usage(turn.usage),
        model_name=turn.model,
        finish_reason=_FINISH.get(turn.finish_reason),
    )


def _to_usage(usage: Usage | None) -> RequestUsage:
    if usage is None:
        return RequestUsage()
    return RequestUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens + usage.reasoning_tokens,
        cache_read_tokens=usage.cached_tokens,
        details={"reasoning_tokens": usage.reasoning_tokens},
    )
