"""From a ModelRequest to the body of an OpenAI-compatible chat completion."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from evalkit.errors import UsageError
from evalkit.model.case import Declaration
from evalkit.model.transcript import ModelCall, ModelRequest, ModelTurn
from evalkit.providers.turns import parse_arguments

NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


def build_body(request: ModelRequest, *, stream: bool, token_limit: str) -> dict[str, Any]:
    """The request's body without `model`. `token_limit` is the key under which the server takes `max_output_tokens`."""
    body: dict[str, Any] = {"messages": build_messages(request.system, request.messages)}
    if request.functions:
        body["tools"] = [_build_tool(function) for function in request.functions]
    options = {"temperature": request.temperature, "seed": request.seed, token_limit: request.max_output_tokens}
    body |= {key: value for key, value in options.items() if value is not None}
    if request.response_schema is not None:
        schema = {"name": "response", "schema": dict(request.response_schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _build_tool(function: Declaration) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": function.name, "parameters": dict(function.parameters or NO_PARAMETERS)}
    if function.description:
        declared["description"] = function.description
    return {"type": "function", "function": declared}


def build_messages(system: str | None, messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The conversation in the API's form. Calls that came without an id get one, so that answers find them."""
    sent: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    waiting: list[tuple[ModelCall, str]] = []
    for position, message in enumerate(messages):
        role = message.get("role")
        if role == "user":
            sent.append({"role": "user", "content": message["text"]})
        elif role == "model":
            reply = _build_reply(message["turn"], position)
            ids = [call["id"] for call in reply.get("tool_calls", ())]
            waiting = list(zip(message["turn"].calls, ids, strict=False))
            sent.append(reply)
        elif role == "function":
            sent += [
                {
                    "role": "tool",
                    "tool_call_id": _take_call_id(call, waiting) or f"call_{position}_{index}",
                    "content": _serialize_value(value),
                }
                for index, (call, value) in enumerate(message["results"])
            ]
        else:
            raise UsageError(f"a message's role is user, model or function, got {role!r}")
    return sent


def _take_call_id(call: ModelCall, waiting: list[tuple[ModelCall, str]]) -> str | None:
    """The id that an answer to `call` must have; it is not waiting any more. Answers may come in any order."""
    by_id = (place for place, (_, id) in enumerate(waiting) if id == call.call_id)
    by_content = (
        place
        for place, (pending_call, _) in enumerate(waiting)
        if (pending_call.name, pending_call.arguments) == (call.name, call.arguments)
    )
    place = next(by_id, next(by_content, 0))
    return waiting.pop(place)[1] if waiting else None


def _build_reply(turn: ModelTurn, position: int) -> dict[str, Any]:
    message: dict[str, Any] = dict(turn.content) if isinstance(turn.content, Mapping) else {"role": "assistant"}
    if "content" not in message:
        message["content"] = turn.text or None
    if not turn.calls and message["content"] is None:
        message["content"] = ""  # of a reply of which nothing came; null stands only beside calls
    if turn.calls:
        came = message.get("tool_calls") or [
            {
                "function": {"name": call.name, "arguments": _serialize_arguments(call.raw, call.arguments)},
                "id": call.call_id,
            }
            for call in turn.calls
        ]
        message["tool_calls"] = [
            {**_clean_call(call), "type": "function", "id": call.get("id") or f"call_{position}_{index}"}
            for index, call in enumerate(came)
        ]
    return message


def _clean_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """`call` as it came; but arguments that are no JSON object are none: vLLM, Ollama and others read them again, and
    refuse the whole conversation."""
    function = call["function"]
    arguments = function.get("arguments")
    if isinstance(arguments, str) and parse_arguments(arguments)[1] is not None:
        return {**call, "function": {**function, "arguments": "{}"}}
    return call


def _serialize_arguments(raw: str | None, arguments: Any) -> str:
    if raw is not None:
        return raw
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _serialize_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
