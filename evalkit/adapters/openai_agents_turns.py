"""A ModelResponse of the OpenAI Agents SDK as a model turn. Imports nothing of it."""

from __future__ import annotations

from typing import Any

from evalkit.model.transcript import ModelCall, ModelTurn, Usage
from evalkit.providers.turns import parse_arguments


def to_model_turn(response: Any, agent: Any) -> ModelTurn:
    """The turn, with `agent`'s model. Items that the model's service has carried out itself are no calls."""
    calls = tuple(call for item in response.output if (call := _to_call(item)) is not None)
    parts = [part for item in response.output if getattr(item, "type", "") == "message" for part in item.content]
    text = "".join(part.text for part in parts if part.type == "output_text")
    refusals = [part.refusal for part in parts if part.type == "refusal"]
    done = "tool_calls" if calls else "content_filter" if refusals else "stop" if text else "empty"
    return ModelTurn(
        text=text,
        calls=calls,
        finish_reason=done,
        finish_message=refusals[0] if refusals else None,
        usage=_to_usage(response.usage),
        model=_get_model_name(agent),
    )


def _to_call(item: Any) -> ModelCall | None:
    kind = getattr(item, "type", "")
    if kind == "custom_tool_call":
        return ModelCall(name=item.name, arguments={"input": item.input}, call_id=item.call_id)
    if kind != "function_call":
        return None
    arguments, why = parse_arguments(item.arguments or "{}")
    read = item.arguments if why else arguments
    return ModelCall(name=item.name, arguments=read, call_id=item.call_id, malformed=why, raw=item.arguments)


def _to_usage(usage: Any) -> Usage | None:
    if usage is None or not usage.total_tokens:
        return None
    reasoning = usage.output_tokens_details.reasoning_tokens or 0
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=max(usage.output_tokens - reasoning, 0),
        reasoning_tokens=reasoning,
        cached_tokens=usage.input_tokens_details.cached_tokens or 0,
        total_tokens=usage.total_tokens,
    )


def _get_model_name(agent: Any) -> str | None:
    model = getattr(agent, "model", None)
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) else None
