"""LangChain's model replies as model turns, told by the framework's own callbacks. Imports the framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from evalkit.model.transcript import ModelCall, ModelTurn, Usage
from evalkit.providers.gemini_reply import FINISH_REASONS

# What services write under `finish_reason`, `stop_reason` or `done_reason`, in lower case.
FINISHES = {
    **{name.lower(): finish for name, finish in FINISH_REASONS.items()},
    **dict.fromkeys(("end_turn", "stop_sequence", "tool_calls", "tool_use", "function_call"), "stop"),
    **{finish: finish for finish in ("length", "content_filter", "malformed_call", "truncated", "empty")},
    "refusal": "content_filter",
}


class TurnListener(Protocol):
    """Who is told of a run's model turns."""

    def begin_request(self, request: Any, messages: Sequence[Any], place: str) -> None:
        """A model is asked. `request` is the id of the request, `place` that of the node in its graph."""

    def record_turn(self, request: Any, turn: ModelTurn) -> None:
        """It has answered."""

    def drop_request(self, request: Any) -> None:
        """It has not."""


class TurnHandler(BaseCallbackHandler):
    """Tells a run of its model turns."""

    run_inline = True  # in the order of events, and in their context
    raise_error = True

    def __init__(self, listener: TurnListener) -> None:
        self._listener = listener

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: Any, **kwargs: Any) -> None:
        said = [message for batch in messages for message in batch]
        self._listener.begin_request(
            run_id, said, str((kwargs.get("metadata") or {}).get("langgraph_checkpoint_ns", ""))
        )

    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: Any, **kwargs: Any) -> None:
        self._listener.begin_request(run_id, (), "")

    def on_llm_end(self, response: Any, *, run_id: Any, **kwargs: Any) -> None:
        first = response.generations[0][0]
        self._listener.record_turn(run_id, to_model_turn(getattr(first, "message", first.text)))

    def on_llm_error(self, error: Any, *, run_id: Any, **kwargs: Any) -> None:
        self._listener.drop_request(run_id)


# In force for every model of the context, also where an agent calls another one with a configuration of its own.
HANDLER: ContextVar[TurnHandler | None] = ContextVar("evalkit_langchain_handler", default=None)
register_configure_hook(HANDLER, inheritable=True)


def to_model_turn(message: Any) -> ModelTurn:
    """The model turn that an AIMessage, or the text of a model without messages, is."""
    if isinstance(message, str):
        return ModelTurn(text=message, finish_reason="stop" if message else "empty")
    calls = (
        *(ModelCall(name=it["name"], arguments=it["args"], call_id=it["id"]) for it in message.tool_calls),
        *map(_to_malformed_call, message.invalid_tool_calls),
    )
    metadata = message.response_metadata
    text = str(message.text)
    return ModelTurn(
        text=text,
        calls=calls,
        finish_reason=_get_finish_reason(metadata, calls, text),
        usage=_to_usage(message.usage_metadata),
        model=next((metadata[key] for key in ("model_name", "model") if isinstance(metadata.get(key), str)), None),
    )


def _to_malformed_call(call: Mapping[str, Any]) -> ModelCall:
    reason = call.get("error") or "they are no JSON object"
    return ModelCall(name=call["name"] or "", arguments=call["args"], call_id=call["id"], malformed=reason)


def _get_finish_reason(metadata: Mapping[str, Any], calls: Iterable[ModelCall], text: str) -> str:
    reasons = (metadata.get(key) for key in ("finish_reason", "stop_reason", "done_reason"))
    reason = next((reason for reason in reasons if isinstance(reason, str)), "stop")
    finish = FINISHES.get(reason.lower(), "other")
    if finish != "stop":
        return finish
    return "tool_calls" if calls else "stop" if text else "empty"


def _to_usage(counted: Mapping[str, Any] | None) -> Usage | None:
    if not counted:
        return None
    output_tokens, input_tokens = counted.get("output_tokens", 0), counted.get("input_tokens", 0)
    reasoning = (counted.get("output_token_details") or {}).get("reasoning") or 0
    return Usage(
        input_tokens=input_tokens,
        output_tokens=max(output_tokens - reasoning, 0),
        reasoning_tokens=reasoning,
        cached_tokens=(counted.get("input_token_details") or {}).get("cache_read") or 0,
        total_tokens=counted.get("total_tokens", input_tokens + output_tokens),
    )
