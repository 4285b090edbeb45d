"""A transcript as a conversation: what the user said, the model's turns whole, what the functions answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evalkit.model.transcript import FunctionCall, ModelTurn, Transcript
from evalkit.reports.hostile import visible, visible_lines
from evalkit.reports.spans import Line


def conversation(transcript: Transcript) -> list[Line]:
    """Every turn whole, indented by two; calls made by code, outside any model turn, stand at the end."""
    shown = _said("input", input_text(transcript.input))
    for index, turn in enumerate(transcript.turns):
        shown += _turn(index, turn)
        for call in transcript.calls:
            if call.turn == index:
                shown += _answer(call)
    for call in transcript.calls:
        if call.turn is None or call.turn >= len(transcript.turns):
            shown += _answer(call)
    return shown + _said("response", transcript.response)


def _said(who: str, text: str, facts: str = "") -> list[Line]:
    head: Line = ((f"  {who}", "name"), (f" {facts}" if facts else "", "quiet"))
    return [head, *((("  │ ", "quiet"), (line, "")) for line in visible_lines(text).split("\n"))] if text else [head]


def _turn(index: int, turn: ModelTurn) -> list[Line]:
    facts = [turn.finish_reason]
    if turn.usage is not None:
        facts.append(f"{turn.usage.input_tokens} tokens in, {turn.usage.output_tokens} out")
    shown = _said(f"model, turn {index + 1}", turn.text, f"({'; '.join(facts)})")
    if turn.finish_message:
        shown += [(("  │ ", "quiet"), (visible(turn.finish_message), "quiet"))]
    for call in turn.calls:
        text = f"malformed call: {call.malformed}" if call.malformed else f"calls {call.name}({_json(call.arguments)})"
        shown += [(("  │ ", "quiet"), (visible(text), ""))]
    return shown


def _answer(call: FunctionCall) -> list[Line]:
    return _said(
        f"{visible(call.name)}({visible(_json(call.arguments))})", _json(call.result, indent=2), f"→ {call.outcome}"
    )


def input_text(value: Any) -> str:
    if not isinstance(value, Mapping):
        return value if isinstance(value, str) else _json(value)
    if isinstance(value.get("message"), str):
        return str(value["message"])
    email = value.get("email")
    if isinstance(email, Mapping):
        head = [f"{key}: {email[key]}" for key in email if key != "body"]
        return "\n".join([*head, "", str(email.get("body", ""))])
    return _json(value, indent=2)


def _json(value: Any, indent: int | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
