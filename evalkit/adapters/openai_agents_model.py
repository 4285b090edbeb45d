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

from evalkit.adapters.asked import Asked
from evalkit.agents.task import Task
from evalkit.model.transcript import ModelTurn
from evalkit.providers.turns import parse_arguments


class TaskModel(Model):
    """`openai_agents.task_model`. A streamed reply comes in one piece."""

    def __init__(self, task: Task) -> None:
        self._asked = Asked(task)

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
        turn, ids = await self._asked.ask(system_instructions, _conversation(items, self._asked), told, schema)
        return ModelResponse(output=_items(turn, ids), usage=_usage(turn), response_id=None)

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


def _conversation(items: Iterable[Mapping[str, Any]], asked: Asked) -> list[dict[str, Any]]:
    """The SDK's flat list of items, grouped: what came in one reply is one message, and so are its results."""
    said: list[dict[str, Any]] = []
    text = ""
    made: list[tuple[str, str, Any]] = []
    results: list[tuple[str, str, Any]] = []
    for item in [*items, {"role": "end"}]:
        kind = item.get("type") or "message"
        if results and kind != "function_call_output":
            said.append(asked.answered(results))
            results = []
        if kind == "function_call":
            made.append((item["call_id"], item["name"], parse_arguments(item["arguments"] or "{}")[0]))
        elif kind == "message" and item["role"] == "assistant" and not made:
            text += _text(item["content"])
        else:
            if text or made:
                said.append(asked.said(text, made))
                text, made = "", []
            if kind == "function_call_output":
                results.append((item["call_id"], "", _value(item["output"])))
            elif kind == "message" and item["role"] != "end":
                said.append({"role": "user", "text": _text(item["content"])})
    return said


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(str(part.get("text") or "") for part in content)


def _value(output: Any) -> Any:
    return output if isinstance(output, str) else [dict(part) for part in output]


def _items(turn: ModelTurn, ids: Sequence[str]) -> list[Any]:
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


def _usage(turn: ModelTurn) -> Usage:
    used = turn.usage
    if used is None:
        return Usage(requests=1)
    given = used.output_tokens + used.reasoning_tokens
    return Usage(requests=1, input_tokens=used.input_tokens, output_tokens=given, total_tokens=used.total_tokens)
