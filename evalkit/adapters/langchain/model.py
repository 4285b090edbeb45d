"""The task's own model as LangChain's. Imports the framework."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from evalkit.adapters.common.task_model import TaskModelConversation
from evalkit.functions.targets import wait_for
from evalkit.model.transcript import ModelCall, ModelTurn, Usage


class LangChainTaskModel(BaseChatModel):
    """A chat model that asks a task's."""

    asked: Any = Field(exclude=True, repr=False)

    @property
    def _llm_type(self) -> str:
        return "evalkit"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    async def _agenerate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        functions = [tool["function"] for tool in kwargs.get("tools") or ()]
        told = [(each["name"], each.get("description"), each.get("parameters")) for each in functions]
        system = "\n\n".join(str(message.text) for message in messages if message.type == "system")
        turn, ids = await self.asked.ask(system or None, _to_messages(messages, self.asked), told)
        return ChatResult(generations=[ChatGeneration(message=_to_ai_message(turn, ids))])

    def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        result: ChatResult = wait_for(self._agenerate(messages, *args, **kwargs))
        return result


def _to_messages(messages: Sequence[Any], conversation: TaskModelConversation) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    results: list[tuple[str, str, Any]] = []
    for message in messages:
        if message.type == "tool":
            results.append((message.tool_call_id, message.name or "", _parse_result(message)))
            continue
        if results:
            entries.append(conversation.build_result_message(results))
            results = []
        if message.type == "ai":
            entries.append(
                conversation.build_model_message(
                    str(message.text), [(it["id"], it["name"], it["args"]) for it in _get_calls(message)]
                )
            )
        elif message.type != "system":
            entries.append({"role": "user", "text": str(message.text)})
    return [*entries, conversation.build_result_message(results)] if results else entries


def _get_calls(message: Any) -> list[Any]:
    return [*message.tool_calls, *message.invalid_tool_calls]


def _parse_result(message: Any) -> Any:
    """What a tool answered, as data if it is some."""
    text = str(message.text)
    if message.status == "error":
        return {"error": {"type": "error", "message": text}}
    try:
        return json.loads(text) if text.startswith(("{", "[")) else text
    except ValueError:
        return text


def _to_ai_message(turn: ModelTurn, ids: Sequence[str]) -> AIMessage:
    calls = list(zip(ids, turn.calls, strict=True))
    return AIMessage(
        turn.text,
        tool_calls=[
            {"id": known, "name": call.name, "args": call.arguments} for known, call in calls if not _is_broken(call)
        ],
        invalid_tool_calls=[
            {
                "id": known,
                "name": call.name,
                "args": _format_arguments(call),
                "error": call.malformed or "it is no JSON object",
            }
            for known, call in calls
            if _is_broken(call)
        ],
        usage_metadata=_to_usage_metadata(turn.usage),
        response_metadata={"finish_reason": turn.finish_reason, "model_name": turn.model or "evalkit"},
    )


def _is_broken(call: ModelCall) -> bool:
    return call.malformed is not None or not isinstance(call.arguments, dict)


def _format_arguments(call: ModelCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def _to_usage_metadata(usage: Usage | None) -> Any:
    if usage is None:
        return None
    output_tokens = usage.output_tokens + usage.reasoning_tokens
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": usage.total_tokens or usage.input_tokens + output_tokens,
        "input_token_details": {"cache_read": usage.cached_tokens},
        "output_token_details": {"reasoning": usage.reasoning_tokens},
    }
