"""A transcript as a conversation: what the user said, the model's turns whole, what the functions answered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.model.transcript import FunctionCall, ModelTurn, Transcript
from evalkit.reports.hostile import visible, visible_lines
from evalkit.reports.spans import Line


def conversation(transcript: Transcript, users: Sequence[Any] = ()) -> list[Line]:
    """Every turn whole, indented by two; calls made by code, outside any model turn, stand behind those of the models.

    `users`: what the user said, turn by turn, where the case is a conversation.
    """
    if not users:
        part = _part(transcript, 0, [0] * len(transcript.turns))
        return [*_said("input", input_text(transcript.input)), *part, *_said("response", transcript.response)]
    shown = _said("input", input_text(transcript.input)) if transcript.input else []
    places = _places(transcript, len(users))
    for number, user in enumerate(users[: len(transcript.responses) + 1]):  # the others were not come to
        shown += _said(f"user, turn {number + 1}", input_text(user))
        shown += _part(transcript, number, places)
        if number < len(transcript.responses):
            shown += _said("response", transcript.responses[number])
    return shown


def user_turns(case: Mapping[str, Any]) -> list[Any]:
    """What the user says in each turn of a merged case; empty if it is no conversation."""
    given = case.get("input") if isinstance(case, Mapping) else None
    turns = given.get("turns") if isinstance(given, Mapping) else None
    listed = turns if isinstance(turns, list) else []
    return [turn["user"] if isinstance(turn, Mapping) and "user" in turn else turn for turn in listed]


def _part(transcript: Transcript, number: int, places: Sequence[int]) -> list[Line]:
    """What was said and called in the user's turn `number`."""
    shown: list[Line] = []
    for index, turn in enumerate(transcript.turns):
        if places[index] == number:
            shown += _turn(index, turn)
            for call in transcript.calls:
                if call.turn == index:
                    shown += _answer(call)
    for call in transcript.calls:
        is_beside = call.turn is None or call.turn >= len(transcript.turns)
        if is_beside and (call.user_turn == number or not transcript.responses):
            shown += _answer(call)
    return shown


def _places(transcript: Transcript, count: int) -> list[int]:
    """In which of the user's turns each model turn was: its calls say so; a reply without calls ends a turn."""
    of_calls = {call.turn: call.user_turn for call in transcript.calls}
    places: list[int] = []
    now = 0
    for index, turn in enumerate(transcript.turns):
        now = of_calls.get(index, now)
        places.append(min(now, count - 1))
        now += not turn.calls
    return places


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
