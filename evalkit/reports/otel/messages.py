"""The JSON inside the attributes: messages made of parts, as the conventions' schemas have them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from evalkit.model.codec import plain
from evalkit.model.transcript import FunctionCall, ModelCall, ModelTurn
from evalkit.model.verdict import Verdict
from evalkit.reports.conversation import input_text, user_turns

LONGEST = 200_000  # characters of one attribute; collectors refuse requests of some megabytes

# The conventions' finish reasons; ours that they do not know stay as they are, which they allow.
_FINISH_REASONS = {"tool_calls": "tool_call", "malformed_call": "error", "empty": "error", "truncated": "error"}


def as_json(value: Any) -> str:
    """Text as it is, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)


def text_of(text: str) -> str:
    """`text` as an attribute: escaped is what UTF-8 can't hold, cut what is too long."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text) - LONGEST:,} characters cut)"


def finish_reason(turn: ModelTurn) -> str:
    """Why the turn ended, in the conventions' words."""
    return _FINISH_REASONS.get(turn.finish_reason, turn.finish_reason)


def asked(verdict: Verdict, input: Any) -> list[dict[str, Any]]:
    """What the user said: one message, or one for each of the user's turns."""
    said = user_turns(verdict.case) or [input]
    return [{"role": "user", "parts": [_text(input_text(what))]} for what in said]


def answered(response: str, reason: str) -> list[dict[str, Any]]:
    """The agent's last word."""
    return [{"role": "assistant", "parts": [_text(response)], "finish_reason": reason}]


def replied(turn: ModelTurn) -> list[dict[str, Any]]:
    """One reply of the model, with the calls it asks for."""
    parts = [_text(turn.text)] if turn.text else []
    return [
        {"role": "assistant", "parts": [*parts, *map(_call, turn.calls)], "finish_reason": finish_reason(turn)},
    ]


def definitions(verdict: Verdict) -> list[dict[str, Any]]:
    """The functions that the case declares, if it does."""
    declared = verdict.case.get("functions") if isinstance(verdict.case, Mapping) else None
    return list(_definitions(declared))


def _definitions(declared: Any) -> Iterator[dict[str, Any]]:
    items = declared.items() if isinstance(declared, Mapping) else ()
    listed = (
        [(item.get("name"), item) for item in declared if isinstance(item, Mapping)]
        if isinstance(declared, list)
        else []
    )
    for name, item in (*items, *listed):
        known = item if isinstance(item, Mapping) else {}
        shown = {key: known[key] for key in ("description", "parameters") if key in known}
        yield {"type": "function", "name": name, **shown}


def _text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def _call(call: ModelCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": call.arguments}


def error_type(call: FunctionCall) -> str | None:
    """The kind of failure of a call; None of one that went well."""
    if call.problem is not None:
        return call.problem
    return None if call.outcome == "ok" else str(_error(call).get("type") or "_OTHER")


def error_message(call: FunctionCall) -> str:
    """What a failed call said."""
    return str(_error(call).get("message") or "")


def _error(call: FunctionCall) -> Mapping[str, Any]:
    error = call.result.get("error") if isinstance(call.result, Mapping) else None
    return error if isinstance(error, Mapping) else {}
