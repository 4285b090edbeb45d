"""The JSON inside the attributes: messages made of parts, as the conventions' schemas have them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.model.codec import to_plain_json
from evalkit.model.transcript import FunctionCall, ModelCall, ModelTurn
from evalkit.model.verdict import Verdict
from evalkit.reports.conversation import format_input, list_user_turns

LONGEST = 200_000  # characters of one attribute; collectors refuse requests of some megabytes

# The conventions' finish reasons; ours that they do not know stay as they are, which they allow.
_FINISH_REASONS = {"tool_calls": "tool_call", "malformed_call": "error", "empty": "error", "truncated": "error"}


def to_json_text(value: Any) -> str:
    """Text as it is, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(to_plain_json(value), ensure_ascii=False)


def to_attribute_text(text: str) -> str:
    """`text` as an attribute: escaped is what UTF-8 can't hold, cut what is too long."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text) - LONGEST:,} characters cut)"


def map_finish_reason(turn: ModelTurn) -> str:
    """Why the turn ended, in the conventions' words."""
    return _FINISH_REASONS.get(turn.finish_reason, turn.finish_reason)


def build_user_messages(verdict: Verdict, input: Any) -> list[dict[str, Any]]:
    """What the user said: one message, or one for each of the user's turns."""
    inputs = list_user_turns(verdict.case) or [input]
    return [{"role": "user", "parts": [_build_text_part(format_input(content))]} for content in inputs]


def build_answer_message(response: str, reason: str) -> list[dict[str, Any]]:
    """The agent's last word."""
    return [{"role": "assistant", "parts": [_build_text_part(response)], "finish_reason": reason}]


def build_reply_message(turn: ModelTurn) -> list[dict[str, Any]]:
    """One reply of the model, with the calls it asks for."""
    parts = [_build_text_part(turn.text)] if turn.text else []
    return [
        {
            "role": "assistant",
            "parts": [*parts, *map(_build_call_part, turn.calls)],
            "finish_reason": map_finish_reason(turn),
        },
    ]


def list_tool_definitions(verdict: Verdict) -> list[dict[str, Any]]:
    """The functions that the case declares, if it does."""
    declared = verdict.case.get("functions") if isinstance(verdict.case, Mapping) else None
    return list(_iter_tool_definitions(declared))


def _iter_tool_definitions(declared: Any) -> Iterator[dict[str, Any]]:
    items = declared.items() if isinstance(declared, Mapping) else ()
    listed = (
        [(item.get("name"), item) for item in declared if isinstance(item, Mapping)]
        if isinstance(declared, list)
        else []
    )
    for name, item in (*items, *listed):
        declaration = item if isinstance(item, Mapping) else {}
        fields = {key: declaration[key] for key in ("description", "parameters") if key in declaration}
        yield {"type": "function", "name": name, **fields}


def _build_text_part(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def _build_call_part(call: ModelCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": call.arguments}


def find_error_type(call: FunctionCall) -> str | None:
    """The kind of failure of a call; None of one that went well."""
    if call.problem is not None:
        return call.problem
    return None if call.outcome == "ok" else str(_find_error(call).get("type") or "_OTHER")


def find_error_message(call: FunctionCall) -> str:
    """What a failed call said."""
    return str(_find_error(call).get("message") or "")


def _find_error(call: FunctionCall) -> Mapping[str, Any]:
    error = call.result.get("error") if isinstance(call.result, Mapping) else None
    return error if isinstance(error, Mapping) else {}
