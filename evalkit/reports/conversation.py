"""A transcript as a conversation: what the user said, the model's turns whole, what the functions answered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.model.transcript import FunctionCall, ModelTurn, Transcript
from evalkit.reports.hostile import escape_controls, escape_lines
from evalkit.reports.spans import Line


def build_conversation(transcript: Transcript, users: Sequence[Any] = ()) -> list[Line]:
    """Every turn whole, indented by two; calls made by code, outside any model turn, stand behind those of the models.

    `users`: what the user said, turn by turn, where the case is a conversation.
    """
    if not users:
        part = _build_part(transcript, 0, [0] * len(transcript.turns))
        return [
            *_build_speech("input", format_input(transcript.input)),
            *part,
            *_build_speech("response", transcript.response),
        ]
    conversation_lines = _build_speech("input", format_input(transcript.input)) if transcript.input else []
    places = _place_turns(transcript, len(users))
    for number, user in enumerate(users[: len(transcript.responses) + 1]):  # the others were not come to
        conversation_lines += _build_speech(f"user, turn {number + 1}", format_input(user))
        conversation_lines += _build_part(transcript, number, places)
        if number < len(transcript.responses):
            conversation_lines += _build_speech("response", transcript.responses[number])
    return conversation_lines


def list_user_turns(case: Mapping[str, Any]) -> list[Any]:
    """What the user says in each turn of a merged case; empty if it is no conversation."""
    case_input = case.get("input") if isinstance(case, Mapping) else None
    turns = case_input.get("turns") if isinstance(case_input, Mapping) else None
    listed = turns if isinstance(turns, list) else []
    return [turn["user"] if isinstance(turn, Mapping) and "user" in turn else turn for turn in listed]


def _build_part(transcript: Transcript, number: int, places: Sequence[int]) -> list[Line]:
    """What was said and called in the user's turn `number`."""
    part_lines: list[Line] = []
    for index, turn in enumerate(transcript.turns):
        if places[index] == number:
            part_lines += _build_model_turn(index, turn)
            for call in transcript.calls:
                if call.turn == index:
                    part_lines += _build_answer(call)
    for call in transcript.calls:
        is_beside = call.turn is None or call.turn >= len(transcript.turns)
        if is_beside and (call.user_turn == number or not transcript.responses):
            part_lines += _build_answer(call)
    return part_lines


def _place_turns(transcript: Transcript, count: int) -> list[int]:
    """In which of the user's turns each model turn was: its calls say so; a reply without calls ends a turn."""
    of_calls = {call.turn: call.user_turn for call in transcript.calls}
    places: list[int] = []
    now = 0
    for index, turn in enumerate(transcript.turns):
        now = of_calls.get(index, now)
        places.append(min(now, count - 1))
        now += not turn.calls
    return places


def _build_speech(who: str, text: str, facts: str = "") -> list[Line]:
    head: Line = ((f"  {who}", "name"), (f" {facts}" if facts else "", "quiet"))
    return [head, *((("  │ ", "quiet"), (line, "")) for line in escape_lines(text).split("\n"))] if text else [head]


def _build_model_turn(index: int, turn: ModelTurn) -> list[Line]:
    facts = [turn.finish_reason]
    if turn.usage is not None:
        facts.append(f"{turn.usage.input_tokens} tokens in, {turn.usage.output_tokens} out")
    turn_lines = _build_speech(f"model, turn {index + 1}", turn.text, f"({'; '.join(facts)})")
    if turn.finish_message:
        turn_lines += [(("  │ ", "quiet"), (escape_controls(turn.finish_message), "quiet"))]
    for call in turn.calls:
        text = (
            f"malformed call: {call.malformed}"
            if call.malformed
            else f"calls {call.name}({_dump_json(call.arguments)})"
        )
        turn_lines += [(("  │ ", "quiet"), (escape_controls(text), ""))]
    return turn_lines


def _build_answer(call: FunctionCall) -> list[Line]:
    return _build_speech(
        f"{escape_controls(call.name)}({escape_controls(_dump_json(call.arguments))})",
        _dump_json(call.result, indent=2),
        f"→ {call.outcome}",
    )


def format_input(value: Any) -> str:
    if not isinstance(value, Mapping):
        return value if isinstance(value, str) else _dump_json(value)
    if isinstance(value.get("message"), str):
        return str(value["message"])
    email = value.get("email")
    if isinstance(email, Mapping):
        head = [f"{key}: {email[key]}" for key in email if key != "body"]
        return "\n".join([*head, "", str(email.get("body", ""))])
    return _dump_json(value, indent=2)


def _dump_json(value: Any, indent: int | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
