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

from evalkit.adapters.asked import Asked
from evalkit.functions.callables import wait_for
from evalkit.model.transcript import ModelCall, ModelTurn, Usage


class TaskModel(BaseChatModel):
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
        turn, ids = await self.asked.ask(system or None, _conversation(messages, self.asked), told)
        return ChatResult(generations=[ChatGeneration(message=_message(turn, ids))])

    def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        result: ChatResult = wait_for(self._agenerate(messages, *args, **kwargs))
        return result


def _conversation(messages: Sequence[Any], asked: Asked) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    results: list[tuple[str, str, Any]] = []
    for message in messages:
        if message.type == "tool":
            results.append((message.tool_call_id, message.name or "", _value(message)))
            continue
        if results:
            said.append(asked.answered(results))
            results = []
        if message.type == "ai":
            said.append(asked.said(str(message.text), [(it["id"], it["name"], it["args"]) for it in _calls(message)]))
        elif message.type != "system":
            said.append({"role": "user", "text": str(message.text)})
    return [*said, asked.answered(results)] if results else said


def _calls(message: Any) -> list[Any]:
    return [*message.tool_calls, *message.invalid_tool_calls]


def _value(message: Any) -> Any:
    """What a tool answered, as data if it is some."""
    text = str(message.text)
    if message.status == "error":
        return {"error": {"type": "error", "message": text}}
    try:
        return json.loads(text) if text.startswith(("{", "[")) else text
    except ValueError:
        return text


def _message(turn: ModelTurn, ids: Sequence[str]) -> AIMessage:
    made = list(zip(ids, turn.calls, strict=True))
    return AIMessage(
        turn.text,
        tool_calls=[
            {"id": known, "name": call.name, "args": call.arguments} for known, call in made if not _is_broken(call)
        ],
        invalid_tool_calls=[
            {"id": known, "name": call.name, "args": _text(call), "error": call.malformed or "it is no JSON object"}
            for known, call in made
            if _is_broken(call)
        ],
        usage_metadata=_usage(turn.usage),
        response_metadata={"finish_reason": turn.finish_reason, "model_name": turn.model or "evalkit"},
    )


def _is_broken(call: ModelCall) -> bool:
    return call.malformed is not None or not isinstance(call.arguments, dict)


def _text(call: ModelCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def _usage(usage: Usage | None) -> Any:
    if usage is None:
        return None
    given = usage.output_tokens + usage.reasoning_tokens
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": given,
        "total_tokens": usage.total_tokens or usage.input_tokens + given,
        "input_token_details": {"cache_read": usage.cached_tokens},
        "output_token_details": {"reasoning": usage.reasoning_tokens},
    }
