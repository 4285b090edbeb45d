"""The task's own model as one of the OpenAI Agents SDK. Imports the framework."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from agents import FunctionTool, Model, ModelResponse, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from evalkit.adapters.common.task_model import TaskModelConversation
from evalkit.agents.task import Task
from evalkit.jsonvalue import parse_arguments
from evalkit.model.transcript import ModelTurn


class AgentsSdkTaskModel(Model):
    """`openai_agents.task_model`. A streamed reply comes in one piece."""

    def __init__(self, task: Task) -> None:
        self._conversation = TaskModelConversation(task)

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,
        model_settings: Any,
        tools: Sequence[Any],
        output_schema: Any,
        handoffs: Sequence[Any],
        *args: Any,
        **kwargs: Any,
    ) -> ModelResponse:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        told = [
            (tool.name, tool.description, tool.params_json_schema) for tool in tools if isinstance(tool, FunctionTool)
        ]
        told += [(tool.tool_name, tool.tool_description, tool.input_json_schema) for tool in handoffs]
        structured = output_schema is not None and not output_schema.is_plain_text()
        schema = output_schema.json_schema() if structured else None
        turn, ids = await self._conversation.ask(
            system_instructions, _to_messages(items, self._conversation), told, schema
        )
        return ModelResponse(output=_to_output_items(turn, ids), usage=_to_usage(turn), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        whole = await self.get_response(*args, **kwargs)
        response = Response(
            id="evalkit",
            created_at=0,
            model="evalkit",
            object="response",
            output=whole.output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(response=response, type="response.completed", sequence_number=0)


def _to_messages(items: Iterable[Mapping[str, Any]], conversation: TaskModelConversation) -> list[dict[str, Any]]:
    """The SDK's flat list of items, grouped: what came in one reply is one message, and so are its results."""
    messages: list[dict[str, Any]] = []
    text = ""
    calls: list[tuple[str, str, Any]] = []
    results: list[tuple[str, str, Any]] = []
    for item in [*items, {"role": "end"}]:
        kind = item.get("type") or "message"
        if results and kind != "function_call_output":
            messages.append(conversation.build_result_message(results))
            results = []
        if kind == "function_call":
            calls.append((item["call_id"], item["name"], parse_arguments(item["arguments"] or "{}")[0]))
        elif kind == "message" and item["role"] == "assistant" and not calls:
            text += _get_text(item["content"])
        else:
            if text or calls:
                messages.append(conversation.build_model_message(text, calls))
                text, calls = "", []
            if kind == "function_call_output":
                results.append((item["call_id"], "", _to_result(item["output"])))
            elif kind == "message" and item["role"] != "end":
                messages.append({"role": "user", "text": _get_text(item["content"])})
    return messages


def _get_text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(str(part.get("text") or "") for part in content)


def _to_result(output: Any) -> Any:
    return output if isinstance(output, str) else [dict(part) for part in output]


def _to_output_items(turn: ModelTurn, ids: Sequence[str]) -> list[Any]:
    items: list[Any] = []
    if turn.text or not turn.calls:
        part = ResponseOutputText(type="output_text", text=turn.text, annotations=[])
        status: Any = "completed"
        items.append(
            ResponseOutputMessage(id="evalkit", type="message", role="assistant", status=status, content=[part])
        )
    for call, call_id in zip(turn.calls, ids, strict=True):
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        items.append(
            ResponseFunctionToolCall(type="function_call", call_id=call_id, name=call.name, arguments=arguments)
        )
    return items


def _to_usage(turn: ModelTurn) -> Usage:
    used = turn.usage
    if used is None:
        return Usage(requests=1)
    output_tokens = used.output_tokens + used.reasoning_tokens
    return Usage(
        requests=1, input_tokens=used.input_tokens, output_tokens=output_tokens, total_tokens=used.total_tokens
    )
