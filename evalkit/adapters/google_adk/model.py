"""The task's own model as Google ADK's. Imports the framework."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import Field

from evalkit.adapters.common.task_model import TaskModelConversation
from evalkit.adapters.google_adk.hooks import get_functions, get_parameters
from evalkit.agents.task import Task
from evalkit.errors import FunctionError
from evalkit.model.transcript import ModelTurn, Usage

_FINISH = {
    "stop": types.FinishReason.STOP,
    "tool_calls": types.FinishReason.STOP,
    "length": types.FinishReason.MAX_TOKENS,
    "content_filter": types.FinishReason.SAFETY,
    "malformed_call": types.FinishReason.MALFORMED_FUNCTION_CALL,
}


class AdkTaskModel(BaseLlm):
    """A model that asks a task's."""

    model: str = "evalkit"
    task: Any = Field(exclude=True, repr=False)
    asked: Any = Field(exclude=True, repr=False)

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        told = [(each.name, each.description, get_parameters(each)) for each in get_functions(llm_request)]
        said = _to_messages(llm_request.contents, self.asked)
        config = llm_request.config
        turn, ids = await self.asked.ask(_get_text(config.system_instruction) or None, said, told, _get_schema(config))
        broken = [call for call in turn.calls if call.malformed is not None or not isinstance(call.arguments, dict)]
        if not broken:
            yield _to_response(turn, ids)
            return
        # ADK's own models end a reply like that with this error: its calls are on record, and made by nobody.
        index = max(at for at, known in enumerate(self.task.turns) if known is turn)
        for call in broken:
            with suppress(FunctionError):
                await self.task.execute_call(call, turn=index)
        why = f"the arguments of {broken[0].name} could not be read"
        yield LlmResponse(
            error_code="MALFORMED_FUNCTION_CALL", error_message=why, usage_metadata=_to_usage_metadata(turn.usage)
        )


def build_task_model(task: Task) -> AdkTaskModel:
    """`google_adk.task_model`."""
    return AdkTaskModel(task=task, asked=TaskModelConversation(task))


def _to_messages(contents: Sequence[Any], conversation: TaskModelConversation) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for content in contents:
        parts = content.parts or []
        if content.role == "model":
            calls = [part.function_call for part in parts if part.function_call]
            messages.append(
                conversation.build_model_message(
                    _get_text(content), [(call.id or "", call.name, call.args) for call in calls]
                )
            )
            continue
        results = [part.function_response for part in parts if part.function_response]
        if results:
            messages.append(
                conversation.build_result_message((result.id or "", result.name, result.response) for result in results)
            )
        if text := _get_text(content):
            messages.append({"role": "user", "text": text})
    return messages


def _get_text(content: Any) -> str:
    """The text of a content, of several, or of a plain string."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Sequence):
        return "\n\n".join(_get_text(each) for each in content)
    parts = content.parts if hasattr(content, "parts") else [content]
    return "".join(part.text for part in parts or () if part.text and not part.thought)


def _get_schema(config: Any) -> Any:
    if config.response_json_schema is not None:
        return config.response_json_schema
    return config.response_schema.model_json_schema() if hasattr(config.response_schema, "model_json_schema") else None


def _to_response(turn: ModelTurn, ids: Sequence[str]) -> LlmResponse:
    parts = [types.Part(text=turn.text)] if turn.text else []
    for call, known in zip(turn.calls, ids, strict=True):
        function_call = types.FunctionCall(id=known, name=call.name, args=call.arguments)
        parts.append(types.Part(function_call=function_call))
    return LlmResponse(
        content=types.Content(role="model", parts=parts),
        finish_reason=_FINISH.get(turn.finish_reason, types.FinishReason.OTHER),
        usage_metadata=_to_usage_metadata(turn.usage),
        model_version=turn.model,
    )


def _to_usage_metadata(usage: Usage | None) -> Any:
    if usage is None:
        return None
    return types.GenerateContentResponseUsageMetadata(
        prompt_token_count=usage.input_tokens,
        candidates_token_count=usage.output_tokens,
        thoughts_token_count=usage.reasoning_tokens,
        cached_content_token_count=usage.cached_tokens,
        total_token_count=usage.total_tokens,
    )
